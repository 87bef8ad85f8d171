"""Errors with a one-line message: what is wrong and where, then what the user can do.

::

    LstmprofError            exit 1   the work could not be done
    ├── ProfileError                  a profile cannot be read
    │   └── ForeignFileError          the file has no known format
    ├── DefectError                   an input triggered a bug in lstmprof, to be reported
    ├── CaptureError                  a process of a capture failed, hung or refused
    ├── RunError                      a run is missing or damaged, or exists already
    └── UsageError           exit 2   a name or an option is not valid

Capture workers import this file, so the file uses only the standard library and Python 3.7.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any

#: Most names that a message lists.
MOST_LISTED = 24


class LstmprofError(Exception):
    """The base class of lstmprof's errors."""

    exit_code = 1

    def __init__(self, fault: str, next_step: str = "") -> None:
        self.fault = one_line(without_url_secrets(fault))
        self.next_step = one_line(without_url_secrets(next_step))
        super().__init__("; ".join(part for part in (self.fault, self.next_step) if part))

    def reword(self, words: Callable[[str], str]) -> None:
        """Rewrite both parts of the message with the function ``words``."""
        LstmprofError.__init__(self, words(self.fault), words(self.next_step))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.fault, self.next_step)


def _unpickled(kind: type[LstmprofError], fault: str, next_step: str) -> LstmprofError:
    error = kind.__new__(kind)
    LstmprofError.__init__(error, fault, next_step)
    return error


class ProfileError(LstmprofError):
    """A profile cannot be read; the message begins with its path."""

    def __init__(self, path: object, fault: str, next_step: str = "") -> None:
        super().__init__(f"{path}: {fault}", next_step)


class ForeignFileError(ProfileError):
    """A file has no known format."""


class DefectError(LstmprofError):
    """An input triggers a bug in lstmprof; the message names a log to send us."""


class LeftOutWarning(UserWarning):
    """lstmprof skips an unreadable input."""


class CacheWarning(UserWarning):
    """lstmprof cannot write the cache, and uses a temporary folder instead."""


class CaptureError(LstmprofError):
    """A capture failed, or cannot run this workload."""


class RunError(LstmprofError):
    """A run is missing, damaged, of another schema version, or exists already."""


class UsageError(LstmprofError):
    """The user gave an invalid name or value."""

    exit_code = 2


#: Protocol of a URL -> lstmprof's extra for the protocol (``pip install 'lstmprof[s3]'``).
_EXTRAS = {
    **{"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http"},
    **{"az": "azure", "abfs": "azure", "abfss": "azure"},
}


#: Advice for a file or folder that the user has no permission to read.
PERMISSIONS = "check its permissions"


def is_readable_folder(path: str | os.PathLike[str]) -> bool:
    return os.access(path, os.R_OK | os.X_OK)


#: Pattern of how a secret's name ends, such as ``--api-key`` and ``HF_TOKEN``.
_SECRET = re.compile(
    r"(?:token|secret(?:[-_]access)?(?:[-_]key)?|passw(?:or)?d|passphrase|api[-_]?key"
    r"|access[-_]?key(?:[-_]id)?|credentials?)\Z",
    re.IGNORECASE,
)
_USER_OF_URL = re.compile(r"://[^/@?#\s]*@")
#: Pattern of a URL's query in a text, without punctuation at the end of a sentence.
_QUERY_OF_URL = re.compile(r"(://[^\s?'\"]{0,2048}\?)[^\s'\")]*[^\s'\"):;,.]")
#: Pattern of access tokens of Hugging Face, GitHub, GitLab, OpenAI, Slack and AWS.
_TOKEN = re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA)[\w-]{8,}")


def without_url_secrets(text: str) -> str:
    """Replace user names, passwords and queries of URLs by ``***``."""
    if "://" not in text:
        return text
    return _QUERY_OF_URL.sub(r"\1***", _USER_OF_URL.sub("://***@", text))


def without_secrets(word: str) -> str:
    """Replace passwords and tokens in a word of a command line by ``***``."""
    if "://" in word:  # the query of a presigned URL is a secret
        address, mark, _ = word.partition("?")
        word = _USER_OF_URL.sub("://***@", address) + ("?***" if mark else "")
    name, mark, _ = word.partition("=") if "=" in word else word.partition(":")
    if mark and _SECRET.search(name[-64:]):
        return name + mark + "***"
    return _TOKEN.sub("***", word)


def command_line(words: Iterable[str]) -> str:
    """Quote words as a command line for a shell, without secrets."""
    masked, is_secret = [], False
    for word in words:
        masked.append("***" if is_secret and not word.startswith("-") else without_secrets(word))
        is_secret = word.startswith("-") and bool(_SECRET.search(word[-64:]))
    return " ".join(shlex.quote(word) for word in masked)


def is_url(word: object) -> bool:
    return "://" in str(word)


def url_fault(url: str, error: Exception) -> tuple[str, str]:
    """Return why a URL cannot be opened, and what the user can do."""
    reason = str(error) or type(error).__name__
    _, mark, query = url.partition("?")
    if query:  # may be a secret key, which error messages may repeat without the protocol
        reason = reason.replace(mark + query, "?***")
    extra = _EXTRAS.get(url.partition("://")[0].lower())
    if isinstance(error, ImportError) and extra:
        return reason, f"pip install 'lstmprof[{extra}]'"
    if isinstance(error, ImportError):
        return reason, "install the missing package with pip"
    if isinstance(error, ValueError) and reason.startswith("Protocol not known"):
        return reason, "check the URL, or install the package for its protocol with pip"
    return reason, "check the URL and its credentials"


#: Error number of the operating system -> what the user can do.
_NEXT_STEPS = {
    errno.ENOSPC: "free some space, or set TMPDIR, LSTMPROF_CACHE or --out to another disk",
    errno.EDQUOT: "free some space, or set TMPDIR, LSTMPROF_CACHE or --out to another disk",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EACCES: "check its permissions, or choose another place",
    errno.EPERM: "check its permissions, or choose another place",
    errno.EROFS: "set TMPDIR, LSTMPROF_CACHE or --out to a writable folder",
    errno.ENOENT: "check what removed it, or set TMPDIR to an existing folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def system_error(fault: OSError) -> LstmprofError:
    """Convert an error of the operating system to lstmprof's error."""
    reason = fault.strerror or str(fault) or type(fault).__name__
    if fault.errno == errno.ENOENT and fault.filename is None and not _has_folder():
        return LstmprofError("the current folder was deleted", "change to another folder")
    where = "" if fault.filename is None else f"{os.fsdecode(fault.filename)}: "
    return LstmprofError(where + reason, next_step_of(fault, "check the file system"))


def next_step_of(fault: OSError, otherwise: str) -> str:
    return _NEXT_STEPS.get(fault.errno or 0, otherwise)


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def one_line(text: str) -> str:
    """Remove line breaks and control characters, so that a text cannot fake output."""
    return (text if text.isprintable() else "".join(map(_one_line, text))).strip()


def _one_line(character: str) -> str:
    if character.isprintable():
        return character
    return "\ufffd" if "\ud800" <= character <= "\udfff" else " "


def unknown_name(
    kind: str, name: str, choices: Iterable[str], *, shown_by: str = "lstmprof list"
) -> UsageError:
    """Make the error for an unknown name, with the nearest known name."""
    names = list(choices)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    listed = ", ".join(names) if len(names) <= MOST_LISTED else "see " + shown_by
    hint = f"did you mean '{near[0]}'?" if near else "known: " + listed
    return UsageError(f"unknown {kind} '{name}'", hint)

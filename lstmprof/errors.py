"""The errors that lstmprof raises for its users' input, one line each.

::

    LstmprofError            exit 1   the work could not be done
    ├── ProfileError                  a profile cannot be read
    │   └── ForeignFileError          the file is of no format that is read
    ├── CaptureError                  a worker died, hung or refused
    ├── RunError                      a run on disk is missing, damaged or in the way
    └── UsageError           exit 2   a name or an option that cannot be meant

A message says what and where, then the next step. Only ``cli.py`` prints them. This file keeps to
the standard library and to Python 3.7, because capture workers import it.
"""

from __future__ import annotations

import difflib
from typing import Any, Iterable, Tuple, Type

#: A longer list of known names is left to ``lstmprof list``.
MOST_LISTED = 24


class LstmprofError(Exception):
    """Something the user can mend; ``str()`` of it is one line."""

    exit_code = 1

    def __init__(self, fault: str, next_step: str = "") -> None:
        self.fault = one_line(fault)
        self.next_step = one_line(next_step)
        super().__init__("; ".join(part for part in (self.fault, self.next_step) if part))

    def __reduce__(self) -> Tuple[Any, ...]:
        """How it is sent from one process to another."""
        return _unpickled, (type(self), self.fault, self.next_step)


def _unpickled(kind: Type[LstmprofError], fault: str, next_step: str) -> LstmprofError:
    error = kind.__new__(kind)
    LstmprofError.__init__(error, fault, next_step)
    return error


class ProfileError(LstmprofError):
    """A profile cannot be read: names the file, the place in it, the fault and the next step."""

    def __init__(self, path: object, fault: str, next_step: str = "") -> None:
        super().__init__("{}: {}".format(path, fault), next_step)


class ForeignFileError(ProfileError):
    """A file of no format that is read: beside profiles in a folder it is no fault."""


class CaptureError(LstmprofError):
    """A capture's worker died, hung, ran out of memory or refused."""


class RunError(LstmprofError):
    """A run directory is missing, damaged, of another schema, or already there."""


class UsageError(LstmprofError):
    """A name or a value that cannot be meant."""

    exit_code = 2


def of_url(error: Exception) -> Tuple[str, str]:
    """Why a URL cannot be opened, and the next step, whatever a protocol's library raised."""
    reason = str(error) or type(error).__name__
    if isinstance(error, ImportError):
        return reason, "pip install what it names"
    if isinstance(error, ValueError) and reason.startswith("Protocol not known"):
        return reason, "check the URL, or pip install the package of its protocol"
    return reason, "check the URL and its credentials"


def one_line(text: str) -> str:
    """``text`` without line breaks or control characters: hostile names cannot forge output."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for a name that is not in a table, with the nearest one that is."""
    names = list(choices)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    listed = ", ".join(names) if len(names) <= MOST_LISTED else "see lstmprof list"
    hint = "did you mean '{}'?".format(near[0]) if near else "known: " + listed
    return UsageError("unknown {} '{}'".format(kind, name), hint)

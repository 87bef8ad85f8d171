"""JSON as profilers really write it.

Profilers print JSON by hand: a comma before ``]``, ``nan`` or ``-inf`` for a bandwidth, a Windows
path with single backslashes, a control character or a byte of no encoding inside a kernel's name.
These are mended. A file that stops in the middle is not: it is refused, with the byte.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lstmprof.errors import ProfileError

_MOST_TRIES = 16
#: What Python says where a whole document is followed by something else.
_BEYOND = "Extra data"
_BOM = b"\xef\xbb\xbf"
# Possessive (++, *+), so that hostile text cannot make the matching backtrack.
_TO_MEND = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?|,(?=\s*+[\]}])|-?\b(?:nan|inf)\b', re.DOTALL | re.IGNORECASE
)
_BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CUT_TOKEN = re.compile(r"[-+.\w]{0,9}\s*\Z")


def document(path: Path | str, content: bytes) -> Any:
    """The JSON in ``content``: a float is its own text (``str``), NaN and infinities are None.

    Bytes of no encoding become lone surrogates, which ``rows.clean`` turns into U+FFFD.

    Raises:
        ProfileError: cut short, not JSON, nested without end.
    """
    text = content.removeprefix(_BOM).decode("utf-8", errors="surrogateescape")
    try:
        try:
            return _loads(text)
        except json.JSONDecodeError as error:
            if error.msg.startswith(_BEYOND):
                raise  # all before is well written: there is nothing to mend
            return _loads(_TO_MEND.sub(_mended, text))
    except json.JSONDecodeError as error:
        raise _fault(path, content, text, error) from error
    except RecursionError as error:
        raise ProfileError(path, "its JSON is nested too deeply for a profile") from error
    except ValueError as error:  # Python's limit on the digits of an integer
        raise ProfileError(path, "it holds an integer of thousands of digits") from error


def value(raw: bytes) -> Any:
    """The one JSON value in ``raw``, as in ``document``, but nothing is mended.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested without end.
    """
    return _loads(raw.decode("utf-8", errors="surrogateescape"))


def last_border(text: bytes) -> int:
    """Position of a comma that seems to stand between two objects, the last such, or 0."""
    brace = len(text)
    for _ in range(_MOST_TRIES):
        brace = text.rfind(b"{", 0, brace)
        before = text[max(0, brace - 64) : max(0, brace)].rstrip()
        if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
            return text.rindex(b",", 0, brace)
    return 0


def _loads(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=str, parse_constant=lambda _: None)


def _mended(token: re.Match[str]) -> str:
    """The token in valid JSON of the same length, so that positions stay true."""
    text = token[0]
    if text == ",":
        return " "
    if text[0] != '"':
        return "NaN".rjust(len(text))
    if "\\" not in text:
        return text
    return _BAD_ESCAPE.sub(lambda escape: "/" if escape[0] == "\\" else escape[0], text)


def _fault(
    path: Path | str, content: bytes, text: str, error: json.JSONDecodeError
) -> ProfileError:
    is_extra = error.msg.startswith(_BEYOND)
    is_string = error.msg.startswith("Unterminated string")
    if is_string or (not is_extra and _CUT_TOKEN.match(text, error.pos)):
        return ProfileError(
            path,
            f"is cut short: its JSON stops unfinished at byte {len(content)}",
            "record or copy it again, and let the profiler finish writing",
        )
    byte = len(text[: error.pos].encode("utf-8", errors="surrogateescape"))
    byte += len(_BOM) if content.startswith(_BOM) else 0
    return ProfileError(
        path, f"is not JSON at byte {byte} ({error.msg})", "record or copy the profile again"
    )

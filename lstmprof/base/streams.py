"""Write to standard output and standard error without control characters.

::

    a name, a note, an error ─▶ Stream.write ─▶ without control characters, encodable
    rich's colours           ─▶ Stream.styled
    a full disk              ─▶ OutputError, one line

``errors.one_line`` cleans the text of profiles and runs. This file cleans all other text, such as
tracebacks and warnings of libraries.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from lstmprof.base.errors import LstmprofError, one_line

#: Pattern of characters that could fake output: control, direction, zero-width, tag, surrogate.
_CONTROL = (
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
CONTROL = re.compile(_CONTROL)
_PLAIN = re.compile(rf"(?!\r\n){_CONTROL}")  # lines of CSV end with \r\n
_STYLED = re.compile(rf"(?!\x1b\[[\d;]*m){_CONTROL}")


class OutputError(LstmprofError):
    """Raised when output cannot be written."""


class Stream:
    """Writes text to a file or terminal, without control characters."""

    def __init__(
        self, file: TextIO, name: str, *, quiet: bool = False, pattern: re.Pattern[str] = _PLAIN
    ) -> None:
        self._file, self._name, self._quiet, self._pattern = file, name, quiet, pattern
        self._fault: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    @property
    def styled(self) -> Stream:
        """Return a stream that keeps the escape codes of colours."""
        return Stream(self._file, self._name, quiet=self._quiet, pattern=_STYLED)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a stream takes text")
        self.put(self._pattern.sub(" ", text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._try(self._file.flush)

    def put(self, text: str) -> None:
        """Write text without removing its control characters."""
        self._try(lambda: self._write(text))

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
        except UnicodeEncodeError:
            encoding = self._file.encoding or "ascii"
            self._file.write(text.encode(encoding, "replace").decode(encoding))

    def _try(self, action: Callable[[], object]) -> None:
        """Call ``action``; if an earlier call failed, only raise this failure again."""
        try:
            if self._fault is None:
                action()
        except BrokenPipeError as fault:
            self._fault = fault
        except OSError as fault:
            self._fault = OutputError(
                f"{self._name} cannot be written ({fault.strerror or fault})",
                "free some space, or redirect the output to another disk",
            )
        if self._fault is not None:
            _forget(self._file)
            if not self._quiet:
                raise self._fault


def _forget(file: TextIO) -> None:
    """Discard the file's buffer; otherwise Python reports a write error at exit."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), file.fileno())


@contextmanager
def guarded() -> Iterator[None]:
    """Replace standard output and standard error by ``Stream`` objects during the block."""
    before = sys.stdout, sys.stderr
    sys.stdout = Stream(sys.stdout, "standard output")
    sys.stderr = Stream(sys.stderr, "standard error", quiet=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def styled(file: TextIO) -> TextIO:
    """Return a stream that keeps the escape codes of colours."""
    return file.styled if isinstance(file, Stream) else file  # type: ignore[return-value]


def write_over(text: str) -> None:
    """Replace the last line of the terminal by ``text``, on standard error."""
    line = f"\r{one_line(text)}\x1b[K"
    if isinstance(sys.stderr, Stream):
        sys.stderr.put(line)
    else:
        sys.stderr.write(line)
    sys.stderr.flush()

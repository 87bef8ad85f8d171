"""Read sampled stacks in the text format of flame graphs: one line per stack, ``a;b;c count``.

A Python frame is ``function (file:line)``. A native frame is ``symbol (library)``.
Source: Brendan Gregg's stackcollapse-perf.pl, and py-spy's ``--format raw``.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lstmprof.base.errors import ProfileError

_THREAD = re.compile(r"thread \((?:0x)?\w+\)(?:: (?P<name>.*))?$")
#: Pattern of the path before a package's name; lstmprof removes this path from frames.
_BEFORE_PACKAGE = re.compile(
    r"(?<= \()/(?:[^()]*/(?:site-packages|dist-packages|worker(?=/lstmprof/)|python3\.\d+)/"
    r"|[^()]*/(?=[^/]+\.so))"
)


@dataclass(frozen=True)
class Stack:
    """A stack of a thread, innermost frame last, and its number of samples."""

    thread: str
    frames: tuple[str, ...]
    count: int


def read_stacks(path: Path) -> Iterator[Stack]:
    """Yield the stacks of a gzipped file."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                yield _stack(line, path, number)
    except (OSError, EOFError) as fault:
        raise ProfileError(path, f"is damaged ({fault})", "capture the run again") from fault


def _stack(line: str, path: Path, number: int) -> Stack:
    text, _, count = line.rstrip("\n").rpartition(" ")
    if not count.isdecimal() or not text:
        raise ProfileError(
            path, f"line {number} does not end with a count", "capture the run again"
        )
    first, *frames = text.split(";")
    thread = _THREAD.match(first)
    if thread is None:
        first, frames = "", [first, *frames]
    return Stack(
        (thread["name"] or "") if thread else "",
        tuple(_BEFORE_PACKAGE.sub("", frame) for frame in frames),
        int(count),
    )

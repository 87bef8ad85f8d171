"""What both profile passes share: the session to throw away, and the profiler's file."""

from __future__ import annotations

import dataclasses
import gzip
import mmap
import os
import shutil
from typing import Callable, Iterator, List, Optional, Sequence, Tuple


def first_found(path: str, needles: Sequence[Tuple[str, str]]) -> Optional[str]:
    """The words of the first (needle, words) whose needle is in the file; None where none is."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for needle, words in needles:
            if content.find(needle.encode()) >= 0:
                return words
    return None


def compressed(path: str, place: str) -> str:
    """Move the file at ``path``, gzipped, to ``place``, which is returned."""
    with open(path, "rb") as plain, gzip.open(place, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    os.remove(path)
    return place


#: A profiler's first session slows what runs in it, and for some tenths of a second after its start
#: every session does (seen on CPUs with torch 2.13 and TensorFlow 2.21): one is thrown away.
THROWAWAY_NS = 500_000_000
THROWAWAY_STEPS = 100


def throwaway_steps(steps: int, clock: Callable[[], int]) -> Iterator[int]:
    """Numbers of the steps of the session to throw away: ``steps`` or more, for THROWAWAY_NS.

    No more than THROWAWAY_STEPS beyond ``steps``: short ones are warm by then.
    """
    start_ns = clock()
    for number in range(steps + THROWAWAY_STEPS):
        if number >= steps and clock() - start_ns >= THROWAWAY_NS:
            return
        yield number


@dataclasses.dataclass(frozen=True)
class Profiled:
    """The outcome of a profile pass."""

    walls_ns: List[int]
    losses: List[float]
    files: List[str]
    kernels: Optional[str]  # which kernels really ran, in words; None where no operator told

"""What both profile passes do with a profiler's file: read which kernels ran, then gzip it."""

from __future__ import annotations

import dataclasses
import gzip
import mmap
import os
import shutil
from typing import List, Optional, Sequence, Tuple


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


@dataclasses.dataclass(frozen=True)
class Profiled:
    """The outcome of a profile pass."""

    walls_ns: List[int]
    losses: List[float]
    files: List[str]
    kernels: Optional[str]  # which kernels really ran, in words; None where no operator told

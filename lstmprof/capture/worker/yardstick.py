"""What this machine needs for work that is always the same, before a round and after it.

A product of two float32 matrices by NumPy, on as many threads as NumPy takes of the worker's CPUs
(``host.take_cpus`` tells its BLAS); a loop of Python on one thread; a copy on one thread of what no
usual cache holds. Each is the median of REPEATS after one that is not counted. They compare rounds
of one version of Python and NumPy and of as many threads, not machines.

The memory is mapped, not allocated: a block of some MiB that glibc's malloc gets back raises the
size from which it maps (mallopt(3), M_MMAP_THRESHOLD): the framework's page faults would change.
Large pages, where Linux gives them, make its first touch 3 times as fast and the copy no faster.
"""

from __future__ import annotations

import contextlib
import mmap
import statistics
import time
from typing import Any, Callable, Dict

REPEATS = 5
#: 0.27 GFLOP, 3.6 ms by AVX-512 on one core of a Xeon at 2.5 GHz; its 3 MiB lie in the caches.
PRODUCT_SIZE = 512
#: 3.8 ms there by CPython 3.11.
LOOP_TURNS = 50_000
#: Read, and as much written: 9 ms there.
COPY_BYTES = 1 << 26


def measured() -> Dict[str, int]:
    """The yardstick, now."""
    return {"product_ns": _product_ns(), "python_ns": _median_ns(turns), "copy_ns": _copy_ns()}


def turns() -> int:
    """The loop of Python."""
    total = 0
    for number in range(LOOP_TURNS):
        total += number & 7
    return total


def _product_ns() -> int:
    import numpy as np

    size = PRODUCT_SIZE
    memory = np.frombuffer(_mapped(3 * 4 * size * size), np.float32)
    left, right, output = memory.reshape(3, size, size)
    left[:], right[:] = 0.5, 0.25
    return _median_ns(lambda: np.matmul(left, right, out=output))


def _copy_ns() -> int:
    import numpy as np

    source, target = np.frombuffer(_mapped(2 * COPY_BYTES), np.int8).reshape(2, COPY_BYTES)
    source[:] = 1
    return _median_ns(lambda: np.copyto(target, source))


def _mapped(length: int) -> mmap.mmap:
    """Memory of the process's own, in large pages where Linux and Python (3.8) have them."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, length)
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _median_ns(work: Callable[[], Any]) -> int:
    work()
    walls_ns = []
    for _ in range(REPEATS):
        start_ns = time.perf_counter_ns()
        work()
        walls_ns.append(time.perf_counter_ns() - start_ns)
    return int(statistics.median(walls_ns))

"""What this machine needs for work that is always the same, before a round and after it.

A product of two float32 matrices by NumPy, on as many threads as NumPy takes of the worker's CPUs
(``host.take_cpus`` tells its BLAS); a loop of Python on one thread; a copy on one thread of what no
usual cache holds. Each is the median of REPEATS after one that is not counted, in wall time and in
CPU time: beside other work the one tells how much of the CPU was left (in slices of the scheduler,
some ms each), the other what the CPU did with its time, as clocks and shared caches make it. They
compare rounds of one version of Python and NumPy and of as many threads, not machines.

The memory is mapped, not allocated: a block of some MiB that glibc's malloc gets back raises the
size from which it maps (mallopt(3), M_MMAP_THRESHOLD): the framework's page faults would change.
Large pages, where Linux gives them, make its first touch 3 times as fast and the copy no faster.
"""

from __future__ import annotations

import contextlib
import mmap
import statistics
import time
from typing import Any, Callable, Dict, NamedTuple

REPEATS = 5
#: 0.27 GFLOP, 3.6 ms by AVX-512 on one core of a Xeon at 2.5 GHz; its 3 MiB lie in the caches.
PRODUCT_SIZE = 512
#: 3.8 ms there by CPython 3.11.
LOOP_TURNS = 50_000
#: Read, and as much written: 9 ms there.
COPY_BYTES = 1 << 26


class Times(NamedTuple):
    """Medians of wall and CPU time, which differ where another process had the CPU."""

    wall_ns: int
    cpu_ns: int


def measured() -> Dict[str, int]:
    """The yardstick, now."""
    parts = {"product": _product(), "python": times(turns), "copy": _copy()}
    walls = {part + "_ns": took.wall_ns for part, took in parts.items()}
    return {**walls, **{part + "_cpu_ns": took.cpu_ns for part, took in parts.items()}}


def turns() -> int:
    """The loop of Python."""
    total = 0
    for number in range(LOOP_TURNS):
        total += number & 7
    return total


def _product() -> Times:
    import numpy as np

    size = PRODUCT_SIZE
    memory = np.frombuffer(_mapped(3 * 4 * size * size), np.float32)
    left, right, output = memory.reshape(3, size, size)
    left[:], right[:] = 0.5, 0.25
    return times(lambda: np.matmul(left, right, out=output))


def _copy() -> Times:
    import numpy as np

    source, target = np.frombuffer(_mapped(2 * COPY_BYTES), np.int8).reshape(2, COPY_BYTES)
    source[:] = 1
    return times(lambda: np.copyto(target, source))


def _mapped(length: int) -> mmap.mmap:
    """Memory of the process's own, in large pages where Linux and Python (3.8) have them."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, length)
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def times(work: Callable[[], Any]) -> Times:
    """Medians of REPEATS of ``work``, all threads of the process counted, after one not counted."""
    work()
    walls_ns, cpus_ns = [], []
    for _ in range(REPEATS):
        start_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        work()
        cpus_ns.append(time.process_time_ns() - cpu_ns)
        walls_ns.append(time.perf_counter_ns() - start_ns)
    return Times(int(statistics.median(walls_ns)), int(statistics.median(cpus_ns)))

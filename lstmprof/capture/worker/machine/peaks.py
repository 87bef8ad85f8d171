"""Measure the device's peak rates: FLOP/s of a large matmul, bytes/s of a large copy.

A copy counts bytes read and bytes written, as in J. McCalpin's STREAM. The measurement follows the
steps, with the run's threads and precision. NumPy copies for every framework on a CPU.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Optional, Tuple

from lstmprof.base.errors import one_line
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.machine import host

Clock = Callable[[], int]
Run = Callable[[int], None]  # does its work this many times, and waits until it is done

#: Shortest time of a measurement; shorter matmuls and copies are repeated.
LEAST_NS = 50_000_000
MOST_TIMES = 64
#: Time after which no further repetition begins.
BUDGET_NS = 300_000_000
CPU_SIZES, GPU_SIZES = (512, 4096), (8192, 8192)
SIZE_MULTIPLE = 128
#: Bytes to copy on a GPU (more than any L2 cache), and the smallest and largest number of bytes to
#: copy on a CPU (usually twice the last-level cache).
GPU_BUFFER, LEAST_CPU_BUFFER, LARGEST_CPU_BUFFER = 1 << 30, 1 << 26, 1 << 29

HALVES = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}
TURNED_OFF = "turned off by --no-peaks"
LATER_ROUND = "measured in the first round only"


def facts(
    request: CaptureRequest, loop: Any, device: str, report: Callable[[str], None]
) -> Dict[str, Any]:
    if not request.peaks:
        return unmeasured(request.precision, TURNED_OFF)
    if not request.steps_to_profile:
        return unmeasured(request.precision, LATER_ROUND)
    report("measuring the device's peak rates")
    return measured(loop, device, request.precision)


def measured(loop: Any, device: str, precision: str) -> Dict[str, Any]:
    """Measure the peak rates with a framework, or return why this failed."""
    if not hasattr(loop, "product"):
        framework = loop.__name__.rpartition(".")[2]
        return unmeasured(precision, "{} has no matmul benchmark".format(framework))
    try:
        return dict(unmeasured(precision, None), **_measured(loop, device, precision))
    except Exception as error:  # the steps are measured; their result must not be lost
        return unmeasured(precision, one_line("{}: {}".format(type(error).__name__, error)))


def unmeasured(precision: str, reason: Optional[str]) -> Dict[str, Any]:
    names = ("gemm_flops_per_s", "gemm_size", "copy_bytes_per_s", "copy_bytes")
    return dict(dict.fromkeys(names), precision=precision, reason=reason)


def _measured(loop: Any, device: str, precision: str) -> Dict[str, Any]:
    cpu, dtype = device == "cpu", HALVES.get(precision, "float32")
    clock = time.perf_counter_ns
    size, best_ns = best_product(
        lambda size: loop.product(size, device, dtype), CPU_SIZES if cpu else GPU_SIZES, clock
    )
    buffer = cpu_buffer_bytes() if cpu else GPU_BUFFER
    copy = (numpy_copy if cpu else loop.copy)(buffer, device)
    copy(1)
    copy_ns = best(copy, clock)
    return {
        "gemm_flops_per_s": 2 * size**3 / best_ns * 1e9,
        "gemm_size": size,
        "copy_bytes_per_s": 2 * buffer / copy_ns * 1e9,
        "copy_bytes": 2 * buffer,
    }


def best_product(
    product: Callable[[int], Run], sizes: Tuple[int, int], clock: Clock
) -> Tuple[int, float]:
    """Return (size, shortest ns) of a matmul that is large enough to time."""
    size, most = sizes
    while True:
        run = product(size)
        run(1)  # the first run compiles, allocates, and selects an algorithm
        took_ns = _timed(run, 1, clock)
        if took_ns >= LEAST_NS or size >= most:
            return size, best(run, clock)
        larger = size * (1.2 * LEAST_NS / max(took_ns, 1)) ** (1 / 3)
        size = min(most, -(-int(larger) // SIZE_MULTIPLE) * SIZE_MULTIPLE)


def best(run: Run, clock: Clock) -> float:
    """Return the shortest ns of one run, from groups of runs if a run is short."""
    began_ns, took_ns = clock(), _timed(run, 1, clock)
    times = int(min(MOST_TIMES, max(1, LEAST_NS // max(took_ns, 1))))
    shortest = took_ns if times == 1 else _timed(run, times, clock)
    while clock() - began_ns < BUDGET_NS:
        shortest = min(shortest, _timed(run, times, clock))
    return shortest / times


def _timed(run: Run, times: int, clock: Clock) -> int:
    start_ns = clock()
    run(times)
    return clock() - start_ns


def cpu_buffer_bytes() -> int:
    cache = host.last_level_cache_bytes() or 0
    return min(max(2 * cache, LEAST_CPU_BUFFER), LARGEST_CPU_BUFFER)


def numpy_copy(buffer: int, device: str = "cpu") -> Run:
    """Return a function that copies host memory, with all of the worker's threads."""
    import numpy as np

    threads = host.thread_count()
    sources = [np.ones(buffer // threads, np.int8) for _ in range(threads)]
    parts = [(np.ones_like(source), source) for source in sources]

    def run(times: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in range(times):
                list(pool.map(lambda part: np.copyto(*part), parts))

    return run


def numpy_product(size: int, device: str, dtype: str) -> Run:
    """Return a function that multiplies two matrices by NumPy's BLAS."""
    import numpy as np

    left, right = (np.random.RandomState(0).rand(size, size).astype(dtype) for _ in range(2))
    output = np.empty_like(left)

    def run(times: int) -> None:
        for _ in range(times):
            np.matmul(left, right, out=output)

    return run


def faster(*runs: Run) -> Run:
    """Return the fastest of some functions, after a warm-up call."""
    took_ns = []
    for run in runs:
        run(1)
        start_ns = time.perf_counter_ns()
        run(1)
        took_ns.append(time.perf_counter_ns() - start_ns)
    return runs[took_ns.index(min(took_ns))]

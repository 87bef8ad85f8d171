"""What the device does at best: a large product of matrices and a large copy, by this process.

Both come after the passes, which they cannot disturb, on the same threads and at the run's
precision. The product is the framework's own, by the faster of its libraries, of the size that
takes LEAST_NS on a CPU, of 8192 on a GPU. The copy is wider than the last-level cache; what it
reads and what it writes both count, as in J. McCalpin's STREAM. On a CPU NumPy copies for every
framework, a part a thread.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Optional, Tuple

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import host
from lstmprof.errors import one_line

Clock = Callable[[], int]
Run = Callable[[int], None]  # so many times, waiting for the last

#: What is timed takes at least this, however short one product or copy.
LEAST_NS = 50_000_000
MOST_TIMES = 64
#: After it no further product (or copy) is begun; there are at least two.
BUDGET_NS = 300_000_000
CPU_SIZES, GPU_SIZES = (512, 4096), (8192, 8192)
SIZE_MULTIPLE = 128
#: Bytes of what is copied: of a GPU beyond any L2 cache, of a CPU at least, or twice its cache.
GPU_BUFFER, LEAST_CPU_BUFFER, LARGEST_CPU_BUFFER = 1 << 30, 1 << 26, 1 << 29

HALVES = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}
NOT_ASKED = "turned off by --no-peaks"
LATER_ROUND = "measured in the first round only"


def facts(
    request: CaptureRequest, loop: Any, device: str, report: Callable[[str], None]
) -> Dict[str, Any]:
    """``peaks`` of run.json; None with the ``reason`` where they were not or could not be measured.

    Later rounds of a run, which have no profile pass, leave them to the first.
    """
    if not request.peaks:
        return unmeasured(request.precision, NOT_ASKED)
    if not request.steps_to_profile:
        return unmeasured(request.precision, LATER_ROUND)
    report("measuring the device's peak rates")
    return measured(loop, device, request.precision)


def measured(loop: Any, device: str, precision: str) -> Dict[str, Any]:
    """The peaks; None with the ``reason`` where they could not be measured.

    ``loop`` has a framework's ``product`` (size, device, dtype) and ``copy`` (bytes, device).
    """
    if not hasattr(loop, "product"):
        framework = loop.__name__.rpartition(".")[2]
        return unmeasured(precision, "{} has no matmul benchmark".format(framework))
    try:
        return dict(unmeasured(precision, None), **_measured(loop, device, precision))
    except Exception as error:  # the passes are done: their result is not lost for this
        return unmeasured(precision, one_line("{}: {}".format(type(error).__name__, error)))


def unmeasured(precision: str, reason: Optional[str]) -> Dict[str, Any]:
    """``peaks`` without any figure."""
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
    """The size, of least to most in ``sizes``, at which one takes LEAST_NS, and its best time."""
    size, most = sizes
    while True:
        run = product(size)
        run(1)  # a first one compiles, allocates, looks for an algorithm
        took_ns = _timed(run, 1, clock)
        if took_ns >= LEAST_NS or size >= most:
            return size, best(run, clock)
        larger = size * (1.2 * LEAST_NS / max(took_ns, 1)) ** (1 / 3)
        size = min(most, -(-int(larger) // SIZE_MULTIPLE) * SIZE_MULTIPLE)


def best(run: Run, clock: Clock) -> float:
    """The shortest time of a warm one, ns; several at a time where one is too short to be timed."""
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
    """Twice the last-level cache, where the system tells its size, within bounds."""
    cache = host.last_level_cache_bytes() or 0
    return min(max(2 * cache, LEAST_CPU_BUFFER), LARGEST_CPU_BUFFER)


def numpy_copy(buffer: int, device: str = "cpu") -> Run:
    """A copy of ``buffer`` bytes on the host, shared among the worker's threads."""
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
    """A product of two matrices by NumPy's BLAS."""
    import numpy as np

    left, right = (np.random.RandomState(0).rand(size, size).astype(dtype) for _ in range(2))
    output = np.empty_like(left)

    def run(times: int) -> None:
        for _ in range(times):
            np.matmul(left, right, out=output)

    return run


def faster(*runs: Run) -> Run:
    """The one whose second time is the shorter."""
    took_ns = []
    for run in runs:
        run(1)
        start_ns = time.perf_counter_ns()
        run(1)
        took_ns.append(time.perf_counter_ns() - start_ns)
    return runs[took_ns.index(min(took_ns))]

"""Estimate how long a capture will take: a guess from its size, corrected by earlier captures.

The guess is the time to start the process, compile, run the steps, and write the profile. It
assumes that a step takes as long as the launches of its kernels. A guess is often wrong by a factor
that an implementation's next capture has, too, so each implementation keeps its ratio of measured
to guessed time.
"""

from __future__ import annotations

import statistics

from benchmarks.gpu.wishes import cells
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.timing import GPU_WARM_UP_NS

#: Framework -> seconds for the import, device and libraries before the first step, and to measure
#: the device's peak rates after the last.
START_S = {"torch": 12.0, "flax": 14.0, "jax": 14.0, "cudnn": 10.0}
#: Implementation -> seconds that compiling adds.
COMPILE_S = {"torch-compile": 25.0, "torch-script": 4.0}
#: Implementation -> number of kernels that one call of a cell launches, forward and backward.
KERNELS = {
    "torch-lstmcell-basic": 45,
    "torch-script": 35,
    "torch-compile": 25,
    "torch-lstmcell-fused": 25,
    "jax-scan": 20,
    "flax-lstm": 25,
}
_KERNELS_OF_LAYERS = 6
LAUNCH_S = 8e-6
#: Seconds to profile one kernel: about four events, and 12 µs to collect, write and compress each.
PROFILED_KERNEL_S = 4 * 12e-6
#: Minimum length in seconds of the profiler session before the real one, whose result is dropped.
THROWAWAY_S = 0.5
#: A capture begins only if this many times its estimate fits into the remaining time.
CAUTION = 1.25


def guess_s(request: CaptureRequest) -> float:
    """Return the seconds that the capture takes according to its size alone."""
    kernels = cells(request.workload) * KERNELS.get(request.implementation, _KERNELS_OF_LAYERS)
    step_s = kernels * LAUNCH_S
    timing_s = max(request.timing_s or 0.0, 3 * step_s)
    throwaway_s = max(THROWAWAY_S, request.steps_to_profile * step_s)
    steps_s = (request.warmup_iterations + 2 * request.steps_to_profile) * step_s
    written_s = request.steps_to_profile * kernels * PROFILED_KERNEL_S
    start_s = START_S[request.implementation.partition("-")[0]]
    start_s += COMPILE_S.get(request.implementation, 0.0) + GPU_WARM_UP_NS / 1e9
    return start_s + steps_s + timing_s + throwaway_s + written_s


class Estimates:
    """Estimates: guesses, multiplied by the ratio of measured to guessed time so far."""

    def __init__(self) -> None:
        self._ratios: dict[str, list[float]] = {}

    def learn(self, request: CaptureRequest, took_s: float) -> None:
        """Record that the capture of ``request`` took ``took_s`` seconds."""
        self._ratios.setdefault(request.implementation, []).append(took_s / guess_s(request))

    def seconds(self, request: CaptureRequest) -> float:
        """Return the estimate for ``request`` in seconds.

        It uses the ratio of the implementation's last capture, or the median ratio of all captures,
        or, before the first capture, 1.
        """
        own = self._ratios.get(request.implementation)
        everyone = [ratio for ratios in self._ratios.values() for ratio in ratios]
        ratio = own[-1] if own else statistics.median(everyone) if everyone else 1.0
        return guess_s(request) * ratio

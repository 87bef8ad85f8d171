"""How long a capture will take: a guess from its size, corrected by the captures so far.

The guess is for a GPU that a host feeds: the process starts, compiles, runs its steps, each as long
as the launches of its cells, and writes its profile. What is off by a factor for one implementation
is off for its next capture too, so the ratio of measured to guessed is kept for each.
"""

from __future__ import annotations

import statistics

from benchmarks.gpu.wishes import cells
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.timing import GPU_WARM_UP_NS

#: Framework -> seconds until the first step: import, device, libraries; at the end the peaks
START_S = {"torch": 12.0, "flax": 14.0, "jax": 14.0, "cudnn": 10.0}
#: Implementation -> what compiling adds, seconds
COMPILE_S = {"torch-compile": 25.0, "torch-script": 4.0}
#: Implementation -> kernels that a cell launches, forward and backward
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
#: A kernel in a profile is about four events, of 12 µs each to collect, write and pack.
PROFILED_KERNEL_S = 4 * 12e-6
#: The throwaway session lasts half a second, or as many steps as are profiled.
THROWAWAY_S = 0.5
#: What is begun must fit in this many times its estimate.
CAUTION = 1.25


def guess_s(request: CaptureRequest) -> float:
    """Seconds that a capture takes by its size alone."""
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
    """Guesses, times the ratio of what was measured to what was guessed."""

    def __init__(self) -> None:
        self._ratios: dict[str, list[float]] = {}

    def learn(self, request: CaptureRequest, took_s: float) -> None:
        """``request`` took ``took_s``."""
        self._ratios.setdefault(request.implementation, []).append(took_s / guess_s(request))

    def seconds(self, request: CaptureRequest) -> float:
        """By the implementation's last capture, else by the median of all, else the guess."""
        own = self._ratios.get(request.implementation)
        everyone = [ratio for ratios in self._ratios.values() for ratio in ratios]
        ratio = own[-1] if own else statistics.median(everyone) if everyone else 1.0
        return guess_s(request) * ratio

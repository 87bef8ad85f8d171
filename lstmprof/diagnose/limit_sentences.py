"""What is said of limits: how near a step came to its roofline, what a change would buy."""

from __future__ import annotations

from lstmprof.diagnose.roofline import Roofline
from lstmprof.numbers import milliseconds, percent
from lstmprof.replay.prediction import Prediction

#: A replay that misses the observed step by more is told of.
REPLAY_ERROR = 0.05


def of_roofline(limit: Roofline) -> str:
    """The least time of the step, the share reached, and the rate of its products."""
    share = f": it reaches {percent(limit.share)}" if limit.share is not None else ""
    share += ", so these peaks are too low" if (limit.share or 0) > 1 else ""
    said = f"the device could do this step's work in {milliseconds(limit.step_ns)} ms{share}"
    if limit.gemm_flops_per_s is None:
        return f"{said}."
    reached, peak = (gflops(r) for r in (limit.gemm_flops_per_s, limit.peaks.gemm_flops_per_s))
    return f"{said}; products run at {reached} of {peak} GFLOP/s over the whole step."


def gflops(flops_per_s: float) -> str:
    """``98.4``."""
    return f"{flops_per_s / 1e9:,.1f}"


def of_what_if(name: str, found: Prediction) -> str:
    """The profiled step, what is saved, what is then the most; and the undisturbed step.

    Last the model's own error, where it is large.
    """
    saved = found.saved_ns / found.replayed_ns if found.replayed_ns else 0.0
    said = (
        f"{name}: {milliseconds(found.predicted_ns)} instead of "
        f"{milliseconds(found.replayed_ns)} ms ({percent(-saved) if saved else 'nothing saved'})"
    )
    if found.bottleneck is not None:
        state, part, ns = found.bottleneck
        said += f"; then {state} {part} is the most, {milliseconds(ns)} ms"
    if found.undisturbed_ns is not None:
        said += f"; undisturbed it would take {milliseconds(found.undisturbed_ns)} ms"
    off = found.replayed_ns / found.observed_ns - 1 if found.observed_ns else 0.0
    if abs(off) > REPLAY_ERROR:
        said += f"; the unchanged step is replayed {percent(off)} off, so take this with care"
    return f"{said}."

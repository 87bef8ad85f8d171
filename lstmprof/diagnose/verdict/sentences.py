"""Write sentences about kinds of time, rooflines and forecasts."""

from __future__ import annotations

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import listed, milliseconds, percent
from lstmprof.breakdown.replay import Error, Prediction
from lstmprof.diagnose.certainty import prediction_certainty
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.because import because
from lstmprof.diagnose.findings.savings import REPLAY, ROOFLINE
from lstmprof.diagnose.roofline import Roofline


def finding_sentence(finding: Finding) -> str:
    """Write a sentence about a kind of time: length, share and reasons."""
    whole = "the step" if finding.fast is None else "the difference"
    share = (
        "" if finding.share is None else f" ({percent(finding.share).replace('-', '−')} of {whole})"
    )
    sign = "" if finding.fast is None else "+" if finding.delta_ns >= 0 else "−"
    ns = finding.slow_ns if finding.fast is None else abs(finding.delta_ns)
    amount = f"{sign}{milliseconds(ns)} ms"
    parts = [_saved(finding)] if finding.saving.by in (REPLAY, ROOFLINE) else []
    parts += [because(finding)] if finding.delta_ns > 0 else []
    why = "; ".join(part for part in parts if part)
    return f"{amount}{share}: {why}." if why else f"{amount}{share}."


def _saved(finding: Finding) -> str:
    """Return a clause on how much shorter the step would be without this time."""
    amount = f"{milliseconds(max(finding.saving.ns, 0))} ms"
    if finding.saving.by == ROOFLINE:
        return f"{amount} more than the roofline (the least time for this work)"
    if finding.saving.ns <= 0:
        return "in a replay without this time, the step is no shorter"
    return f"in a replay without this time, the step is {amount} shorter"


def roofline_sentence(limit: Roofline) -> str:
    """Write a sentence: a step's least time, its share of the step, and the matmul rate."""
    share = (
        f"; this run reaches {percent(limit.share)} of these rates"
        if limit.share is not None
        else ""
    )
    share += ", so the peak rates are too low" if (limit.share or 0) > 1 else ""
    least = f"a step takes at least {milliseconds(limit.step_ns)} ms at the device's peak rates"
    text = f"{least}{share}"
    if limit.gemm_flops_per_s is None:
        return f"{text}.{_quicker(limit)}"
    rates = (limit.gemm_flops_per_s, limit.peaks.gemm_flops_per_s)
    reached, peak = (f"{flops_per_s / 1e9:,.1f}" for flops_per_s in rates)
    rate = f"Matmul FLOPs / step time: {reached} GFLOP/s (peak: {peak} GFLOP/s)"
    return f"{text}. {rate}.{_quicker(limit)}"


def _quicker(limit: Roofline) -> str:
    """Return a warning about work that is faster than the roofline allows."""
    quicker = [
        listed(PART_WORDS.get(c, c) for c in r.categories)
        for r in limit.reaches
        if (r.share or 0) > 1
    ]
    if not quicker or (limit.share or 0) > 1:
        return ""
    return (
        f" Faster than the roofline allows: {', '.join(quicker)}. Either the data fits into a "
        "cache, or the measured peak rate is too low."
    )


def _forecast_error(error: Error | None) -> str:
    if error is None:
        return "the error of this forecast is unknown"
    median, worst = percent(error.median), percent(error.worst)
    return (
        f"in {error.pairs} tests on CPUs, forecasts for this change were wrong by {median} "
        f"(median) and {worst} (largest)"
    )


def what_if_sentence(
    name: str, prediction: Prediction, form: str | None = None, error: Error | None = None
) -> str:
    """Write a sentence: the predicted step, the saving, the next bottleneck, and doubts."""
    replayed_ns = prediction.replayed_ns
    saved = prediction.saved_ns / replayed_ns if replayed_ns else 0.0
    ends = f"{milliseconds(prediction.predicted_ns)} instead of {milliseconds(replayed_ns)} ms"
    text = f"{name}: {ends} ({percent(-saved) if saved else 'saves nothing'})"
    if prediction.bottleneck is not None:
        state, part, ns = prediction.bottleneck
        words = PART_WORDS.get(part, part)
        text += f"; the largest part is then {words} ({state}), {milliseconds(ns)} ms"
    if form is not None:
        text += f"; {_forecast_error(error)}"
    doubts = prediction_certainty(prediction).reasons
    return f"{text}. Uncertain: {listed(doubts)}." if doubts else f"{text}."

"""Why a finding is what it is: half a sentence, of its counts or of what takes most of it."""

from __future__ import annotations

from lstmprof.diagnose import causes
from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.findings import Change, Finding
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.numbers import count, cropped, milliseconds, quantity

#: An op or range with less of a finding is no reason for it.
TELLING_SHARE = 0.25


def because(finding: Finding) -> str:
    """The counts behind a finding, as half a sentence; may be empty."""
    fast_name = labels(finding.fast, finding.slow)[0] if finding.fast else ""
    each = each_step(finding.slow)
    if finding.kind == causes.GEMM:
        return _products(finding, fast_name, each)
    counts = [c for c in finding.changes if QUANTITIES[c.quantity].unit == ""]
    if counts and _tells(counts[0]) and not _in_one_place(finding):
        return _counted(finding, counts[0], fast_name, each)
    return _by_largest(finding, fast_name)


def each_step(profile: StepProfile) -> str:
    """`` a step``; empty where a profile has no step markers."""
    return " a step" if profile.marked else ""


def _tells(change: Change) -> bool:
    """Whether the count differs enough to be a reason, or stands alone."""
    return bool(change.slow) and (change.slow or 0) >= 1.1 * (change.fast or 0)


def _in_one_place(finding: Finding) -> bool:
    """Whether most of Python's time is in one range or frame: that says more than a count."""
    first = finding.largest[0].delta_ns if finding.largest else 0
    return finding.kind == causes.PYTHON and 2 * first > finding.delta_ns


def _counted(finding: Finding, change: Change, fast_name: str, each: str) -> str:
    per = finding.change(change.quantity + "_per_time_step")
    text = f"it has {count(change.slow or 0)} {QUANTITIES[change.quantity].text}{each}"
    text += f" ({count(per.slow)} a time step)" if per and per.slow is not None else ""
    return text if change.fast is None else f"{text} where {fast_name} has {count(change.fast)}"


def _products(finding: Finding, fast_name: str, each: str) -> str:
    """Products are few and long or many and short: both say how many and how long."""
    text = f"it has {_products_of(finding, 'slow', each)}"
    if not fast_name:
        return text
    return f"{text}, where {fast_name} has {_products_of(finding, 'fast', each)}"


def _products_of(finding: Finding, whose: str, each: str) -> str:
    values = {c.quantity: getattr(c, whose) for c in finding.changes}
    number, mean = values.get("products"), values.get("mean_product_ns")
    text = f"{count(number or 0)} matrix products{each}"
    text += f" of {quantity(mean, 'ns')}" if mean is not None else ""
    layers = values.get("layer_ops")
    return text + (f" and {count(layers)} ops for whole recurrent layers" if layers else "")


def _by_largest(finding: Finding, fast_name: str) -> str:
    """The largest culprit that adds ``TELLING_SHARE`` of the finding; may be empty."""
    first = next((c for c in finding.largest if c.delta_ns > 0), None)
    if first is None or first.delta_ns < TELLING_SHARE * finding.delta_ns:
        return ""
    text = f"{cropped(first.name)} takes {milliseconds(first.slow_ns)} ms of it"
    return f"{text} against {milliseconds(first.fast_ns)} in {fast_name}" if fast_name else text

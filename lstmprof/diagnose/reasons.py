"""The counts behind a finding, as half a sentence."""

from __future__ import annotations

from lstmprof.diagnose import causes
from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.findings import Change, Culprit, Finding
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.numbers import count, milliseconds, quantity, short_name

#: An op or range with less of a finding is no reason for it.
TELLING_SHARE = 0.25


def because(finding: Finding, fast: StepProfile | None, slow: StepProfile) -> str:
    """What a finding comes from, of the slow run against the fast one; may be empty."""
    fast_name = labels(fast, slow)[0] if fast else ""
    each = each_step(slow)
    if finding.kind == causes.GEMM:
        return _products(finding, fast_name, each)
    known = [c for c in finding.changes if QUANTITIES[c.quantity].unit == ""]
    if known and _tells(known[0]) and not _in_one_place(finding):
        return _counted(finding, known[0], fast_name, each)
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
    said = f"it has {count(change.slow or 0)} {QUANTITIES[change.quantity].text}{each}"
    said += f" ({count(per.slow)} a time step)" if per and per.slow is not None else ""
    return said if change.fast is None else f"{said} where {fast_name} has {count(change.fast)}"


def _products(finding: Finding, fast_name: str, each: str) -> str:
    """Products are few and long or many and short: both say how many and how long."""
    said = f"it has {_products_of(finding, 'slow', each)}"
    if not fast_name:
        return said
    return f"{said}, where {fast_name} has {_products_of(finding, 'fast', each)}"


def _products_of(finding: Finding, whose: str, each: str) -> str:
    values = {c.quantity: getattr(c, whose) for c in finding.changes}
    number, mean = values.get("products"), values.get("mean_product_ns")
    said = f"{count(number or 0)} matrix products{each}"
    said += f" of {quantity(mean, 'ns')}" if mean is not None else ""
    layers = values.get("layer_ops")
    return said + (f" and {count(layers)} ops for whole recurrent layers" if layers else "")


def _by_largest(finding: Finding, fast_name: str) -> str:
    """The largest culprit that adds ``TELLING_SHARE`` of the finding; may be empty."""
    first = next((c for c in finding.largest if c.delta_ns > 0), None)
    if first is None or first.delta_ns < TELLING_SHARE * finding.delta_ns:
        return ""
    said = f"{short(first)} takes {milliseconds(first.slow_ns)} ms of it"
    return f"{said} against {milliseconds(first.fast_ns)} in {fast_name}" if fast_name else said


def short(culprit: Culprit) -> str:
    """Its name in few characters."""
    return short_name(culprit.name)

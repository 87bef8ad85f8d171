"""Add the measured time of an advised implementation if it ran beside the slow run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lstmprof.diagnose.certainty.pair import no_difference
from lstmprof.diagnose.findings import lengths
from lstmprof.diagnose.remedies import Advice
from lstmprof.diagnose.remedies.cells import LAYER_IN_ONE_OP
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP


def worth(advice: Advice, slow: StepProfile, beside: Sequence[StepProfile]) -> Advice | None:
    """Return ``advice`` with the step of a run ``beside`` that follows it and is surely faster.

    Return None if such runs are there and none is faster. Return ``advice`` without a gain if there
    is no such run, or if the fastest may be faster by noise alone.
    """
    others = [p for p in beside if _follows(p, advice, slow)]
    if not others:
        return advice
    other = min(others, key=lambda profile: profile.length_ns)
    other_ns, slow_ns = lengths(other, slow)
    if other_ns >= slow_ns:
        return None
    if no_difference(other, slow):
        return advice
    gain_ns = slow_ns - other_ns
    return replace(advice, measured_ns=other_ns, measured_with=other.label, gain_ns=gain_ns)


def _follows(other: StepProfile, advice: Advice, slow: StepProfile) -> bool:
    """Return whether ``other`` does what ``advice`` says to change in ``slow``.

    A script follows the advice to run a layer as one op if all its recurrent layers are one op
    each, and those of ``slow`` are cells.
    """
    if other.implementation is not None or slow.implementation is not None:
        return other.implementation == advice.implementation is not None
    forms, slow_forms = ({row["form"] for row in p.rows("layers")} for p in (other, slow))
    if other.framework != slow.framework or advice.name != LAYER_IN_ONE_OP.name:
        return False
    return forms == {LAYER_OP} and slow_forms <= {LOOP, CELL_OP} and bool(slow_forms)

"""Compare two steps: the ratio of the step times, and whether both steps make the same calls.

``Ratio(low=1.1, value=1.15, high=1.2)``: the slow step takes 10 to 20 % longer (95 % interval).
If all calls are slower by one factor, the machine or a setting is likely the cause.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstmprof.base.numbers import count, milliseconds
from lstmprof.breakdown.attribution import host
from lstmprof.breakdown.clean.slot_times import BETWEEN_PROCESSES, Z95, Span
from lstmprof.diagnose.findings import Finding, causes, reasons
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.step_profile import Spent, StepProfile, by_name, labels
from lstmprof.implementations import CELL_OP, LAYER_OP

#: Largest relative difference of two steps that lstmprof treats as equally long.
EQUAL_SHARE = 0.02
#: Largest share of calls that may differ between two runs that do the same work.
#: Measured: 0 % for the same work, 6 % if x.unbind(0) replaces x[t].
SAME_SHARE = 0.02
#: ``SAME_SHARE`` for profiles in which TensorFlow omits short ops.
#: Measured for tf-lstmcell on two loaded cores: 11 to 31 %.
SAME_SHARE_OF_EXECUTOR = 0.4
#: Smallest ratio of two counts of calls for which a text compares the counts.
LEAST_COUNT_FACTOR = 1.5
#: Largest ratio of the ends of a 95 % interval that causes no doubt. Chosen by hand.
_ROUGH = 2.0
#: Largest ratio of the ends of a 95 % interval that a text prints. Chosen by hand.
_MOST_FACTOR = 20.0
_BESIDE_LAYERS = (
    *(causes.INPUT, causes.SYNC, causes.COLLECTIVE, causes.COMPILE, causes.START),
    *(causes.CTC, causes.QUEUE, causes.WAITING),
)
#: Smallest ratio of layer time to a kind of time that layers may cause.
#: Chosen by hand.
_LAYERS_SHARE = 0.5
#: Names of cells for users.
CELLS = {
    **dict.fromkeys(("aten::lstm_cell", "aten::_thnn_fused_lstm_cell"), "LSTMCell"),
    **dict.fromkeys(("aten::gru_cell", "aten::_thnn_fused_gru_cell"), "GRUCell"),
    "aten::rnn_tanh_cell": "RNNCell",
}
#: Pattern of texts of ``layer_in_words`` such as ``50 LSTMCell calls per step``.
_CALLS = re.compile(r"(?P<number>[\d,.]+) (?P<op>.+) (?P<calls>calls? (?:per step|in the profile))")


@dataclass(frozen=True)
class Ratio:
    """How many times as long one step takes as another, with a 95 % interval."""

    low: float
    value: float
    high: float | None  # None: the interval has no upper end

    @property
    def sure(self) -> bool:
        """Return whether the step surely takes over 2 % longer than the other step."""
        return self.low > 1 + EQUAL_SHARE


def span_of(profile: StepProfile) -> Span:
    """Return the length of a step with its 95 % interval."""
    if profile.span is not None and profile.span.ns > 0:
        return profile.span
    # without timings, assume the usual spread of step times between processes
    usual, ns = math.exp(Z95 * BETWEEN_PROCESSES), float(profile.length_ns)
    return Span(ns / usual, ns, ns * usual)


def ratio_of(base: StepProfile, new: StepProfile) -> Ratio:
    """Return how many times as long the step of ``new`` takes, with a 95 % interval."""
    if base.length_ns <= 0 or new.length_ns <= 0:
        return Ratio(0.0, math.inf if base.length_ns <= 0 else 0.0, None)
    first, second, value = span_of(base), span_of(new), new.length_ns / base.length_ns
    # combine the errors of both steps: root of the sum of squared logs
    below = math.hypot(_log(second.ns, second.low_ns), _log(first.high_ns, first.ns))
    above = math.hypot(_log(second.high_ns, second.ns), _log(first.ns, first.low_ns))
    high = value * math.exp(above) if math.isfinite(above) else None
    return Ratio(value * math.exp(-below), value, high)


def _log(above: float, below: float) -> float:
    return math.log(above / below) if below > 0 else math.inf


@dataclass(frozen=True)
class Structure:
    """Whether two steps make the same calls, and how much longer a call takes."""

    same: bool
    factor: float | None  # median over the common calls, weighted by time
    certain: bool = True  # False if a profile omits short ops
    fewer: bool = False  # the slow run makes fewer calls
    calls: str = "the same calls"


def structure_of(fast: StepProfile, slow: StepProfile) -> Structure:
    """Compare the calls of two steps, and the time per call."""
    first, second = _counts(fast), _counts(slow)
    names = first.keys() | second.keys()
    pairs = [(first.get(name, 0.0), second.get(name, 0.0)) for name in names]
    most = sum(max(pair) for pair in pairs)
    apart = sum(abs(a - b) for a, b in pairs)
    on_one_kind = (fast.device is None) == (slow.device is None)
    frameworks = {fast.framework, slow.framework} - {None}
    certain = len(frameworks) > 1 or not any(map(leaves_out, (fast, slow)))
    share = SAME_SHARE if certain else SAME_SHARE_OF_EXECUTOR
    same = on_one_kind and bool(most) and apart <= share * most
    factor = _factor(*map(reasons.calls, (fast, slow)))
    fewer = sum(second.values()) < sum(first.values())
    calls = "almost the same calls" if apart else "the same calls"
    return Structure(same, factor, certain, fewer, calls)


def _counts(profile: StepProfile) -> dict[str, float]:
    """Return the number of calls per step of each op and kernel."""
    tables = ("ops",) if profile.device is None else ("ops", "kernels")
    rows = [(table, row) for table in tables for row in profile.rows(table)]
    if rows:
        return {f"{table} {row['name']}": row["count"] / profile.steps for table, row in rows}
    return {name: calls for name, (_, calls) in by_name(profile.contributors).items()}


def _factor(first: Spent, second: Spent) -> float | None:
    common = first.keys() & second.keys()
    shared = [n for n in common if all(ns > 0 < calls for ns, calls in (first[n], second[n]))]
    if not shared:
        return None
    each = np.array([(second[n][0] / second[n][1]) / (first[n][0] / first[n][1]) for n in shared])
    weight = np.array([first[n][0] for n in shared], dtype=np.float64)
    order = np.argsort(each)
    until = np.cumsum(weight[order])
    return float(each[order][np.searchsorted(until, until[-1] / 2)])


def least_excess_ns(finding: Finding, factor: float) -> float:
    """Return by how much a kind of time surely exceeds ``factor`` × the fast run's time."""
    assert finding.fast is not None
    # compare the low end of the slow run's interval with the high end of the fast run's
    low = sum(ns * span.low_ns / span.ns for ns, span in _spans(finding.slow, finding, "slow_ns"))
    high = sum(ns * span.high_ns / span.ns for ns, span in _spans(finding.fast, finding, "fast_ns"))
    return low - factor * high


def rough_lengths(finding: Finding) -> str:
    """Return a doubt if the 95 % interval of the step or of the kind of time is wide."""
    spans = list(_spans(finding.slow, finding, "slow_ns"))
    low_ns = sum(ns * span.low_ns / span.ns for ns, span in spans)
    high_ns = sum(ns * span.high_ns / span.ns for ns, span in spans)
    whole = span_of(finding.slow)
    for what, low, high in (
        ("the step", whole.low_ns, whole.high_ns),
        (finding.words, low_ns, high_ns),
    ):
        if high > _MOST_FACTOR * max(low, 0.0):
            return f"the time of {what} is unknown (its 95 % interval is too wide)"
        if high > _ROUGH * low:
            interval = f"{milliseconds(low)} to {milliseconds(high)} ms"
            return f"the time of {what} is uncertain: {interval} (95 % interval)"
    return ""


def _spans(profile: StepProfile, finding: Finding, which: str) -> Iterator[tuple[int, Span]]:
    """Yield a finding's time in each part of the breakdown, with the part's 95 % interval."""
    whole = span_of(profile)
    for part in finding.parts:
        ns = getattr(part, which)
        if ns > 0:
            yield ns, profile.part_spans.get((part.state, part.part), whole)


def no_difference(fast: StepProfile, slow: StepProfile) -> bool:
    """Return whether the steps may be equally long."""
    return not ratio_of(fast, slow).sure


def counts_in_words(fast: StepProfile, slow: StepProfile) -> str:
    """Compare the numbers of ops or launches: ``7,354 ops per step (baseline: 349)``."""
    about = QUANTITIES["ops" if slow.device is None else "launches"]
    there, here = about.amount(fast), about.amount(slow)
    if not there or not here or max(here / there, there / here) < LEAST_COUNT_FACTOR:
        return ""
    each = "per step" if slow.marked and fast.marked else "in its profile"
    return f"{about.with_noun(here)} {each} (baseline: {count(there)})"


def structure_in_words(fast: StepProfile, slow: StepProfile) -> str:
    """Describe how two runs differ in calls of recurrent layers, else in ops or launches."""
    here, there = layer_in_words(slow), layer_in_words(fast)
    if here and there and here != there:
        ours, theirs = _CALLS.fullmatch(here), _CALLS.fullmatch(there)
        if ours and theirs and ours["number"] == theirs["number"]:
            ops = f"{ours['op']} instead of {theirs['op']}"
            return f"{ops} runs the recurrent layer ({ours['number']} {ours['calls']})"
        return f"{here} (baseline: {there.removesuffix(' per step')})"
    return counts_in_words(fast, slow)


def layer_in_words(profile: StepProfile) -> str:
    """Return how the slowest recurrent layer runs, such as ``50 LSTMCell calls per step``."""
    rows = profile.rows("layers")
    if not rows:
        return ""
    row = max(rows, key=lambda r: (r["forward_ns"] or 0) + (r["backward_ns"] or 0))
    cells, op = row["cells"], row["op"] or ""
    each = "per step" if profile.marked else "in the profile"
    if row["form"] == CELL_OP and cells:
        return f"{count(cells)} {CELLS.get(op, op)} calls {each}"
    if row["form"] == LAYER_OP:
        number = "per_step" if profile.marked else "calls"
        calls = round(sum(r[number] or 1 for r in rows if r["form"] == LAYER_OP), 3)
        return f"{count(calls)} {op} call{'s' if calls > 1 else ''} {each}"
    number = "per_step" if profile.marked else "calls"
    loops = [r for r in rows if r["form"] == row["form"] and r["cells"]]
    runs = sum(r[number] or 1 for r in loops)
    total = sum(r["cells"] * (r[number] or 1) for r in loops)
    if not total:
        return ""
    if runs < 2:  # the mean, if steps differ in cells
        return f"a loop runs the cell {count(total / runs)} times {each}"
    if len({r["cells"] for r in loops}) == 1:
        return f"{count(runs)} loops run the cell {count(cells)} times each {each}"
    return f"{count(runs)} loops run the cell {count(total)} times in all {each}"


def layers_explain(finding: Finding | None) -> bool:
    """Return whether recurrent layers may cause a kind of time."""
    if finding is None or finding.kind not in (*_BESIDE_LAYERS, causes.PYTHON, causes.UNRECORDED):
        return True
    # outside PyTorch, layers run in a graph or compiled loop and need no Python
    in_graph = finding.kind == causes.PYTHON and finding.slow.framework not in ("torch", None)
    if finding.kind in _BESIDE_LAYERS or in_graph:
        return False
    rows = finding.slow.rows("layers")
    if any(row.get("per_step") is None or row.get("forward_ns") is None for row in rows):
        return True  # the layers' time is unknown
    layers_ns = sum(r["per_step"] * (r["forward_ns"] + (r["backward_ns"] or 0)) for r in rows)
    return bool(layers_ns >= _LAYERS_SHARE * finding.delta_ns)


def in_words(ratio: Ratio) -> str:
    """Return the interval of a ratio as text: ``2.80 to 3.40 (95 % interval)``."""
    if ratio.high is None or ratio.high > _MOST_FACTOR * ratio.low:
        return "unknown"
    low, high = (f"{end:,.{0 if end >= 100 else 2}f}" for end in (ratio.low, ratio.high))
    return f"{low} to {high} (95 % interval)"


_BUSY = (causes.GEMM, causes.MEMORY, causes.COPY, causes.CAST)
_LEFT_OUT = "TensorFlow omits very short CPU ops from its profile"


def short_ops_doubt(finding: Finding) -> str | None:
    """Return a doubt if this time may belong to short ops that TensorFlow omits."""
    fast, slow = finding.fast, finding.slow
    # omitted ops count as dispatch, so dispatch is too large and work too small
    if finding.kind == causes.DISPATCH and leaves_out(slow):
        return f"{_LEFT_OUT}; their time appears as dispatch"
    if finding.kind not in _BUSY or fast is None or not leaves_out(fast):
        return None
    dispatch_ns = fast.parts.get(host.DISPATCH, 0)
    if dispatch_ns < finding.delta_ns:
        return None
    where = f"the {milliseconds(dispatch_ns)} ms of dispatch of {labels(fast, slow)[0]}"
    return f"{_LEFT_OUT}, so {where} may contain such ops"


def leaves_out(profile: StepProfile) -> bool:
    """Return whether TensorFlow omits very short CPU ops from this profile."""
    parts = [part for part, ns in profile.parts.items() if ns]
    names = (contributor.name for contributor in profile.contributors)
    return profile.device is None and host.omits_short_ops(parts, names)

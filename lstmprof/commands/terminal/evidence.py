"""The details of ``lstmprof diagnose``: findings with evidence, the waterfall, the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import (
    UNKNOWN,
    count,
    cropped,
    listed,
    milliseconds,
    number_of,
    percent,
    quantity,
    with_short_names,
)
from lstmprof.commands import terminal
from lstmprof.diagnose.diagnosis import Diagnosis, Explained
from lstmprof.diagnose.findings import ADVISED_SHARE, Change, Difference, Finding, causes
from lstmprof.diagnose.findings.because import worth_a_line
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.step_profile import labels
from lstmprof.diagnose.verdict.sentences import roofline_sentence

#: Number of findings whose evidence is printed.
_WITH_EVIDENCE = 3
#: Most characters of a run's name in a column's header.
_WIDTH = 28
_OF_DIFFERENCE = ">of difference"
_REACH_HEADS = ("busy with", ">ms", ">roofline ms", ">% of roofline")
#: Largest number of steps in ``once in 3 steps``, the text for a rare op.
_MOST_STEPS = 100_000


def show_waterfall(diagnosis: Diagnosis) -> None:
    """Print the waterfall: the difference of two steps, by kind of time."""
    terminal.write_line()
    rows = waterfall_rows(diagnosis.differences)
    colours = [terminal.ORANGE if d.delta_ns > 0 else terminal.BLUE for d in rows]
    terminal.write_table(
        "Difference between the two steps, by kind of time (docs/diagnosis.md explains the kinds)",
        waterfall_heads(diagnosis, terminal.narrow()),
        waterfall_cells(diagnosis),
        spare=(_OF_DIFFERENCE,),
        bars=terminal.Bars([*(d.delta_ns for d in rows), None], [*colours, ""]),
        blank=False,
    )


def show_findings(diagnosis: Diagnosis) -> None:
    """Print the large findings, and the evidence of the first ``_WITH_EVIDENCE`` findings."""
    for place, explained in enumerate(large_findings(diagnosis)):
        _show_finding(diagnosis, explained, evidence=place < _WITH_EVIDENCE)


def show_roofline(limit: Roofline) -> None:
    """Print the roofline: busy time and least possible time of each category."""
    cells = [
        [
            listed(PART_WORDS.get(name, name) for name in reach.categories),
            milliseconds(reach.busy_ns, 3),
            milliseconds(reach.bound_ns, 3),
            UNKNOWN if reach.share is None else percent(reach.share),
        ]
        for reach in limit.reaches
    ]
    terminal.write_line()
    terminal.write_under("Roofline: ", roofline_sentence(limit))
    terminal.write_table("", _REACH_HEADS, cells, blank=False)


def large_findings(diagnosis: Diagnosis) -> list[Explained]:
    return [e for e in diagnosis.shown if abs(e.finding.share or 0) >= ADVISED_SHARE]


def _show_finding(diagnosis: Diagnosis, explained: Explained, *, evidence: bool) -> None:
    finding, names = explained.finding, diagnosis.kernel_names
    terminal.write_line()
    terminal.write_under(f"{finding.words} ", with_short_names(explained.sentence, names))
    for advice in explained.remedies:
        text = f"{with_short_names(advice.text, names)} [{advice.source}]"
        terminal.write_lines(terminal.wrapped("  → ", text), bold=0)
    cells = evidence_cells(finding, alone=diagnosis.fast is None)
    if evidence and finding.delta_ns > 0 and cells:
        heads = evidence_heads(diagnosis, terminal.narrow())
        terminal.write_table("", heads, cells, crop="evidence", blank=False)


def _names(diagnosis: Diagnosis, narrow: bool = False) -> tuple[str, str]:
    """Return the headers for the fast run ("" if there is none) and for the slow run."""
    if diagnosis.fast is None:
        return "", cropped(diagnosis.slow.name, _WIDTH)
    if narrow:
        return "fast", "slow"
    fast, slow = labels(diagnosis.fast, diagnosis.slow)
    return cropped(fast, _WIDTH), cropped(slow, _WIDTH)


def waterfall_heads(diagnosis: Diagnosis, narrow: bool = False) -> list[str]:
    fast, slow = _names(diagnosis, narrow)
    return ["kind of time", f">{fast} ms", f">{slow} ms", ">difference ms", _OF_DIFFERENCE]


def waterfall_cells(diagnosis: Diagnosis) -> list[list[str]]:
    rows = waterfall_rows(diagnosis.differences)
    columns = [[d.fast_ns for d in rows], [d.slow_ns for d in rows], [d.delta_ns for d in rows]]
    whole = sum(columns[2])
    shares = terminal.parts_that_add_up(
        [100 * delta / whole if whole else 0.0 for delta in columns[2]], 100.0 if whole else 0.0, 1
    )
    printed = [
        terminal.parts_that_add_up([ns / 1e6 for ns in column], sum(column) / 1e6, 3)
        for column in columns
    ]
    cells = [
        [d.words or d.kind, fast, slow, _signed(delta), f"{share} %"]
        for d, fast, slow, delta, share in zip(rows, *printed, shares, strict=True)
    ]
    sums = [milliseconds(sum(column), 3) for column in columns]
    return [*cells, ["sum", *sums[:2], _signed(sums[2]), "100.0 %" if whole else UNKNOWN]]


def waterfall_rows(rows: Sequence[Difference]) -> list[Difference]:
    """Join the differences below 5 % of the total: ``4 smaller differences``."""
    least = ADVISED_SHARE * max(abs(sum(d.delta_ns for d in rows)), 1)
    large = [d for d in rows if abs(d.delta_ns) >= least]
    small = [d for d in rows if abs(d.delta_ns) < least]
    if len(small) < 2:
        return list(rows)
    fast, slow = sum(d.fast_ns for d in small), sum(d.slow_ns for d in small)
    return [*large, Difference(f"{len(small)} smaller differences", fast, slow)]


def _signed(number: str) -> str:
    return number if number.startswith("-") or not float(number.replace(",", "")) else f"+{number}"


def evidence_heads(diagnosis: Diagnosis, narrow: bool = False) -> list[str]:
    fast, slow = _names(diagnosis, narrow)
    return ["evidence", f">{fast}", f">{slow}"] if fast else ["evidence", f">{slow}"]


def evidence_cells(finding: Finding, alone: bool) -> list[list[str]]:
    cells = [_count_cells(change, finding.slow.per_step) for change in worth_a_line(finding)]
    if finding.largest:
        by = "op or range" if finding.slow.device is None else "kernel or op"
        cells.append([f"{causes.shown(finding.kind)} time per step by {by}:", "", ""])
    for c in finding.largest:
        spent = _spent(c.fast_ns, c.fast_count), _spent(c.slow_ns, c.slow_count)
        cells.append([cropped(c.name), *spent])
    return [[name, slow] for name, _, slow in cells] if alone else cells


def _spent(ns: int, calls: float) -> str:
    """Describe an op's time and calls: ``3.2 ms in 20 calls``, ``3.2 ms, once in 3 steps``."""
    if 0 < calls < 1:
        times = Fraction(calls).limit_denominator(_MOST_STEPS)
        often = "once" if times.numerator == 1 else count(times.numerator)
        return f"{milliseconds(ns, 3)} ms, {often} in {count(times.denominator)} steps"
    return f"{milliseconds(ns, 3)} ms" + (
        f" in {number_of(calls, 'call', 'calls')}" if calls else ""
    )


def _count_cells(change: Change, per_step: str) -> list[str]:
    about = QUANTITIES[change.quantity]
    counted = not about.unit and "_per_" not in about.name
    text = f"{about.text}{per_step}" if counted else about.text
    return [text, *(quantity(value, about.unit) for value in (change.fast, change.slow))]

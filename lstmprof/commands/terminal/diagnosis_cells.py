"""The cells of a diagnosis's tables, for the terminal and for Markdown: rounded, adding up."""

from __future__ import annotations

from lstmprof.commands import terminal
from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import (
    Change,
    Difference,
    Finding,
)
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.sentences import (
    of_roofline,
    of_what_if,
    short,
)
from lstmprof.diagnose.step_profile import labels
from lstmprof.numbers import percent, quantity

#: Findings and parts with a smaller share of the whole are left to JSON.
LEAST_SHARE = 0.01
#: Characters of a run's name over a column.
_WIDTH = 28


def names(diagnosis: Diagnosis, narrow: bool = False) -> tuple[str, str]:
    """What the fast and the slow run are called; of a run alone the fast one is empty."""
    if diagnosis.fast is None:
        return "", terminal.cropped(diagnosis.slow.name, _WIDTH)
    if narrow:
        return "fast", "slow"
    fast, slow = (
        terminal.cropped(label, _WIDTH) for label in labels(diagnosis.fast, diagnosis.slow)
    )
    return fast, slow


def waterfall_heads(diagnosis: Diagnosis, narrow: bool = False) -> list[str]:
    """The headings; numbers begin with ``>``."""
    fast, slow = names(diagnosis, narrow)
    return ["", "part", f">{fast} ms", f">{slow} ms", ">difference ms", ">share"]


def waterfall_cells(diagnosis: Diagnosis) -> list[list[str]]:
    """One line a part and the sum; each column adds up as printed."""
    rows = _with_small_ones_joined(diagnosis.waterfall)
    columns = [[d.fast_ns for d in rows], [d.slow_ns for d in rows], [d.delta_ns for d in rows]]
    printed = [_milliseconds(column) for column in columns]
    whole = sum(columns[2])
    share = terminal.parts_that_add_up(
        [100 * delta / whole if whole else 0.0 for delta in columns[2]], 100.0 if whole else 0.0, 1
    )
    cells = [
        [d.state, d.part, *(column[i] for column in printed[:2]), _signed(printed[2][i]), f"{s} %"]
        for i, (d, s) in enumerate(zip(rows, share, strict=True))
    ]
    sums = [f"{sum(column) / 1e6:,.3f}" for column in columns]
    return [*cells, ["", "sum", *sums[:2], _signed(sums[2]), "100.0 %" if whole else "–"]]


def waterfall_bars(diagnosis: Diagnosis) -> terminal.Bars:
    """The differences of the rows of ``waterfall_cells``, and none for their sum."""
    deltas = [d.delta_ns for d in _with_small_ones_joined(diagnosis.waterfall)]
    colours = [terminal.ORANGE if delta > 0 else terminal.BLUE for delta in deltas]
    return terminal.Bars([*deltas, None], [*colours, ""])


def _with_small_ones_joined(rows: tuple[Difference, ...]) -> list[Difference]:
    """The rows that matter, and the others as one."""
    least = LEAST_SHARE * max(abs(sum(d.delta_ns for d in rows)), 1)
    large = [d for d in rows if abs(d.delta_ns) >= least]
    small = [d for d in rows if abs(d.delta_ns) < least]
    if len(small) < 2:
        return list(rows)
    fast, slow = sum(d.fast_ns for d in small), sum(d.slow_ns for d in small)
    return [*large, Difference("", f"{len(small)} smaller differences", fast, slow)]


def _milliseconds(column: list[int]) -> list[str]:
    values = [ns / 1e6 for ns in column]
    return terminal.parts_that_add_up(values, sum(column) / 1e6, 3)


def _signed(number: str) -> str:
    return number if number.startswith("-") or not float(number.replace(",", "")) else f"+{number}"


def evidence_heads(diagnosis: Diagnosis, narrow: bool = False) -> list[str]:
    """The headings of a finding's evidence."""
    fast, slow = names(diagnosis, narrow)
    return ["evidence", f">{fast}", f">{slow}"] if fast else ["evidence", f">{slow}"]


def evidence_cells(finding: Finding, alone: bool) -> list[list[str]]:
    """The counts and the largest kernels or ops of a finding, a line each."""
    cells = [_count_cells(change) for change in finding.changes]
    for one in finding.largest:
        fast = f"{one.fast_ns / 1e6:,.3f} ms in {one.fast_count:,.0f}"
        slow = f"{one.slow_ns / 1e6:,.3f} ms in {one.slow_count:,.0f}"
        cells.append([short(one), fast, slow])
    return [[name, slow] for name, _, slow in cells] if alone else cells


def _count_cells(change: Change) -> list[str]:
    about = QUANTITIES[change.quantity]
    text = (
        about.text
        if about.unit
        else f"{about.text} a step"
        if "_per_" not in about.name
        else about.text
    )
    return [text, *(quantity(value, about.unit) for value in (change.fast, change.slow))]


def shown(diagnosis: Diagnosis) -> list[int]:
    """Places of the findings that are worth a line: none where there is no difference."""
    if diagnosis.fast is not None and diagnosis.dominant is None:
        return []
    return [
        place
        for place, e in enumerate(diagnosis.findings)
        if abs(e.finding.share or 0) >= LEAST_SHARE
    ]


def limit_lines(diagnosis: Diagnosis) -> list[str]:
    """What is said of the slow run's roofline and of each change that was asked for."""
    limit = diagnosis.roofline
    lines = [] if limit is None else [f"roofline: {of_roofline(limit)}"]
    return lines + [of_what_if(w.name, w.prediction) for w in diagnosis.what_ifs]


REACH_HEADS = ["busy with", ">ms", ">least ms", ">reached"]


def reach_cells(limit: Roofline) -> list[list[str]]:
    """One line a category: its busy time, the least it could be, the share reached."""
    return [
        [
            " + ".join(reach.categories),
            f"{reach.busy_ns / 1e6:,.3f}",
            "–" if reach.bound_ns is None else f"{reach.bound_ns / 1e6:,.3f}",
            "–" if reach.share is None else percent(reach.share),
        ]
        for reach in limit.reaches
    ]

"""Where the steps of several lanes go, a line a lane: a device of a rank, or a run of one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lstmprof.breakdown.mean_step import MeanStep
from lstmprof.commands import terminal
from lstmprof.names import PART_WORDS

#: Parts that are a smaller share of every step are added up.
_LEAST_SHARE = 0.02
_OTHER_WORK, _OTHER_IDLE = "other busy", "other idle"


def title(steps: Sequence[MeanStep], *, marked: bool = True) -> str:
    """What the table of these steps shows, in its units; not ``marked`` are whole profiles."""
    clean = "clean " if all(step.clean for step in steps) else ""
    whose = f"{clean}step" if marked else "profile's time"
    return f"where the {whose} goes, in ms (busy parts, then causes of idle time)"


def show(
    heading: str, of: str, lanes: Sequence[tuple[str, MeanStep]], *, marked: bool = True
) -> None:
    """Print a table of the steps under their names; ``of`` is what is named.

    Those that are not ``marked`` are whole profiles.
    """
    steps = [step for _, step in lanes]
    busy, idle = (_parts(steps, state) for state in ("busy", "idle"))
    spare = (_OTHER_IDLE, _OTHER_WORK, *idle[::-1], *busy[::-1])
    digits = _digits(max(step.mean_ns for step in steps))
    rows = [[label, *_cells(step, busy, idle, digits)] for label, step in lanes]
    heads = [of, *busy, _OTHER_WORK, "idle", *idle, _OTHER_IDLE, "step" if marked else "profile"]
    empty = {name for name in (_OTHER_WORK, _OTHER_IDLE) if _is_empty(rows, heads.index(name))}
    empty |= set() if idle else {_OTHER_IDLE}
    kept = [i for i, name in enumerate(heads) if name not in empty]
    heads = [PART_WORDS.get(name, name) for name in heads]
    terminal.write_table(
        heading,
        [of, *(f">{heads[i]}" for i in kept[1:])],
        [[row[i] for i in kept] for row in rows],
        crop=of if sys.stdout.isatty() else (),
        spare=[f">{PART_WORDS.get(name, name)}" for name in spare],
    )


def _digits(longest_ns: float) -> int:
    """Of milliseconds, so that a column takes about as many characters whatever the step."""
    return 3 if longest_ns < 1e7 else 2 if longest_ns < 1e8 else 1


def _parts(steps: Sequence[MeanStep], state: str) -> list[str]:
    """The parts of ``state`` that are worth a column, the largest over all steps first."""
    shares: dict[str, float] = {}
    large = set()
    for step in steps:
        for own_state, part, ns in step.parts:
            if own_state == state:
                shares[part] = shares.get(part, 0.0) + ns / step.total_ns
                large |= {part} if ns >= _LEAST_SHARE * step.total_ns else set()
    return sorted(large, key=lambda part: -shares[part])


def _cells(step: MeanStep, busy: Sequence[str], idle: Sequence[str], digits: int) -> list[str]:
    """ms of each part, of what has no column, of all idle time, and of the step; they add up."""
    ms = {(state, part): ns / step.steps / 1e6 for state, part, ns in step.parts}
    parts = []
    for state, named in (("busy", busy), ("idle", idle)):
        whole = sum(value for (own, _), value in ms.items() if own == state)
        shown = [ms.get((state, part), 0.0) for part in named]
        parts += [*shown, whole - sum(shown)]
    texts = terminal.parts_that_add_up(parts, step.mean_ns / 1e6, digits)
    of_idle = len(busy) + 1
    whole_idle = sum(float(text.replace(",", "")) for text in texts[of_idle:])
    sums = [f"{value:,.{digits}f}" for value in (whole_idle, step.mean_ns / 1e6)]
    return [*texts[:of_idle], sums[0], *texts[of_idle:], sums[1]]


def _is_empty(rows: Sequence[Sequence[str]], place: int) -> bool:
    return not any(float(row[place].replace(",", "")) for row in rows)

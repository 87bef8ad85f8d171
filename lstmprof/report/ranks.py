"""The rows of the charts of several ranks: where each step goes, who is late, who works.

All are of the profiled steps, as the tables ``ranks`` and ``collectives`` are. A run of one rank
and device has none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.tables.ranks import in_common
from lstmprof.report.model import Row
from lstmprof.report.runs import RunReport

#: Ranks and devices of a run that are drawn, and columns of a picture of them.
MOST_LANES, MOST_COLUMNS = 64, 160

_Place = tuple[int | None, int | None]


def several(runs: Iterable[RunReport]) -> list[RunReport]:
    """Return those of ``runs`` that ran on several ranks or devices."""
    return [run for run in runs if len(_places(run)) > 1]


def _places(run: RunReport) -> list[_Place]:
    lanes = run.breakdown.steps(profiled=True)
    return sorted(((lane.rank, lane.device) for lane in lanes), key=_order)


def _order(place: _Place) -> tuple[int, ...]:
    return tuple(-1 if number is None else number for number in place)


def _drawn(run: RunReport) -> dict[_Place, str]:
    """Return the names of the ranks and devices that are drawn, in their order."""
    return {place: lane_words(*place) for place in _places(run)[:MOST_LANES]}


def ranks(runs: Iterable[RunReport]) -> list[Row]:
    """Return the columns of ``breakdown --table ranks``, the first of each run."""
    return [
        run.row(row)
        for run in several(runs)
        for row in run.breakdown.table("ranks").slice(0, MOST_LANES).to_pylist()
    ]


def rank_parts(runs: Iterable[RunReport]) -> list[Row]:
    """Return ``lane``, ``state``, ``part``, and ``ns`` per mean step."""
    return [
        run.row({"lane": lanes[place], "state": state, "part": part, "ns": total_ns / of.steps})
        for run in several(runs)
        for lanes in [_drawn(run)]
        for of in run.breakdown.steps(profiled=True)
        if (place := (of.rank, of.device)) in lanes
        for state, part, total_ns in of.parts
    ]


def arrivals(runs: Iterable[RunReport]) -> list[Row]:
    """Return cells of ``collectives`` in a row, from ``collective`` (counted from 1), by ``lane``.

    ``late_ns`` is the mean of how long after the first rank it came, ``last_in`` in how many it was
    the last. ``step`` and ``name`` are those of the first of them. A run whose collectives are not
    known to be one another's has none.
    """
    rows = []
    for run in several(runs):
        lanes = _drawn(run)
        calls = in_common(run.breakdown.table("collectives").to_pylist())
        longest: dict[int, int] = defaultdict(int)
        for call in calls:
            longest[call["collective"]] = max(longest[call["collective"]], call["waits_ns"])
        cells: dict[tuple[str, int], list[Row]] = defaultdict(list)
        size = _size(max(longest, default=0) + 1)
        for call in calls:
            if (place := (call["rank"], call["device"])) in lanes:
                cells[lanes[place], call["collective"] // size].append(call)
        for (lane, cell), members in cells.items():
            late = sum(longest[call["collective"]] - call["waits_ns"] for call in members)
            first = min(members, key=lambda call: call["collective"])
            columns = {"lane": lane, "collective": cell * size + 1, "collectives": len(members)}
            columns |= {"late_ns": late / len(members), "last_in": sum(map(_is_last, members))}
            rows.append(run.row({**columns, "step": first["step"], "name": first["name"]}))
    return rows


def _is_last(call: Row) -> bool:
    return (call["last_rank"], call["last_device"]) == (call["rank"], call["device"])


def _size(count: int) -> int:
    """Return how many share a cell, so that ``count`` fit into a picture."""
    return max(-(-count // MOST_COLUMNS), 1)


def rank_work(runs: Iterable[RunReport]) -> list[Row]:
    """Return cells of ``steps`` in a row from ``step`` on, by ``lane``.

    ``work_ns`` is the mean of what a step was busy with anything but a collective, ``off_share``
    that over the mean of all ranks and devices that have these steps, less 1. A profile without
    step markers has none, nor have steps in which nobody works.
    """
    rows = []
    for run in several(runs):
        lanes = _drawn(run)
        work = _work_of_steps(run, lanes)
        steps = sorted({step for _, step in work})
        size = _size(len(steps))
        for members in (steps[at : at + size] for at in range(0, len(steps), size)):
            mean = {lane: _mean(work, lane, members) for lane in lanes.values()}
            known = {lane: ns for lane, ns in mean.items() if ns is not None}
            of_all = sum(known.values()) / len(known)
            for lane, ns in known.items():
                columns = {"lane": lane, "step": members[0], "steps": len(members), "work_ns": ns}
                if of_all:
                    rows.append(run.row({**columns, "off_share": ns / of_all - 1}))
    return rows


def _work_of_steps(run: RunReport, lanes: Mapping[_Place, str]) -> Counter[tuple[str, int]]:
    """Return how long each lane was busy in each marked step, without collectives."""
    work: Counter[tuple[str, int]] = Counter()
    for row in _marked(run):
        if (place := (row["rank"], row["device"])) in lanes:
            busy = row["state"] == "busy" and row["part"] != "collective"
            work[lanes[place], row["step"]] += row["ns"] if busy else 0
    return work


def _marked(run: RunReport) -> Iterator[Row]:
    return (row for row in run.breakdown.ledger.to_pylist() if row["step"] is not None)


def _mean(work: Mapping[tuple[str, int], int], lane: str, steps: Sequence[int]) -> float | None:
    """Return the mean work of ``lane`` in those of ``steps`` that it has; None if it has none."""
    own = [work[lane, step] for step in steps if (lane, step) in work]
    return sum(own) / len(own) if own else None

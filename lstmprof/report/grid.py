"""A table for a paper: the times of runs, with their conditions as rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstmprof.base.errors import UsageError, unknown_name
from lstmprof.base.numbers import UNKNOWN, count, listed, milliseconds, number_of
from lstmprof.base.package import version_numbers
from lstmprof.breakdown import Breakdown, comparable, compared
from lstmprof.breakdown.clean.timings import Timings
from lstmprof.runs.metadata import RunInfo

#: Packages that the caption does not mention.
_NOT_SHOWN = ("nvtx", "lstmprof")


def _version(info: RunInfo) -> str | None:
    name = info.framework or ""
    version = (info.versions or {}).get(name)
    return f"{name} {version}" if version else None


#: Name for the options --rows and --columns → function that reads the value of a run.
FIELDS: Mapping[str, Callable[[RunInfo], Any]] = {
    "implementation": lambda info: info.implementation,
    "label": lambda info: info.label or None,
    "workload": lambda info: info.workload.name,
    "precision": lambda info: info.precision,
    "mode": lambda info: info.mode,
    "device": lambda info: info.device_name or info.device,
    "threads": lambda info: info.threads,
    "layers": lambda info: info.workload.layers,
    "hidden": lambda info: info.workload.hidden,
    "batch": lambda info: info.workload.batch,
    "time-steps": lambda info: info.workload.time_steps,
    "features": lambda info: info.workload.features,
    "cell": lambda info: info.workload.cell,
    "framework": lambda info: info.framework,
    "version": _version,
    "run": lambda info: info.name,
}


@dataclass(frozen=True)
class Value:
    """A number that the table can show for a run, such as ``step ± interval``."""

    text: Callable[[Timings, float | None], str]  # for people; gets the timings and the slowdown
    parts: Mapping[str, Callable[[Timings, float | None], float | None]]  # columns in CSV
    meaning: str  # for the caption


def _step(timings: Timings) -> tuple[float, float | None]:
    """Return the step time and half its 95 % interval in ns."""
    low, high = timings.step_low_ns, timings.step_high_ns
    return timings.step_ns, None if low is None or high is None else (high - low) / 2


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _with_error(ns: float, error_ns: float | None) -> str:
    error = "" if error_ns is None else f" ± {error_ns / 1e6:,.{2 if ns >= 1e6 else 3}f}"
    return f"{milliseconds(ns, 2)}{error}"


_STEP_MS = {"step ms": lambda t, _: _ms(_step(t)[0])}
VALUES: Mapping[str, Value] = {
    "step ± interval": Value(
        lambda t, _: _with_error(*_step(t)),
        {**_STEP_MS, "± ms": lambda t, _: _ms(_step(t)[1])},
        "ms per clean step (without profiler overhead and outliers) ± half the width of the 95 % "
        "interval",
    ),
    "step": Value(lambda t, _: milliseconds(_step(t)[0], 2), _STEP_MS, "ms per clean step"),
    "median": Value(
        lambda t, _: milliseconds(t.median_ns, 2),
        {"median ms": lambda t, _: _ms(t.median_ns)},
        "median ms of an iteration",
    ),
    "mean ± std": Value(
        lambda t, _: _with_error(t.mean_ns, t.std_ns),
        {"mean ms": lambda t, _: _ms(t.mean_ns), "std ms": lambda t, _: _ms(t.std_ns)},
        "mean ms of an iteration ± standard deviation of iterations",
    ),
    "slowdown": Value(
        lambda _, slowdown: "" if slowdown is None else f"{slowdown:.2f}×",
        {"slowdown": lambda _, slowdown: slowdown},
        "×: step time / step time of the fastest run under the same conditions",
    ),
    "samples/s": Value(
        lambda t, _: "" if t.samples_per_s is None else f"{count(t.samples_per_s)} /s",
        {"samples/s": lambda t, _: t.samples_per_s},
        "/s: training samples per second",
    ),
    "first step": Value(
        lambda t, _: "" if t.compile_ns is None else f"{milliseconds(t.compile_ns, 0)} ms first",
        {"first step ms": lambda t, _: _ms(t.compile_ns)},
        "first: time of the first step, which includes compilation",
    ),
}
DEFAULT_VALUE = "step ± interval, slowdown"


@dataclass(frozen=True)
class Cell:
    """A cell of the table, which shows one run."""

    text: str  # for people
    numbers: Mapping[str, float | None]  # for CSV
    best: bool  # no comparable run is surely faster


@dataclass(frozen=True)
class Grid:
    """The table, with its headings and caption."""

    corner: str  # heading of the first column
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[int, int], Cell]  # (row number, column number) → run
    headings: tuple[str, ...]  # columns of each cell in CSV
    caption: str
    added: tuple[str, ...] = ()  # conditions that tell runs apart, but were not chosen


def grid(
    breakdowns: Sequence[Breakdown], rows: str | None, columns: str, value: str = DEFAULT_VALUE
) -> Grid:
    """Make the table of the runs that have timings."""
    column_names = _names(columns, "--columns")
    row_names = None if rows is None else _names(rows, "--rows")
    values = values_of(value)
    timed = [b for b in breakdowns if b.timings is not None]
    if not timed:
        raise UsageError(
            "none of these runs has timings", "give runs of lstmprof capture or lstmprof run"
        )
    chosen = row_names or (
        next(n for n in ("implementation", "workload", "run") if n not in column_names),
    )
    # add conditions until each cell has one run
    row_names = _separating(timed, chosen, column_names, sizes=row_names is not None)
    keys = [(_key(b, row_names), _key(b, column_names)) for b in timed]
    row_keys, column_keys = (_ordered([key[side] for key in keys]) for side in (0, 1))
    slowdown, best = compared(timed), _best(timed)
    placed: dict[tuple[int, int], int] = {}
    for place, (row, column) in enumerate(keys):
        at = row_keys.index(row), column_keys.index(column)
        if at in placed:
            raise _crowded(timed[placed[at]], timed[place], (*row_names, *column_names))
        placed[at] = place
    headings = tuple(dict.fromkeys(name for v in values for name in v.parts))
    shown = _differing(row_keys, len(chosen), fixed=rows is not None)
    return Grid(
        corner=", ".join(row_names),
        rows=tuple(_shown(key, row_names) for key in shown),
        columns=tuple(_shown(key, column_names) for key in column_keys),
        cells={
            at: _cell(timed[place], slowdown.get(place), place in best, values)
            for at, place in placed.items()
        },
        headings=headings,
        caption=caption(timed, values, bold=bool(best)),
        added=row_names[len(chosen) :] if rows is not None else (),
    )


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UsageError(f"{option} is empty", "give one or more of " + ", ".join(FIELDS))
    for name in names:
        if name not in FIELDS:
            raise unknown_name(f"field of {option}", name, FIELDS)
    return names


def values_of(text: str) -> list[Value]:
    """Parse the option --value, such as ``step,slowdown``."""
    names = [" ".join(p.replace("+-", "±").replace("±", " ± ").split()) for p in text.split(",")]
    for name in names:
        if name == "median ± interval":
            raise UsageError("the table has no interval of the median", "write 'step ± interval'")
        if name not in VALUES:
            raise unknown_name("value", name, VALUES)
    return [VALUES[name] for name in dict.fromkeys(names)]


def _key(breakdown: Breakdown, names: Sequence[str]) -> tuple[Any, ...]:
    run = breakdown.run
    return tuple(run.name if name == "run" else FIELDS[name](run.info) for name in names)


def _separating(
    breakdowns: Sequence[Breakdown], rows: Sequence[str], columns: Sequence[str], *, sizes: bool
) -> tuple[str, ...]:
    """Add conditions to the rows until no two runs share a cell, if possible."""
    fields = list(FIELDS)
    if sizes:
        fields = [name for name in fields if name not in ("workload", "run")] + ["workload"]
    names = list(rows)
    while crowds := _crowds(breakdowns, (*names, *columns)):
        others = (name for name in fields if name not in (*names, *columns))
        differs = (n for n in others if any(len({_key(b, [n]) for b in c}) > 1 for c in crowds))
        name = next(differs, None)
        if name is None:
            break
        names.append(name)
    return tuple(names)


def _crowds(breakdowns: Sequence[Breakdown], names: Sequence[str]) -> list[list[Breakdown]]:
    """Return the groups of runs that would share a cell."""
    cells: dict[tuple[Any, ...], list[Breakdown]] = {}
    for breakdown in breakdowns:
        cells.setdefault(_key(breakdown, names), []).append(breakdown)
    return [cell for cell in cells.values() if len(cell) > 1]


#: Marker for a value that the heading of a row omits.
_SAME = object()


def _differing(
    keys: Sequence[tuple[Any, ...]], first: int, *, fixed: bool
) -> list[tuple[Any, ...]]:
    """Put ``_SAME`` in place of added conditions that distinguish no rows."""
    values: dict[tuple[Any, ...], list[set[Any]]] = {}
    for key in keys:
        sets = values.setdefault(key[:first], [set() for _ in key[first:]])
        for part_values, part in zip(sets, key[first:], strict=True):
            part_values.add(part)
    shown = []
    for key in keys:
        head, sets = key[:first], values[key[:first]]
        parts = [p if len(v) > 1 else _SAME for p, v in zip(key[first:], sets, strict=True)]
        # omit an unknown condition, unless the user gave --rows
        unknown = head == (None,) and any(part not in (None, _SAME) for part in parts)
        shown.append(((_SAME,) if unknown and not fixed else head) + tuple(parts))
    return shown


def _ordered(keys: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort labels: numbers and versions by size, words by first occurrence."""
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    words: dict[str, int] = {}
    for key in keys:
        for part in key:
            words.setdefault(str(part), len(words))

    def order(part: Any) -> tuple[Any, ...]:
        if part is None:
            return (2, 0.0, ())
        if isinstance(part, (int, float)):
            return (0, float(part), ())
        name, _, number = str(part).rpartition(" ")
        versioned = name and number[:1].isdigit()
        return (
            1,
            0.0 if versioned else float(words[str(part)]),
            version_numbers(str(part)) if versioned else (),
        )

    return sorted(first, key=lambda key: tuple(order(part) for part in key))


def _shown(key: tuple[Any, ...], names: Sequence[str]) -> str:
    parts = []
    for part, name in zip(key, names, strict=True):
        if part is _SAME or (part is None and name == "label" and len(key) > 1):
            continue
        text = UNKNOWN if part is None else str(part)
        parts.append(f"{name} {text}" if part is None or isinstance(part, int) else text)
    return ", ".join(parts)


def _best(breakdowns: Sequence[Breakdown]) -> set[int]:
    """Return the indices of runs in bold: fastest in a group, or maybe as fast."""
    best: set[int] = set()
    for group in comparable(breakdowns):
        ends = {}
        for place in group:
            timings = breakdowns[place].timings
            if timings is not None:
                ns, error = _step(timings)
                ends[place] = (ns, ns - (error or 0.0), ns + (error or 0.0))
        if len(ends) > 1:
            fastest = min(ends.values())
            best |= {place for place, end in ends.items() if end[1] <= fastest[2]}
    return best


def _cell(
    breakdown: Breakdown, slowdown: float | None, best: bool, values: Sequence[Value]
) -> Cell:
    timings = breakdown.timings
    assert timings is not None
    first, *others = [text for value in values if (text := value.text(timings, slowdown))] or [""]
    rest = f" ({', '.join(others)})" if others else ""
    numbers = {n: part(timings, slowdown) for v in values for n, part in v.parts.items()}
    return Cell(f"{first}{rest}", numbers, best)


def _crowded(first: Breakdown, other: Breakdown, fields: Sequence[str]) -> UsageError:
    infos = (first.run.info, other.run.info)
    differ = [
        name
        for name, of in FIELDS.items()
        if name not in (*fields, "run", "workload") and of(infos[0]) != of(infos[1])
    ]
    step = f"add {listed(differ)} to --rows or --columns"
    step = step if differ else "omit one of these runs, or add run to --rows"
    return UsageError(f"{first.run.name} and {other.run.name} fall into the same cell", step)


def caption(breakdowns: Sequence[Breakdown], values: Sequence[Value], *, bold: bool) -> str:
    """Return the caption: the numbers, the machine, versions, rounds and dates."""
    infos = [b.run.info for b in breakdowns]
    timings = [b.timings for b in breakdowns if b.timings is not None]
    texts = ["; ".join(value.meaning for value in values)]
    texts += (
        ["bold: the fastest run, and runs whose 95 % interval overlaps the fastest run's interval"]
        if bold
        else []
    )
    texts.append(_each(info.device_name or info.device for info in infos) or "device unknown")
    texts.append(_versions(infos) or "versions unknown")
    texts.append(
        _span([t.rounds for t in timings], "round (process) per run", "rounds (processes) per run")
    )
    texts.append(
        _span(
            [t.iterations for t in timings], "timed iteration per run", "timed iterations per run"
        )
    )
    days = sorted({info.started_at[:10] for info in infos if info.started_at})
    texts += [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    return "; ".join(texts) + "."


def _each(texts: Any) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))


def _versions(infos: Sequence[RunInfo]) -> str:
    """Return versions as text: ``torch 2.13``, or ``x: torch 2.13; y: torch 2.12``."""
    runs_of: dict[str, list[str]] = {}
    for info in infos:
        items = (info.versions or {}).items()
        texts = [
            f"{name} {version}" for name, version in items if version and name not in _NOT_SHOWN
        ]
        runs_of.setdefault(", ".join(texts), []).append(info.implementation or "own code")
    if len(runs_of) <= 1:
        return next(iter(runs_of), "")
    return "; ".join(
        f"{_each(runs)}: {texts or 'versions unknown'}" for texts, runs in runs_of.items()
    )


def _span(numbers: Sequence[int], singular: str, plural: str) -> str:
    low, high = min(numbers), max(numbers)
    return (
        number_of(low, singular, plural)
        if low == high
        else f"{count(low)} to {count(high)} {plural}"
    )

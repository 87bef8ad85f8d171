"""Check a profile: recorded data, missing data, and the cost of recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.base.numbers import milliseconds, percent, quantity
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.check.document import (
    FAIL,
    NOT_RECORDED,
    OK,
    VERSION,
    WARN,
    Checked,
    Document,
    Row,
    State,
)
from lstmprof.breakdown.lacks import (
    ALLOCATIONS,
    GPU_UNSEEN,
    NOTE,
    RANGES_WITHOUT_OPS,
    RULES,
    SHAPES,
    Lack,
    Recording,
    counted,
    is_large,
    share_of,
)
from lstmprof.breakdown.lacks.advice import recipes_for
from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import MEASURED
from lstmprof.events.annotate.recorded import ROUNDED_NS, Recorded
from lstmprof.events.annotate.steps import bounds_of
from lstmprof.events.counters import ALLOCATED, CHANGE, RESERVED
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Covered, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN

#: Columns of the events to read.
_READS = ("event_id", "kind", "start_ns", "dur_ns", "rank", "shapes", "launch_id")
#: Kinds of missing data if the program may have used a GPU, but the profile has no GPU activity.
NO_GPU_LACKS = ("TPU not read", "no GPU activity", "no ops or kernels of the program", GPU_UNSEEN)


@dataclass(frozen=True)
class Part:
    """One rank's profile: counts of events, missing data, profiler overhead."""

    has: Recorded  # counts of events
    lacks: tuple[Lack, ...]
    with_shapes: int
    early: int  # activities that begin before their launch call
    early_ns: int  # largest time by which an activity begins too early
    overheads: int  # events of the profiler itself
    overhead_ns: int
    steps_ns: int
    timed: bool  # steps were timed without a profiler
    inflation_share: float | None  # 0.1: profiled steps take 10 % longer
    settings: tuple[str, ...] = ()  # recorded data that slow the host, such as stacks
    allocations: int = 0
    memory: bool = False  # totals of allocated memory were recorded

    @property
    def on_cpu(self) -> bool:
        """Return whether the profile has ops but no sign of a GPU."""
        gpu_work = self.has.activities or self.has.kernel_launches
        unseen = any(lack.kind in NO_GPU_LACKS for lack in self.lacks)
        return bool(self.has.ops) and not gpu_work and not unseen


def parts_of(breakdown: Breakdown) -> list[Part]:
    """Return what the profile of each rank contains and lacks."""
    info, timings = breakdown.run.info, breakdown.timings
    timed = timings is not None and info.source in MEASURED
    counters = _counter_values(breakdown)
    events = breakdown.packed(_READS)
    start_ns, dur_ns = (events.values(name).astype(np.int64) for name in ("start_ns", "dur_ns"))
    launch = events.rows_named("launch_id")
    linked = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS) & (launch != NONE))
    linked = linked[start_ns[launch[linked]] - start_ns[linked] > ROUNDED_NS]
    shaped = np.flatnonzero(events.is_kind("op") & events.has_value("shapes"))
    chosen = (linked, shaped, np.flatnonzero(events.is_kind("overhead")))
    by_rank = [_by_rank(events, rows) for rows in chosen]
    parts = []
    for has in breakdown.recorded:
        early, with_shapes, overhead = (rows.get(has.rank, linked[:0]) for rows in by_rank)
        windows = [window for window in breakdown.windows if window.rank == has.rank]
        steps = Covered(*bounds_of(windows))
        covered = Covered(start_ns[overhead], start_ns[overhead] + dur_ns[overhead])
        parts.append(
            Part(
                has=has,
                lacks=breakdown.lacks_of_rank(has.rank),
                with_shapes=len(with_shapes),
                early=len(early),
                early_ns=int((start_ns[launch[early]] - start_ns[early]).max(initial=0)),
                overheads=len(overhead),
                overhead_ns=int(covered.within(*steps.bounds).sum()),
                steps_ns=steps.whole_ns,
                timed=timed and bool(info.profiled_wall_ns),
                inflation_share=timings.inflation_share if timings and timed else None,
                settings=tuple(Recording(has, info).settings),
                allocations=counters[has.rank, CHANGE],
                memory=any(counters[has.rank, name] for name in (ALLOCATED, RESERVED)),
            )
        )
    return parts


def _counter_values(breakdown: Breakdown) -> Counter[tuple[int | None, str]]:
    """Count the recorded values of each counter on each rank."""
    numbers: Counter[tuple[int | None, str]] = Counter()
    for batch in breakdown.run.counters(("rank", "name")):
        groups = batch.group_by(["rank", "name"]).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            numbers[row["rank"], row["name"]] += row["count_all"]
    return numbers


def _by_rank(events: Packed, rows: Ints) -> dict[int | None, Ints]:
    rank = events.table(("rank",), rows).ints("rank", UNKNOWN)
    group = Groups(rank)
    numbers = (None if n == UNKNOWN else n for n in rank[group.first].tolist())
    return {n: rows[members] for n, members in zip(numbers, group.members(), strict=True)}


#: Largest overhead of the profiler (share of a step) without a warning, and largest overhead or
#: affected share of time or events without a failure.
WARN_SHARE, FAIL_SHARE = 0.10, 0.20

#: Answer of a check: state, sentence and perhaps the affected share; None: no answer.
Answer = tuple[State, str] | tuple[State, str, float | None] | None


@dataclass(frozen=True)
class Question:
    """A check of a profile, such as ``stacks``, with a function for the answer."""

    name: str
    lacks: tuple[str, ...]
    answer: Callable[[Part], Answer]


def is_counted(lack: Lack, part: Part) -> bool:
    """Return False if recording slows the run only because of input shapes."""
    return lack.kind != "recording that slows the run" or part.settings != (SHAPES,)


def state_of(lack: Lack) -> State:
    """Return how bad the missing data are, such as ``fail``."""
    if lack.kind == "no step markers":
        return NOT_RECORDED
    return FAIL if lack.blinds or (lack.share or 0.0) > FAIL_SHARE else WARN


def graded(share: float) -> State:
    """Grade the profiler's overhead (0.1: 10 % of a step)."""
    share = round(share, 9)  # the float 1.1 − 1 is a little more than 0.1
    return FAIL if share > FAIL_SHARE else WARN if share > WARN_SHARE else OK


def _host(part: Part) -> Answer:
    has = part.has
    if not has.host_events and not has.runtime_calls:
        return None if part.lacks else (NOT_RECORDED, "no host event was recorded")
    calls = counted(has.runtime_calls, "runtime call")
    return OK, f"{counted(has.ops, 'op')}, {counted(has.ranges, 'range')} and {calls}"


def _gpu(part: Part) -> Answer:
    has = part.has
    if not has.activities:
        if part.on_cpu:
            return OK, _NO_GPU_WORK
        blind = any(lack.kind in NO_GPU_LACKS for lack in part.lacks)
        return None if blind else (NOT_RECORDED, _NO_GPU_WORK)
    others = counted(has.activities - has.kernels, "copy or memset", "copies and memsets")
    took = milliseconds(has.activity_ns)
    return OK, f"{counted(has.kernels, 'kernel')} and {others}, {took} ms in total"


def _launches(part: Part) -> Answer:
    has = part.has
    if part.on_cpu:
        return None
    if not has.launchable:
        return NOT_RECORDED, "the profile has no GPU activity that needs a launch call"
    linked = f"{has.launchable - has.unlaunched:,} of {has.launchable:,} GPU activities"
    moved = ""
    if has.migrations:
        number = counted(has.migrations, "migration", "migrations")
        moved = f"; {number} of managed memory need no launch call"
    return OK, f"{linked} have a launch call in the profile{moved}"


def _lost(part: Part) -> Answer:
    has = part.has
    if part.on_cpu:
        return None
    if not has.kernel_launches or not has.activities:
        missing = "kernel launch" if not has.kernel_launches else "GPU activity"
        return NOT_RECORDED, f"no {missing} was recorded, so lost events cannot be counted"
    seen = has.kernel_launches - has.lost
    launches = f"{has.kernel_launches:,} kernel launches"
    share = share_of(has.lost, has.kernel_launches)
    return OK, f"{seen:,} of {launches} have their kernel in the profile", share


def _clocks(part: Part) -> Answer:
    linked = part.has.launchable - part.has.unlaunched
    if part.on_cpu:
        return None
    if linked <= 0:
        return NOT_RECORDED, "no GPU activity has a launch call, so clocks cannot be compared"
    early = f"{part.early:,} of {linked:,} GPU activities begin before their launch call"
    share = share_of(part.early, linked)
    if not is_large(part.early, linked):
        return OK, early, share
    most = quantity(part.early_ns, "ns")
    sentence = (
        f"{early} (by up to {most}), so the clocks of host and device differ, and launch latencies "
        "are unknown; record fewer steps"
    )
    return (FAIL if (share or 0.0) > FAIL_SHARE else WARN), sentence, share


def _overhead(part: Part) -> Answer:
    share = part.inflation_share
    if share is not None:
        more = percent(abs(share))
        if share <= 0:
            return OK, f"profiled steps are {more} shorter than unprofiled ones", 0.0
        state = graded(share)
        doubt = "" if state == OK else "; record no stacks and no shapes, or profile longer steps"
        return state, f"profiled steps are {more} longer than unprofiled ones{doubt}", share
    if part.timed:
        return NOT_RECORDED, "the steps do different work, so profiled steps cannot be compared"
    own = share_of(part.overhead_ns, part.steps_ns)
    if own is None or not part.overheads:
        return NOT_RECORDED, f"the profiler's overhead per step {_UNKNOWN}"
    events = counted(part.overheads, "event of the profiler", "events of the profiler")
    take = "takes" if part.overheads == 1 else "take"
    sentence = f"{events} {take} {percent(own)} of the steps' time; what recording adds to each op"
    state = graded(own)
    return (NOT_RECORDED if state == OK else state), f"{sentence} {_UNKNOWN}", own


def _steps(part: Part) -> Answer:
    has = part.has
    if not has.steps:
        return None
    numbers = f", {has.first_step} to {has.last_step}" if has.first_step != has.last_step else ""
    return OK, f"{counted(has.steps, 'marked step')}{numbers}"


def _stacks(part: Part) -> Answer:
    frames = part.has.python_frames
    if not frames:
        return NOT_RECORDED, "no Python frame was recorded, so time by line of code is unknown"
    return OK, counted(frames, "Python frame")


def _shapes(part: Part) -> Answer:
    if not part.with_shapes:
        return NOT_RECORDED, (
            "no input shape was recorded, so sizes of layers and matmuls are unknown"
        )
    share = share_of(part.with_shapes, part.has.ops)
    return OK, f"{part.with_shapes:,} of {counted(part.has.ops, 'op')} have input shapes", share


def _memory(part: Part) -> Answer:
    if not part.allocations and not part.memory and ALLOCATIONS in part.settings:
        again = "if an older lstmprof wrote the run, ingest its profile again"
        return NOT_RECORDED, f"profile_memory was on, but the run has no allocations; {again}"
    if not part.allocations and not part.memory:
        record = TABLES["memory"].record
        return NOT_RECORDED, f"memory use is unknown; {record}"
    events = counted(part.allocations, "allocation or free", "allocations and frees")
    sums = "totals of allocated memory" if part.memory else "no totals of allocated memory"
    return OK, f"{events}, {sums}" if part.allocations else f"{sums}, but no individual allocations"


_NO_GPU_WORK = "no GPU activity was recorded, and nothing shows that the program used a GPU"
_UNKNOWN = "is unknown, because no step was timed without a profiler"
QUESTIONS = (
    Question("host", ("no host", "no framework ops", RANGES_WITHOUT_OPS), _host),
    Question("GPU activities", (*NO_GPU_LACKS, "no kernels", "only copies"), _gpu),
    Question("launches", ("no launches", "kernels without a launch call"), _launches),
    Question(
        "events lost",
        ("first kernels missing", "last kernels missing", "some kernels missing"),
        _lost,
    ),
    Question("clocks", ("activities that overlap", "separate clocks"), _clocks),
    Question("profiler overhead", ("recording that slows the run",), _overhead),
    Question(
        "steps",
        (
            *("no step markers", "missing steps"),
            *("steps without activities", "another number of steps"),
        ),
        _steps,
    ),
    Question("stacks", (), _stacks),
    Question("shapes", (), _shapes),
    Question("memory", (), _memory),
    Question("notes of the reader", (NOTE,), lambda part: None),
)


#: Checks without a recipe: their missing data would need another run, or slow down each op.
_COSTLY_CHECKS = ("profiler overhead", "stacks", "memory")
#: Exit status if a check fails, or if ``lstmprof compare --fail-if`` is true.
FAILED = 3
_RUN_KINDS = {rule.kind for rule in RULES if rule.of_run} | {NOTE}


def check(breakdowns: Sequence[Breakdown]) -> Document:
    runs = [checked(breakdown) for breakdown in breakdowns]
    status = FAILED if any(run.state == FAIL for run in runs) else 0
    return Document(schema_version=VERSION, exit_status=status, runs=runs)


def checked(breakdown: Breakdown) -> Checked:
    info = breakdown.run.info
    rows = []
    for number, part in enumerate(parts_of(breakdown)):
        for question in QUESTIONS:
            rows += _rows(question, part, first=number == 0)
    if not rows:
        rows.append(_row(None, QUESTIONS[0], WARN, breakdown.no_steps.fault))
    states = {row.state for row in rows}
    own = info.source in MEASURED
    missed = [row for row in rows if row.state != OK and row.question not in _COSTLY_CHECKS]
    return Checked(
        run=breakdown.run.name,
        state=FAIL if FAIL in states else WARN if WARN in states else OK,
        profile_format=info.profile_format,
        rows=rows,
        record_with=[] if own or not missed else list(recipes_for(info.profile_format)),
    )


def _rows(question: Question, part: Part, *, first: bool) -> list[Row]:
    """Return the missing data that a check found on a rank, then the check's answer."""
    rows = []
    for lack in part.lacks:
        about_run = lack.kind in _RUN_KINDS  # reported once, with the ``first`` rank
        if lack.kind in question.lacks and is_counted(lack, part) and (first or not about_run):
            rank = None if about_run else part.has.rank
            rows.append(_row(rank, question, state_of(lack), lack.sentence, lack.share))
    answer = question.answer(part)
    if answer and not (rows and answer[0] == OK):
        rows.append(_row(part.has.rank, question, *answer))
    return rows


def _row(
    rank: int | None, question: Question, state: State, sentence: str, share: float | None = None
) -> Row:
    return Row(
        rank=rank,
        question=question.name,
        state=state,
        sentence=sentence,
        share=share,
    )

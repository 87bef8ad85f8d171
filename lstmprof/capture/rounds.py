"""Captures in rounds: fresh workers in turn, each run written as soon as its last round is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof import formats
from lstmprof.capture.request import CaptureRequest, check, run_name
from lstmprof.capture.supervisor import CaptureResult, capture
from lstmprof.errors import LstmprofError, UsageError
from lstmprof.events.annotate import CAPTURED, annotated
from lstmprof.runs.directory import check_name, new_run, staging
from lstmprof.runs.ingest import described
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, Run, open_run, write_tables

Progress = Callable[[str], None]


def capture_run(
    request: CaptureRequest,
    out: Path,
    *,
    name: str | None = None,
    rounds: int = 1,
    force: bool = False,
    progress: Progress = lambda line: None,
) -> Run:
    """Run, time and profile one implementation; the run appears in ``out`` whole or not at all.

    Raises:
        UsageError: the request cannot be meant.
        CaptureError: the worker died, hung or refused; no run is left.
        RunError: the run is there already and ``force`` is not given.
    """
    name = name or run_name(request)
    results = capture_rounds({name: request}, out, rounds=rounds, force=force, progress=progress)
    result = results[name]
    if isinstance(result, LstmprofError):
        raise result
    return result


def capture_rounds(
    requests: Mapping[str, CaptureRequest],
    out: Path,
    *,
    rounds: int = 1,
    force: bool = False,
    progress: Progress = lambda line: None,
) -> dict[str, Run | LstmprofError]:
    """Capture several requests in turn, ``rounds`` times; run name -> its run or why there is none.

    Each round is a fresh worker with its share of the iterations; every other round goes backwards.
    The profile is taken in the first. A run appears when its last round is done.
    """
    outcomes: dict[str, list[CaptureResult] | LstmprofError]
    outcomes = {name: _refused(name, r, out, force) or [] for name, r in requests.items()}
    if all(isinstance(outcome, LstmprofError) for outcome in outcomes.values()):
        return {name: e for name, e in outcomes.items() if isinstance(e, LstmprofError)}
    with staging(out) as place:
        for number in range(rounds):
            names = list(requests) if number % 2 == 0 else list(requests)[::-1]
            for name in names:
                earlier = outcomes[name]
                if isinstance(earlier, LstmprofError):
                    continue
                try:
                    request = _share(requests[name], rounds, number)
                    say = _labelled(progress, request, rounds, number)
                    result = capture(request, place / f"{name}-{number}", say)
                    outcomes[name] = [*earlier, result]
                except LstmprofError as error:
                    outcomes[name] = error
        return {name: _outcome(name, outcome, out, force) for name, outcome in outcomes.items()}


def _refused(name: str, request: CaptureRequest, out: Path, force: bool) -> LstmprofError | None:
    """Why a capture cannot even begin."""
    try:
        check(request)
        check_name(out, name, force=force)
    except LstmprofError as error:
        return error
    return None


def _share(request: CaptureRequest, rounds: int, number: int) -> CaptureRequest:
    """``request`` with a round's share of the iterations; only the first round is profiled.

    Raises:
        UsageError: there are fewer iterations than rounds.
    """
    if request.iterations < rounds:
        raise UsageError(
            f"{request.iterations} iterations cannot be shared among {rounds} rounds",
            "give more --iterations or fewer --rounds",
        )
    if request.profile_steps < 1:
        raise UsageError("a run needs at least 1 profiled step", "give more --profile-steps")
    share = request.iterations // rounds + (number < request.iterations % rounds)
    steps = request.profile_steps if number == 0 else 0
    return dataclasses.replace(request, iterations=share, profile_steps=steps)


def _labelled(progress: Progress, request: CaptureRequest, rounds: int, number: int) -> Progress:
    of_round = f", round {number + 1} of {rounds}" if rounds > 1 else ""
    return lambda line: progress(f"{request.implementation}{of_round}: {line}")


def _outcome(
    name: str, results: list[CaptureResult] | LstmprofError, out: Path, force: bool
) -> Run | LstmprofError:
    if isinstance(results, LstmprofError):
        return results
    try:
        return write_captured(name, results, out, force=force)
    except LstmprofError as error:
        return error


def write_captured(
    name: str, rounds: Sequence[CaptureResult], out: Path, *, force: bool = False
) -> Run:
    """The run of these rounds: profile and metadata of the first, timings of all.

    The profile is moved into the run.

    Raises:
        ProfileError: the profile cannot be read.
        RunError: the run is there already and ``force`` is not given.
    """
    first = rounds[0]
    profile = formats.read(first.profiles[0])
    events = annotated(profile.events, captured=True)
    timings = _timings(rounds)
    facts = {**first.metadata, **described(name, profile, events), "source": CAPTURED}
    info = run_info({**facts, **_of_all_rounds(rounds), **_sums(timings)})
    with new_run(out, name, force=force) as folder:
        (folder / "profile").mkdir()
        for path in first.profiles:
            path.rename(folder / "profile" / path.name)
        write_tables(folder, info, events, timings)
    return open_run(out / name)


def _of_all_rounds(rounds: Sequence[CaptureResult]) -> dict[str, Any]:
    """What run.json says round by round."""
    return {
        "rounds": [r.metadata["started_at"] for r in rounds],
        "profiled_rounds": [0] * len(rounds[0].metadata["profiled_wall_ns"]),
        "yardsticks": [yardstick for r in rounds for yardstick in r.metadata["yardsticks"]],
    }


#: Sums over the counted iterations: the field of run.json, and the column of timings.parquet.
SUMS = {
    "timing_wall_ns": "wall_ns",
    "timing_cpu_ns": "cpu_ns",
    "timing_voluntary_switches": "voluntary_switches",
    "timing_preemptions": "preemptions",
    "timing_page_faults": "minor_faults",
    "timing_major_faults": "major_faults",
}


def _sums(timings: pa.Table) -> dict[str, int | None]:
    """What run.json says of the counted iterations of all rounds; None where one is unknown."""
    counted = timings.filter(pc.invert(timings.column("warmup")))
    sums = {
        field: pc.sum(counted.column(column), skip_nulls=False).as_py()
        for field, column in SUMS.items()
    }
    return {"iterations": counted.num_rows, **sums}


def _timings(rounds: Sequence[CaptureResult]) -> pa.Table:
    """The rows of all rounds, numbered on."""
    tables = []
    for number, result in enumerate(rounds):
        columns = {**result.timings, "round": [number] * len(result.timings["iteration"])}
        tables.append(pa.table({n: columns[n] for n in TIMINGS_SCHEMA.names}))
    whole = pa.concat_tables([table.cast(TIMINGS_SCHEMA) for table in tables])
    iteration = pa.array(range(whole.num_rows), pa.int64())
    place = TIMINGS_SCHEMA.get_field_index("iteration")
    return whole.set_column(place, TIMINGS_SCHEMA.field("iteration"), iteration)

"""Write a run to disk from the results of its worker processes.

``python -m lstmprof.capture.captured_run FOLDER`` writes the run that ``lp.profile`` or
``lstmprof run`` measured.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof import formats
from lstmprof.base.errors import CaptureError, LstmprofError
from lstmprof.capture.op_inputs import with_inputs
from lstmprof.capture.request import RESULT, CaptureResult
from lstmprof.capture.worker.profiling import compressed
from lstmprof.events import Profile
from lstmprof.events.annotate import CAPTURED, OWN_CODE, annotated
from lstmprof.events.annotate.sampled_stacks import WAITING, part_of_stack, within_step
from lstmprof.events.annotate.steps import windows, with_steps
from lstmprof.events.processes import Process, joined
from lstmprof.formats import sources
from lstmprof.formats.stacks import read_stacks
from lstmprof.runs.directory import new_run
from lstmprof.runs.ingest import described
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import SAMPLES_SCHEMA, TIMINGS_SCHEMA, Run, open_run, write_tables

PER_STEP = (
    *("profiled_wall_ns", "profiled_cpu_ns", "profiled_voluntary_switches"),
    *("profiled_preemptions", "profiled_page_faults", "profiled_major_faults"),
)
#: Entries of run.json that must be equal in all rounds.
ALIKE = ("versions", "python_executable", "device", "device_name", "threads", "settings")
#: Entry that may differ between rounds: whether the framework's ops flushed denormals.
NOT_ALIKE = "settings.framework_denormals"
#: Entry of run.json -> column of timings.parquet to sum for the entry, without warm-up.
SUMS = {
    "timing_wall_ns": "wall_ns",
    "timing_cpu_ns": "cpu_ns",
    "timing_voluntary_switches": "voluntary_switches",
    "timing_preemptions": "preemptions",
    "timing_page_faults": "minor_faults",
    "timing_major_faults": "major_faults",
}


def write_captured(
    name: str,
    rounds: Sequence[CaptureResult],
    out: Path,
    *,
    force: bool = False,
    source: str = CAPTURED,
    ranks: Sequence[int] = (),
) -> Run:
    """Write a run from the results of its rounds, or of a job's ranks."""
    refuse_unless_alike(rounds)
    profile = (
        _profile_of_ranks(rounds, ranks)
        if ranks
        else _profile(rounds, own_scopes=source == CAPTURED)
    )
    names = [f"rank-{n}" for n in ranks] or [f"round-{n}" for n in range(len(rounds))]
    profiles = list(zip(names, rounds, strict=True))
    # take timings, samples and facts from a job's first rank
    rounds = rounds[:1] if ranks else rounds
    timings, samples = _timings(rounds), samples_of(rounds)
    description = {**described(name, profile, profile.events), "source": source}
    facts = {**description, **rounds[0].metadata}
    sampling = {"sampling": sampling_facts(rounds, samples)}
    info = run_info({**facts, **_joined_facts(rounds), **_sums(timings), **sampling})
    with new_run(out, name, force=force) as folder:
        (folder / "profile").mkdir()
        for process, result in profiles:
            for path in (*result.profiles, *([result.samples] if result.samples else ())):
                _link(path, folder / "profile" / f"{process}-{path.name}")
        write_tables(folder, info, profile.events, timings, samples, profile.counters)
    return open_run(out / name)


def refuse_unless_alike(rounds: Sequence[CaptureResult]) -> None:
    first, *others = (dict(_facts({n: r.metadata.get(n) for n in ALIKE})) for r in rounds)
    for number, facts in enumerate(others, 2):
        for name in sorted({*first, *facts} - {NOT_ALIKE}):
            if first.get(name) != facts.get(name):
                raise CaptureError(
                    f"rounds differ: {name} is {first.get(name)} in round 1 and "
                    f"{facts.get(name)} in "
                    f"round {number}",
                    "repeat the capture",
                )


def _facts(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten a mapping: ``{"versions": {"torch": "2.8"}}`` -> ``versions.torch``."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _profile(rounds: Sequence[CaptureResult], *, own_scopes: bool) -> Profile:
    processes = []
    for result in rounds:
        profile = _read(result)
        events = with_inputs(annotated(profile.events, captured=own_scopes), result.shapes)
        processes.append(Process(replace(profile, events=events), result.pid))
    whole = joined(processes)
    events = with_steps(whole.events, windows(whole.events, captured=True))
    return replace(whole, events=events)


def _profile_of_ranks(processes: Sequence[CaptureResult], ranks: Sequence[int]) -> Profile:
    whole = sources.join_ranks(ranks, [_read(result) for result in processes])
    events = annotated(whole.events, captured=False)
    for rank, result in zip(ranks, processes, strict=True):
        events = with_inputs(events, result.shapes, rank)
    return replace(whole, events=with_steps(events, windows(events, captured=True)))


def _read(result: CaptureResult) -> Profile:
    profile = formats.read(result.profiles[0])
    events = profile.events
    # find a last step without wall time, which the end of the profile cuts off
    cut = windows(events, captured=True)[len(result.metadata["profiled_wall_ns"]) :]
    if not cut or cut[0].step is None:
        return profile
    kinds = np.array(events.column("kind").to_pylist(), dtype=object)
    kinds[events.is_kind("step") & (events.start_ns >= cut[0].start_ns)] = "range"
    return replace(profile, events=events.with_columns({"kind": pa.array(kinds, pa.string())}))


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # for example, the run is on another disk
        shutil.copyfile(source, place)


def _joined_facts(rounds: Sequence[CaptureResult]) -> dict[str, Any]:
    all_metadata = [result.metadata for result in rounds]
    counts = [len(metadata["profiled_wall_ns"]) for metadata in all_metadata]
    memory = [m for of in all_metadata if (m := of.get("peak_memory_bytes")) is not None]
    threads = [
        {**thread, "round": number}
        for number, metadata in enumerate(all_metadata)
        for thread in metadata.get("timing_threads") or ()
    ]
    return {
        "rounds": [metadata["started_at"] for metadata in all_metadata],
        "ended_at": max(metadata["ended_at"] for metadata in all_metadata),
        "profiled_rounds": [number for number, count in enumerate(counts) for _ in range(count)],
        **{name: _joined_lists(all_metadata, counts, name) for name in PER_STEP},
        "turn_with": _in_every_round(all_metadata, "turn_with"),
        "timing_threads": threads or None,
        "recording": [cost for of in all_metadata for cost in of.get("recording") or ()] or None,
        "peak_memory_bytes": max(memory, default=None),
        "counters": _counters([metadata.get("counters", {}) for metadata in all_metadata]),
    }


def _in_every_round(all_metadata: Sequence[Mapping[str, Any]], name: str) -> list[str] | None:
    first, *others = (metadata.get(name) or () for metadata in all_metadata)
    return [value for value in first if all(value in other for other in others)] or None


def _counters(of_rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum each CPU counter (instructions, cycles …) that every round recorded."""
    first = of_rounds[0]
    names = [name for name in first if all(isinstance(of.get(name), int) for of in of_rounds)]
    sums = {name: sum(counts[name] for counts in of_rounds) for name in names}
    return {**sums, "reason": first.get("reason")}


def _joined_lists(
    all_metadata: Sequence[Mapping[str, Any]], counts: Sequence[int], name: str
) -> list[int] | None:
    """Join the rounds' lists ``name``, or return None if a profiled step has no value."""
    lists = [metadata.get(name) for metadata in all_metadata]
    whole = all(
        of is not None and None not in of and len(of) == count
        for of, count in zip(lists, counts, strict=True)
    )
    return [value for of in lists for value in of or ()] if whole else None


def _sums(timings: pa.Table) -> dict[str, int | None]:
    counted = timings.filter(pc.invert(timings.column("warmup")))
    sums = {
        field: pc.sum(counted.column(column), skip_nulls=False).as_py()
        for field, column in SUMS.items()
    }
    return {"iterations": counted.num_rows, **sums}


def _timings(rounds: Sequence[CaptureResult]) -> pa.Table:
    """Join the timings of all rounds, numbering the iterations consecutively."""
    tables = []
    for number, result in enumerate(rounds):
        columns = {**result.timings, "round": [number] * len(result.timings["iteration"])}
        tables.append(pa.table({n: columns[n] for n in TIMINGS_SCHEMA.names}))
    whole = pa.concat_tables([table.cast(TIMINGS_SCHEMA) for table in tables])
    iteration = pa.array(range(whole.num_rows), pa.int64())
    place = TIMINGS_SCHEMA.get_field_index("iteration")
    return whole.set_column(place, TIMINGS_SCHEMA.field("iteration"), iteration)


def samples_of(rounds: Sequence[CaptureResult]) -> pa.Table | None:
    sampled = [(number, r) for number, r in enumerate(rounds) if r.samples is not None]
    rows = [row for number, result in sampled for row in _rows(number, result)]
    return pa.Table.from_pylist(rows, schema=SAMPLES_SCHEMA) if sampled else None


def _rows(number: int, result: CaptureResult) -> list[dict[str, Any]]:
    """Return one row per call stack sampled in one round."""
    assert result.samples is not None
    framework = str(result.metadata["framework"])
    rows = []
    for stack in read_stacks(result.samples):
        frames = within_step(stack.frames)
        if frames is None or not frames:
            continue
        stack_part = part_of_stack(frames, framework)
        rows.append(
            {
                "round": number,
                "thread": stack.thread,
                "part": stack_part.part,
                "rule": stack_part.rule,
                "line": stack_part.line,
                "count": stack.count,
                "frames": list(frames),
            }
        )
    return rows


def sampling_facts(
    rounds: Sequence[CaptureResult], samples: pa.Table | None
) -> list[dict[str, Any]] | None:
    passes = [result.metadata.get("sampling") for result in rounds]
    if not any(passes):
        return None
    counts: dict[int, int] = {}
    for row in samples.select(["round", "part", "count"]).to_pylist() if samples else ():
        if row["part"] != WAITING:
            counts[row["round"]] = counts.get(row["round"], 0) + row["count"]
    return [
        {**(facts or {}), "samples": counts.get(number, 0) if samples else None}
        for number, facts in enumerate(passes)
    ]


def written(folder: Path) -> Run:
    """Write the run of a finished ``lp.profile``; each rank of a job has a subfolder."""
    folders = [path.parent for path in folder.glob(f"rank-*/{RESULT}")] or [folder]
    measured = {}
    for part in folders:
        result = json.loads((part / RESULT).read_text(encoding="utf-8"))
        files = [part / name for name in result["profiles"]]
        measured[int(result.get("rank", 0))] = CaptureResult(
            result["metadata"],
            result["timings"],
            tuple(f if f.suffix == ".gz" else Path(compressed(str(f), f"{f}.gz")) for f in files),
            result["pid"],
            shapes=part / result["shapes"] if result["shapes"] else None,
        )
    place, ranks = Path(result["place"]), sorted(measured)
    return write_captured(
        place.name,
        [measured[rank] for rank in ranks],
        place.parent,
        force=bool(result["force"]),
        source=OWN_CODE,
        ranks=ranks if len(ranks) > 1 else (),
    )


if __name__ == "__main__":
    try:
        written(Path(sys.argv[1]))
    except LstmprofError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)

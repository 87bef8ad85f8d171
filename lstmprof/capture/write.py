"""What the workers brought back, written as a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from lstmprof import formats
from lstmprof.capture.supervisor import CaptureResult
from lstmprof.events.annotate import CAPTURED, annotated
from lstmprof.runs import run as store
from lstmprof.runs.run import Run
from lstmprof.runs.tasks import described


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
    metadata = {"source": CAPTURED, **first.metadata, **described(name, profile, events)}
    metadata["rounds"] = [r.metadata["started_at"] for r in rounds]
    with store.new_run(out, name, force=force) as folder:
        (folder / "profile").mkdir()
        for path in first.profiles:
            path.rename(folder / "profile" / path.name)
        store.write_tables(folder, metadata, events, _timings(rounds))
    return store.open_run(out / name)


def _timings(rounds: Sequence[CaptureResult]) -> pa.Table:
    """The rows of all rounds, numbered on."""
    tables = []
    for number, made in enumerate(rounds):
        columns = {**made.timings, "round": [number] * len(made.timings["iteration"])}
        tables.append(pa.table({n: columns[n] for n in store.TIMINGS_SCHEMA.names}))
    whole = pa.concat_tables([table.cast(store.TIMINGS_SCHEMA) for table in tables])
    iteration = pa.array(range(whole.num_rows), pa.int64())
    place = store.TIMINGS_SCHEMA.get_field_index("iteration")
    return whole.set_column(place, store.TIMINGS_SCHEMA.field("iteration"), iteration)

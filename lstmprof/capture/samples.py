"""The samples of a capture's rounds: stacks, each sorted into the ledger's parts.

Only steps count: what the worker does between them is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lstmprof.capture.supervisor import CaptureResult
from lstmprof.events.annotate.sampled_stacks import WAITING, place_of, within_step
from lstmprof.formats.stacks import read_stacks
from lstmprof.runs.run import SAMPLES_SCHEMA


def samples_of(rounds: Sequence[CaptureResult]) -> pa.Table | None:
    """The rows of samples.parquet; None where no round was sampled.

    Raises:
        ProfileError: the file of a sampler cannot be read.
    """
    sampled = [(number, r) for number, r in enumerate(rounds) if r.samples is not None]
    rows = [row for number, result in sampled for row in _rows(number, result)]
    return pa.Table.from_pylist(rows, schema=SAMPLES_SCHEMA) if sampled else None


def _rows(number: int, result: CaptureResult) -> list[dict[str, Any]]:
    assert result.samples is not None
    framework = str(result.metadata["framework"])
    rows = []
    for stack in read_stacks(result.samples):
        frames = within_step(stack.frames)
        if frames is None or not frames:
            continue
        place = place_of(frames, framework)
        rows.append(
            {
                "round": number,
                "thread": stack.thread,
                "part": place.part,
                "rule": place.rule,
                "line": place.line,
                "count": stack.count,
                "frames": list(frames),
            }
        )
    return rows


def sampling_facts(
    rounds: Sequence[CaptureResult], samples: pa.Table | None
) -> list[dict[str, Any]] | None:
    """What run.json says of the sampled pass of each round; None where none was asked for."""
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

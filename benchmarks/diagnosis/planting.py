"""The worker of ``planted.py``: one process an implementation, both variants of a case in turn.

Reads ``cases.json`` in the folder given: ``[{"name", "causes": [[cause, share], …]}, …]``, where a
share is of the clean step. Writes beside it, for each case, ``<case>.json``: the wall times of
every variant (clean, each cause alone, all of them), one raw profile (the steps of clean and of all
in turn) with the preemptions of each of its steps, and the count planted of each cause. Steps
alternate because the machine is shared: what disturbs it, disturbs all variants. Of the timed steps
those in which the operating system took the CPU away are left out, as of the profile. A case that
fails has no file; the log says why.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lstmprof import implementations
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import host, metadata, profiling, timing
from lstmprof.capture.worker.profiling import Profiled
from lstmprof.workloads import Workload

WORKLOAD = Workload("planted", 1, 64, False, 32, 20, 64, 10, "ce")
#: Steps of each variant.
WARMUP, TIMED, PROFILED = 30, 120, 14
#: Of the profiled steps of a variant so many must have kept their CPU; else all are taken again.
LEAST_KEPT, TAKES = 5, 3
#: And so many of the timed ones.
LEAST_TIMED = 20
#: Framework → the module with its causes and its planted trainer.
PLANTS = {"torch": "plants", "tensorflow": "plants_tensorflow", "jax": "plants_jax"}

RANGES = profiling.nvtx_ranges() or profiling.no_ranges
Variants = Mapping[str, Sequence[Any]]


def main(implementation: str, folder: Path) -> None:
    """Capture every case of ``folder`` with one trainer."""
    allowed = host.allowed_cpus()
    cpus = host.take_cpus(1)
    host.flush_denormals()
    request = CaptureRequest(implementation, WORKLOAD, "cpu", iterations=TIMED, threads=1)
    plants = importlib.import_module(PLANTS[implementations.find(implementation).framework])
    plants.set_threads(1)
    trainer = plants.PlantedTrainer(request, "cpu")
    for _ in range(WARMUP):
        trainer.step(RANGES)
    trainer.warm()
    for case in json.loads((folder / "cases.json").read_text()):
        cpus = host.idlest(allowed, 1)
        move_threads(cpus)
        try:
            made = captured(trainer, request, case, folder)
        except Exception:
            traceback.print_exc()
            continue
        made["metadata"] |= metadata.worker_facts(trainer, cpus)
        (folder / f"{case['name']}.json").write_text(json.dumps(made))


def move_threads(cpus: Sequence[int]) -> None:
    """Keep all threads of this process to ``cpus``."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), cpus)


def captured(
    trainer: Any, request: CaptureRequest, case: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Timings of all variants, and one profile of two of them."""
    clean_ns = statistics.median(row.wall_ns for row in timed(trainer, {"clean": ()})["clean"])
    planted = [trainer.planted(name, share * clean_ns) for name, share in case["causes"]]
    both: Variants = {"clean": (), "all": planted}
    alone: Variants = {plant.name: [plant] for plant in planted} if len(planted) > 1 else {}
    rows = timed(trainer, {**both, **alone})
    profiled, preempted = profiled_in_turn(trainer, both, folder / case["name"])
    return {
        "counts": {plant.name: plant.count for plant in planted},
        "timings": {name: timing.columns(found) for name, found in rows.items()},
        "profile": profiled.files[0],
        "preempted": preempted,
        "profiled_wall_ns": profiled.walls_ns,
        # the same in both runs: one process times them in turn
        "metadata": {**metadata.request_facts(request), "started_at": metadata.now()},
    }


def timed(trainer: Any, variants: Variants) -> dict[str, list[timing.Iteration]]:
    """Rows of each variant, one step of each in turn."""
    trainer.take_turns(list(variants.values()))
    step = functools.partial(trainer.step, RANGES)
    loop = timing.Loop(step, trainer.loss, trainer.device_ns)
    with timing.collector_frozen():
        rows = timing.timed(loop, 0, TIMED * len(variants), print, time.perf_counter_ns)
    found = list(zip(rows, trainer.preempted, strict=True))
    return {name: undisturbed(found[i :: len(variants)]) for i, name in enumerate(variants)}


def undisturbed(
    found: Sequence[tuple[timing.Iteration, int]],
) -> list[timing.Iteration]:
    """The rows whose step kept its CPU; the ``LEAST_TIMED`` least preempted where they are few."""
    by_preemptions = sorted(range(len(found)), key=lambda i: found[i][1])
    whole = sum(not preempted for _, preempted in found)
    return [found[i][0] for i in sorted(by_preemptions[: max(whole, LEAST_TIMED)])]


def profiled_in_turn(trainer: Any, variants: Variants, folder: Path) -> tuple[Profiled, list[int]]:
    """One profile of all ``variants``, one step of each in turn; preemptions of each step."""
    for number in range(TAKES):
        place = folder / str(number)
        place.mkdir(parents=True, exist_ok=True)
        trainer.take_turns(list(variants.values()))
        with timing.collector_frozen():
            profiled: Profiled = trainer.profile(RANGES, PROFILED * len(variants), str(place))
        preempted = trainer.preempted
        kept = [preempted[i :: len(variants)].count(0) for i in range(len(variants))]
        if min(kept) >= LEAST_KEPT:
            break
    return profiled, preempted


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""Captures in Python: ``lp.capture`` measures one implementation, ``lp.recommend`` all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from lstmprof import workloads
from lstmprof.api.runs import Run, Target, read
from lstmprof.api.wording import in_python, with_arguments
from lstmprof.capture.implementation_file import implementation_file, is_file
from lstmprof.capture.interpreters import Wish
from lstmprof.capture.plan import chosen, make_ready, plan
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.rounds import capture_run
from lstmprof.diagnose.recommend import Recommendation
from lstmprof.diagnose.recommend.sweep import Limits, candidates, recommended
from lstmprof.diagnose.shapes import request_of, shape_of
from lstmprof.errors import unknown_name
from lstmprof.runs.directory import cache_folder, written_to
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import named

Progress = Callable[[str], None]

#: Fields of ``CaptureRequest`` that are arguments of their own, or not the user's to set.
_OWN_ARGUMENTS = {"implementation", "workload", "file", "turn_with", "cpus"}


def _quiet(line: str) -> None:
    """Ignore a line of progress."""


@in_python
def capture(
    implementation: str,
    workload: str | Workload,
    *,
    out: Target = "traces",
    name: str | None = None,
    rounds: int | None = None,
    force: bool = False,
    packages: Collection[str] = (),
    era: str | None = None,
    progress: Progress = _quiet,
    **options: Any,
) -> Run:
    """Time and profile one implementation in separate processes, and return the run.

    If a capture is interrupted, the same call continues it and keeps the finished rounds.

    Args:
        implementation: a name from ``lstmprof list``, or your own file: ``"mymodel.py:build"``.
        workload: a name from ``lstmprof list workloads``, or a ``Workload``.
        out: folder in which the run's folder is created.
        name: name of the run; by default ``implementation--workload--precision``, plus the options
            that differ from their defaults.
        rounds: number of processes, which run one after another and share the iterations; by
            default 3.
        force: replace a run of the same name.
        packages: packages to install into an environment for the processes, such as
            ``["torch==2.4.1"]``; their dependencies are installed, too.
        era: name of a tested set of old packages (``lstmprof list eras``), such as
            ``"torch-1.4.0"``.
        progress: function that is called with each line of progress.
        options: fields of ``CaptureRequest`` (``precision="amp-fp16"``, ``iterations=50`` …) and of
            ``Workload`` (``time_steps=20``, ``batch=32`` …).

    Raises:
        UsageError: a name or an option is not valid, or the implementation does not support it.
        CaptureError: a process failed, hung, ran out of memory or does not support the workload; no
            run is written.
        RunError: the run exists and ``force`` is False.
    """
    network = named(workload) if isinstance(workload, str) else workload
    fields = {f.name for f in dataclasses.fields(CaptureRequest)} - _OWN_ARGUMENTS
    sizes = {f.name for f in dataclasses.fields(Workload)} - {"name"}
    for option in options:
        if option not in fields | sizes:
            raise unknown_name("option", option, sorted(fields | sizes))
    changed = {key: value for key, value in options.items() if key in sizes}
    asked = {key: value for key, value in options.items() if key not in sizes}
    wish = Wish(asked.pop("python", None), tuple(packages), era)
    network = workloads.with_overrides(network, **changed) if changed else network
    if is_file(implementation):
        asked["file"] = implementation_file(implementation)
        implementation = asked["file"].name
    request = CaptureRequest(implementation, network, **asked)
    place = Path(out)
    files = {implementation: request.file}
    (planned,) = plan(files, [network], [request.precision], request, place, wish)
    make_ready(planned, place / (name or planned.name), force=force, progress=progress)
    return Run(
        capture_run(
            planned.request, place, name=name, rounds=rounds, force=force, progress=progress
        )
    )


@in_python
def recommend(
    like: Run | Target | None = None,
    *,
    implementations: str | Collection[str] = ("*",),
    device: str | None = None,
    precision: str | None = None,
    mode: str | None = None,
    threads: int | None = None,
    quick: bool = False,
    minutes: float | None = None,
    out: Target | None = None,
    force: bool = False,
    progress: Progress = _quiet,
    **sizes: Any,
) -> Recommendation:
    """Measure implementations of a network on this machine, and rank them by speed.

    Describe the network by ``like`` or by sizes. Every implementation is timed in one
    process (a round); the fastest then run for three more rounds. Measured runs are kept: a
    repeated call does not measure again.

    Args:
        like: a run or its path; its network, device, precision and mode are used.
        implementations: names or patterns from ``lstmprof list``, or your own files.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        precision: ``"fp32"``, ``"tf32"``, ``"amp-fp16"`` or ``"amp-bf16"``.
        mode: ``"train"`` or ``"forward"``.
        threads: number of CPU threads.
        quick: stop after the first round.
        minutes: no measurement starts after this time; one that is running finishes.
        out: folder for the runs; by default a folder in lstmprof's cache.
        force: measure again even if the runs exist.
        progress: function that is called with each line of progress.
        sizes: fields of ``Workload``: ``hidden=512``, ``batch=32``, ``time_steps=100`` …; fields
            that are not given have the values of the workload 1x320-ce-short (one layer of 320
            units).

    Raises:
        UsageError: no network is described, both ``like`` and sizes are given, a name is not valid,
            or no implementation runs on this machine.
        RunError: no implementation could be measured.
    """
    for size in sizes:
        if size not in workloads.OVERRIDABLE:
            raise unknown_name("size", size, workloads.OVERRIDABLE)
    shape = None
    if like is not None:
        run = like if isinstance(like, Run) else read(like)
        shape = shape_of(run.breakdown)
    conditions = {"device": device, "precision": precision, "mode": mode, "threads": threads}
    request = request_of(shape, sizes, conditions, progress)
    place = written_to(cache_folder()) / "recommend" if out is None else Path(out)
    patterns = (implementations,) if isinstance(implementations, str) else tuple(implementations)
    found = candidates(chosen(patterns), request, place)
    progress(with_arguments(found.words(quick)))
    return recommended(
        found,
        request.workload,
        place,
        Limits(quick, None if minutes is None else 60 * minutes),
        framework=None if shape is None else shape.framework,
        force=force,
        progress=progress,
    )

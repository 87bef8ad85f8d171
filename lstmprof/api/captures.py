"""Captures in Python: ``lp.capture`` measures one implementation, ``lp.recommend`` several."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from lstmprof import workloads
from lstmprof.api.runs import Run, Target, read
from lstmprof.api.wording import in_python, with_arguments
from lstmprof.base.errors import unknown_name
from lstmprof.capture.harness.plan import chosen, make_ready, plan
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.implementation_file import implementation_file, is_file
from lstmprof.capture.interpreters import Wish
from lstmprof.capture.request import CaptureRequest
from lstmprof.diagnose.recommend import Recommendation
from lstmprof.diagnose.recommend.shapes import request_of, shape_of
from lstmprof.diagnose.recommend.sweep import Limits, candidates, recommended
from lstmprof.runs.directory import cache_folder, usable_cache
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import named

Progress = Callable[[str], None]

#: Fields of ``CaptureRequest`` that ``capture`` does not accept in its ``options``.
_OWN_ARGUMENTS = {"implementation", "workload", "file", "turn_with", "cpus"}


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
    progress: Progress = lambda line: None,
    **options: Any,
) -> Run:
    """Time and profile one LSTM implementation in new processes, and return the run.

    If a capture is interrupted, repeat the call: it continues after the last finished process.

    Args:
        implementation: a name from ``lstmprof list``, or your own file: ``"mymodel.py:build"``.
        workload: a name from ``lstmprof list workloads``, or a ``Workload``.
        out: folder in which the run's folder is created.
        name: name of the run; by default ``implementation--workload--precision``, plus the options
            that differ from their defaults.
        rounds: number of processes, which run one after another; by default 3.
        force: replace the run if a run with this name exists.
        packages: packages to use, such as ``["torch==2.4.1"]``; lstmprof installs them into a
            separate environment.
        era: name of an environment with an old framework, such as ``"torch-1.4.0"``; ``lstmprof
            list eras`` lists the names.
        progress: function that is called with each line of progress.
        options: settings of the capture (``precision="amp-fp16"``, ``iterations=50`` …) and sizes
            of the workload (``time_steps=20``, ``batch=32`` …).

    Raises:
        UsageError: a name or an option is not valid, or the implementation does not support an
            option.
        CaptureError: the implementation failed, hung, ran out of memory or cannot run here.
        RunError: a run with this name exists and ``force`` is False.
    """
    network = named(workload) if isinstance(workload, str) else workload
    fields = {f.name for f in dataclasses.fields(CaptureRequest)} - _OWN_ARGUMENTS
    sizes = {f.name for f in dataclasses.fields(Workload)} - {"name"}
    for option in options:
        if option not in fields | sizes:
            raise unknown_name("option", option, sorted(fields | sizes))
    changed = {key: value for key, value in options.items() if key in sizes}
    request_fields = {key: value for key, value in options.items() if key not in sizes}
    wish = Wish(request_fields.pop("python", None), tuple(packages), era)
    network = workloads.with_overrides(network, **changed) if changed else network
    if is_file(implementation):
        request_fields["file"] = implementation_file(implementation)
        implementation = request_fields["file"].name
    request = CaptureRequest(implementation, network, **request_fields)
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
    progress: Progress = lambda line: None,
    **sizes: Any,
) -> Recommendation:
    """Measure the speed of implementations of one network on this machine, and rank them.

    Give either ``like`` or ``sizes``. lstmprof stores the runs, so a repeated call measures nothing
    again.

    Args:
        like: run, or path of a run, that has the network and settings to measure.
        implementations: names or patterns from ``lstmprof list``, or your own files; by default all
            implementations in ``lstmprof list``.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; by default the device of
            ``like``, or ``"auto"``.
        precision: ``"fp32"``, ``"tf32"``, ``"amp-fp16"`` or ``"amp-bf16"``; by default the
            precision of ``like``, or ``"fp32"``.
        mode: ``"train"`` or ``"forward"``; by default the mode of ``like``, or ``"train"``.
        threads: number of CPU threads. If ``like`` is a capture on a CPU, the default is the number
            of threads of this capture. In all other cases, the default is 1 for measurements on a
            CPU, and the number of CPUs that the process may use for measurements on a GPU.
        quick: time each implementation in one process only. If False (the default), lstmprof also
            times the fastest implementations in three more processes each.
        minutes: number of minutes after which lstmprof starts no new measurement.
        out: folder for the runs; by default a folder in lstmprof's cache.
        force: measure again even if the runs exist.
        progress: function that is called with each line of progress.
        sizes: sizes of the network: ``hidden=512``, ``batch=32``, ``time_steps=100`` …. Sizes that
            you omit are those of the workload ``1x320-ce-short`` (one layer of 320 units).

    Raises:
        UsageError: ``like`` and ``sizes`` are both given or both missing, a name is not valid, or
            no implementation runs on this machine.
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
    place = usable_cache(cache_folder()) / "recommend" if out is None else Path(out)
    patterns = (implementations,) if isinstance(implementations, str) else tuple(implementations)
    found_candidates = candidates(chosen(patterns), request, place)
    progress(with_arguments(found_candidates.words(quick)))
    return recommended(
        found_candidates,
        request.workload,
        place,
        Limits(quick, None if minutes is None else 60 * minutes),
        framework=None if shape is None else shape.framework,
        force=force,
        progress=progress,
    )

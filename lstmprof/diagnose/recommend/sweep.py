"""Time each implementation in one process, then the fastest in several processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.base.numbers import number_of
from lstmprof.base.package import __version__
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.capture.harness import plan
from lstmprof.capture.harness.rounds import MOST_IN_TURNS, captured_runs, span
from lstmprof.capture.implementation_file import ImplementationFile
from lstmprof.capture.interpreters import lacks
from lstmprof.capture.request import ROUNDS, CaptureRequest
from lstmprof.capture.worker.machine import host
from lstmprof.diagnose.recommend import LeftOut, Recommendation, ranked
from lstmprof.implementations import FORMS
from lstmprof.runs.run import Run, is_run, open_run
from lstmprof.workloads import Workload

Progress = Callable[[str], None]

#: Largest step time, in multiples of the fastest, at which an implementation is timed again.
FAR_BEHIND = 2.0
#: Framework → CPU seconds of a process outside its timed steps, measured on two cores of a Xeon.
WORKER_S = {"torch": 7.0, "jax": 8.0, "tensorflow": 11.0}
OTHER_WORKER_S = 15.0  # not measured
#: Seconds of timed steps per process, when timed once and when timed again.
LOOK_S, ROUND_S = 1.0, 2.0
LOOK: Mapping[str, Any] = {
    "iterations": 6,
    "timing_s": LOOK_S,
    "profile_steps": 4,
    "timeout_s": 300.0,
}
FULL: Mapping[str, Any] = {"iterations": 30, "timing_s": ROUND_S, "profile_steps": 4}
FIRST_LOOK, IN_TURNS = "first-look", "in-turns"
TABLES = ("ledger", "collectives")


@dataclass(frozen=True)
class Limits:
    """Limits: stop after one round (``--quick``); start no capture after ``most_s``."""

    quick: bool = False
    most_s: float | None = None


@dataclass(frozen=True)
class Candidates:
    """The captures to make, and the implementations that cannot run here."""

    requests: Mapping[str, CaptureRequest]  # by name of the run
    left_out: tuple[LeftOut, ...]

    def words(self, quick: bool) -> str:
        """Say what lstmprof will measure, and about how long the measurement takes."""
        looks = [_seconds(request, LOOK_S) for request in self.requests.values()]
        whole = sum(looks)
        text = f"timing {number_of(len(looks), 'implementation', 'implementations')} in one round"
        if not quick and len(looks) > 1:
            fastest = sorted(_seconds(r, ROUND_S) for r in self.requests.values())[:MOST_IN_TURNS]
            whole += ROUNDS * statistics.fmean(fastest) * min(len(fastest), 4)
            text += f", then the fastest ones in {ROUNDS} rounds"
        return f"{text}: about {span(whole)}" + ("" if quick else "; --quick stops after one round")


def _seconds(request: CaptureRequest, timed_s: float) -> float:
    return WORKER_S.get(request.row.framework, OTHER_WORKER_S) + timed_s


def candidates(
    chosen: Mapping[str, ImplementationFile | None], common: CaptureRequest, out: Path
) -> Candidates:
    """Find the implementations that can run here."""
    todo: dict[str, CaptureRequest] = {}
    left: list[LeftOut] = []
    named = plan.plan(chosen, [common.workload], [common.precision], common, out / FIRST_LOOK)
    for planned in sorted(named, key=_by_form):
        request, name = planned.request, planned.request.implementation
        reason = None if planned.is_there else planned.skip
        reason = reason or (None if request.file else lacks(request.row))
        if reason:
            left.append(LeftOut(name, reason.removeprefix(f"{name} ")))
        else:
            todo[planned.name] = request
    if not todo:
        why = "; ".join(f"{each.implementation}: {each.reason}" for each in left[:3])
        raise UsageError(f"no implementation can run {common.workload.name} here", why)
    return Candidates(todo, tuple(left))


def _by_form(planned: plan.Planned) -> int:
    """Return a sort key that puts the probably fastest implementations first."""
    row = planned.request.row
    return -FORMS.index(row.form) if row.form in FORMS else -len(FORMS)


def recommended(
    candidates: Candidates,
    workload: Workload,
    out: Path,
    limits: Limits,
    *,
    framework: str | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
) -> Recommendation:
    began_s = time.monotonic()

    def is_over() -> bool:
        return limits.most_s is not None and time.monotonic() - began_s > limits.most_s

    looks, left = _looked_at(candidates.requests, out / FIRST_LOOK, is_over, force, progress)
    finals: dict[str, Breakdown] = {}
    fastest = _fastest(looks)
    if len(fastest) > 1 and not limits.quick and not is_over():
        requests = {name: replace(candidates.requests[name], **FULL) for name in fastest}
        finals = dict(_captured([requests], out / IN_TURNS, ROUNDS, force, progress, left))
    rows = ranked(list(finals.values()), [b for name, b in looks.items() if name not in finals])
    return Recommendation(workload, rows, (*candidates.left_out, *left), framework)


def _looked_at(
    requests: Mapping[str, CaptureRequest],
    out: Path,
    is_over: Callable[[], bool],
    force: bool,
    progress: Progress,
) -> tuple[dict[str, Breakdown], list[LeftOut]]:
    """Time each candidate in one process, until the user's time limit is reached."""
    looks: dict[str, Breakdown] = {}
    left: list[LeftOut] = []
    for name, request in requests.items():
        if looks and is_over():
            left.append(LeftOut(request.implementation, "the time limit (--minutes) was reached"))
            continue
        group = [{name: replace(request, **LOOK)}]
        looks.update(_captured(group, out, 1, force, progress, left))
    return looks, left


def _captured(
    groups: Sequence[Mapping[str, CaptureRequest]],
    out: Path,
    rounds: int,
    force: bool,
    progress: Progress,
    left: list[LeftOut],
) -> Iterator[tuple[str, Breakdown]]:
    """Yield each run's breakdown; append implementations that failed to ``left``."""
    # reuse runs only if the whole group exists, because processes of a group take turns
    is_done = [not force and all(_is_kept(r, out / n) for n, r in g.items()) for g in groups]
    todo = [group for group, is_kept in zip(groups, is_done, strict=True) if not is_kept]
    names = {name: request for group in groups for name, request in group.items()}
    runs: dict[str, Run | LstmprofError] = {
        name: open_run(out / name) for name in names if not any(name in g for g in todo)
    }
    runs.update(captured_runs(todo, out, rounds=rounds, force=True, progress=progress))
    for name, run in runs.items():
        if isinstance(run, LstmprofError):
            progress(f"{names[name].implementation}: {run}")
            left.append(LeftOut(names[name].implementation, str(run)))
        else:
            yield name, break_down(run, None, TABLES)


def _is_kept(request: CaptureRequest, run_path: Path) -> bool:
    """Return whether an existing run makes the requested capture unnecessary."""
    if not is_run(run_path):
        return False
    info = open_run(run_path).info
    digest = None if request.file is None else request.file.sha256
    return (
        (info.lstmprof_version, info.implementation_sha256) == (__version__, digest)
        and (request.threads is None or info.threads == request.threads)
        and info.hardware.cpu_model == host.hardware()["cpu_model"]
    )


def _fastest(looks: Mapping[str, Breakdown]) -> list[str]:
    """Return the names of the runs to time again, the fastest first."""
    lengths = {name: b.timings.step_ns for name, b in looks.items() if b.timings is not None}
    least = min(lengths.values(), default=0.0)
    near = [name for name, length in lengths.items() if length <= FAR_BEHIND * least]
    return sorted(near, key=lambda name: lengths[name])[:MOST_IN_TURNS]

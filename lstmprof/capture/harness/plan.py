"""Plan a sweep: one capture per combination of implementation, workload and precision.

A plan lists the captures to run, and the captures to skip with a reason, such as
"already captured".
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lstmprof import implementations
from lstmprof.base.errors import LstmprofError, UsageError, unknown_name
from lstmprof.capture.harness import rounds as captures
from lstmprof.capture.harness.kept_rounds import KeptRounds
from lstmprof.capture.implementation_file import (
    ImplementationFile,
    implementation_file,
    is_file,
)
from lstmprof.capture.interpreters import Interpreter, Wish, interpreters
from lstmprof.capture.request import CaptureRequest, refusal, run_name
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.runs.run import Run, is_run, open_run
from lstmprof.workloads import Workload

THERE = "already captured"


@dataclasses.dataclass(frozen=True)
class Planned:
    """A capture that a sweep will run or skip."""

    name: str
    request: CaptureRequest
    skip: str | None = None  # why it will not run
    interpreter: Interpreter = dataclasses.field(default_factory=Interpreter)

    @property
    def is_there(self) -> bool:
        return self.skip is not None and self.skip.startswith(THERE)

    @property
    def group(self) -> tuple[str, str]:
        """Return what comparable captures share: workload and precision."""
        return self.request.workload.name, self.request.precision


@dataclasses.dataclass(frozen=True)
class PlanOutcome:
    planned: Planned
    result: Run | LstmprofError


def matching(
    patterns: Sequence[str],
    names: Sequence[str],
    kind: str,
    unknown: Callable[[str], UsageError] | None = None,
) -> list[str]:
    """Return the names that match a pattern such as ``torch-*``."""
    matches: set[str] = set()
    for pattern in patterns:
        meant = set(fnmatch.filter(names, pattern))
        if not meant:
            raise unknown(pattern) if unknown else unknown_name(kind, pattern, names)
        matches |= meant
    return [name for name in names if name in matches]


def implementation_names(patterns: Sequence[str]) -> list[str]:
    """Return the built-in implementations whose name or alias matches a pattern."""
    rows = {name: row.name for name, row in implementations.ROWS.items()}
    unknown = implementations.unknown
    matches = {rows[name] for name in matching(patterns, list(rows), "implementation", unknown)}
    return [row.name for row in implementations.TABLE if row.name in matches]


def chosen(patterns: Sequence[str]) -> dict[str, ImplementationFile | None]:
    """Return {implementation: the user's file, or None if built in}."""
    rows = [pattern for pattern in patterns if not is_file(pattern)]
    choice: dict[str, ImplementationFile | None] = dict.fromkeys(implementation_names(rows))
    for text in patterns:
        if is_file(text):
            file = implementation_file(text)
            if choice.setdefault(file.name, file) != file:
                raise UsageError(
                    f"two files are named {file.name}", "rename one, or capture them separately"
                )
    return choice


def plan(
    names: Sequence[str] | Mapping[str, ImplementationFile | None],
    workloads: Sequence[Workload],
    precisions: Sequence[str],
    common: CaptureRequest,
    out: Path,
    wish: Wish | None = None,
) -> list[Planned]:
    """Return one capture per workload, precision, implementation and interpreter."""
    files = names if isinstance(names, Mapping) else dict.fromkeys(names)
    rows = {
        name: implementations.find(name) if file is None else file.row
        for name, file in files.items()
    }
    ways = {
        name: [Interpreter(common.python)] if wish is None else interpreters(row, wish)
        for name, row in rows.items()
    }
    return [
        _planned(
            dataclasses.replace(
                common,
                implementation=name,
                file=file,
                workload=workload,
                precision=precision,
                python=way.python,
                label=_label(common.label, way.label, both=len(ways[name]) > 1),
            ),
            out,
            way,
        )
        for workload in workloads
        for precision in precisions
        for name, file in files.items()
        for way in ways[name]
    ]


def _label(users: str, interpreters: str, *, both: bool) -> str:
    return f"{users}-{interpreters}" if users and both else users or interpreters


def _planned(request: CaptureRequest, out: Path, way: Interpreter) -> Planned:
    name = run_name(request)
    # resolve the device ``auto`` to the CPU if the driver shows no GPU
    device = "cpu" if request.device == "auto" and not cuda_devices() else request.device
    skip = refusal(dataclasses.replace(request, device=device))
    skip = skip or request.row.lacks(way.version)
    skip = skip or (str(way.fault) if way.fault else _why_skipped(request, out / name))
    return Planned(name, request, skip, way)


def _why_skipped(request: CaptureRequest, place: Path) -> str | None:
    if not is_run(place):
        return None
    if request.file is None or open_run(place).info.implementation_sha256 == request.file.sha256:
        return THERE
    return f"{THERE}, from an older {request.file.file_name}; add --force or a --label"


def run(
    planned: Sequence[Planned],
    out: Path,
    *,
    rounds: int | None = None,
    force: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Iterator[PlanOutcome]:
    """Run the captures of a plan, and yield each outcome."""
    todo = {p.name: p for p in planned if p.skip is None or (force and p.is_there)}
    for entry in planned:
        # discard rounds that remain if a signal killed a capture after writing the run
        if entry.is_there and entry.name not in todo:
            KeptRounds(out, entry.name).discard()
    for name, fault in list(_without_interpreter(todo, progress)):
        yield PlanOutcome(todo.pop(name), fault)
    members: dict[tuple[str, str], dict[str, CaptureRequest]] = {}
    for entry in todo.values():
        members.setdefault(entry.group, {})[entry.name] = entry.request
    groups = list(members.values())
    results = captures.captured_runs(groups, out, rounds=rounds, force=force, progress=progress)
    for name, result in results:
        yield PlanOutcome(todo[name], result)


def make_ready(
    planned: Planned, place: Path, *, force: bool, progress: Callable[[str], None]
) -> None:
    """Create the Python environment of a capture that will run."""
    way = planned.interpreter
    if way.fault:
        raise way.fault
    lacks = planned.request.row.lacks(way.version)
    if lacks:
        raise UsageError(lacks, "choose another version")
    is_meant = planned.skip is None or planned.is_there
    if way.environment and is_meant and (force or not is_run(place)):
        way.environment.made(progress)


def _without_interpreter(
    todo: Mapping[str, Planned], progress: Callable[[str], None]
) -> Iterator[tuple[str, LstmprofError]]:
    """Create Python environments, and yield (capture, error) for each failure."""
    faults: dict[Path, LstmprofError | None] = {}
    for name, planned in todo.items():
        environment = planned.interpreter.environment
        if environment is None:
            continue
        if environment.folder not in faults:
            faults[environment.folder] = None
            try:
                environment.made(progress)
            except LstmprofError as error:
                faults[environment.folder] = error
        fault = faults[environment.folder]
        if fault:
            yield name, fault


def counted(outcomes: Sequence[PlanOutcome]) -> Mapping[str, int]:
    failed = sum(isinstance(o.result, LstmprofError) for o in outcomes)
    return {"captured": len(outcomes) - failed, "failed": failed}

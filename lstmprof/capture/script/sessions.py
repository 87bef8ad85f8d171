"""Create the session that measures a script, once its framework is known."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from lstmprof.capture.own.passes import StepPasses
from lstmprof.capture.own.session import Session, plan_of
from lstmprof.capture.own.watch import Watch
from lstmprof.capture.request import NSYS, ScriptRequest
from lstmprof.capture.script.ranks import Rank
from lstmprof.capture.worker.profilers import NsysProfiler, framework_of, profiler_of


def session_of(
    request: ScriptRequest,
    source: str,
    facts: Dict[str, Any],
    report: Callable[[str], None],
    part: Optional[str] = None,
    rank: Optional[Rank] = None,
) -> Any:
    """Return the session that measures the script, or a ``Watch`` for ``--watch``."""
    seen = None if source == "function" else source.partition(" ")[0]
    framework = request.framework or seen
    if seen is not None:
        facts["mode"] = "train"
    if request.watch:
        chosen = framework_of(framework)
        return Watch(
            request.place,
            framework=chosen,
            quiet=request.quiet,
            writer=request.writer,
            facts=facts,
        )
    options: Dict[str, Any] = {
        "framework": framework,
        "plan": plan_of(request.warmup, request.timed, request.steps),
        "force": request.force,
        "facts": facts,
        "report": report,
        "writer": request.writer,
    }
    if part is not None and rank is not None:
        return _RankSession(part, request, rank, options)
    if request.profiler != NSYS:
        return Session(request.place, **options)
    profiler = NsysProfiler(profiler_of(framework_of(framework)))
    return _ByNsys(request.place, request.folder, profiler=profiler, **options)


class _RankSession(Session):
    """A session that writes the results of one rank to a folder, instead of a run."""

    def __init__(
        self, part: str, request: ScriptRequest, rank: Rank, options: Dict[str, Any]
    ) -> None:
        # count steps instead of time, so that all ranks measure the same steps
        plan = dataclasses.replace(options["plan"], alike=True)
        super().__init__(part, **dict(options, plan=plan, force=True))
        self._request, self._rank = request, rank

    def _written(self, passes: StepPasses) -> None:
        place = str(Path(self._request.place).resolve())
        own = {"rank": self._rank[0], "place": place, "force": self._request.force}
        self._leave_result(passes, passes.folder, **own)
        os.rename(passes.folder, str(self.place))


class _ByNsys(Session):
    """A session that writes results; the launcher writes the run after nsys ends."""

    def __init__(self, place: str, folder: str, **options: Any) -> None:
        super().__init__(place, **options)
        self._folder = folder

    def _written(self, passes: StepPasses) -> None:
        self._leave_result(passes, self._folder)

"""The session of a script, by the framework whose steps were seen first."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict

from lstmprof.capture.own.frameworks import framework_of, profiler_of
from lstmprof.capture.own.passes import Passes
from lstmprof.capture.own.session import Session, plan_of
from lstmprof.capture.request import NSYS, RESULT
from lstmprof.capture.script.request import ScriptRequest
from lstmprof.capture.worker.profilers.nsys import NsysProfiler


def session_of(
    request: ScriptRequest, source: str, facts: Dict[str, Any], report: Callable[[str], None]
) -> Session:
    """A session that is not begun yet.

    Raises:
        UsageError: a number of steps is too small, or no framework or several are imported.
        CaptureError: nsys is to record, and the script's interpreter has no nvtx.
    """
    seen = None if source == "function" else source.partition(" ")[0]
    framework = request.framework or seen
    if seen is not None:
        facts["mode"] = "train"
    options: Dict[str, Any] = {
        "framework": framework,
        "plan": plan_of(request.warmup, request.timed, request.steps),
        "force": request.force,
        "facts": facts,
        "report": report,
        "writer": request.writer,
    }
    if request.profiler != NSYS:
        return Session(request.place, **options)
    profiler = NsysProfiler(profiler_of(framework_of(framework)))
    return _ByNsys(request.place, request.folder, profiler=profiler, **options)


class _ByNsys(Session):
    """A session whose run is written once Nsight Systems has let its recording go."""

    def __init__(self, place: str, folder: str, **options: Any) -> None:
        super().__init__(place, **options)
        self._folder = folder

    def _written(self, passes: Passes) -> None:
        with open(os.path.join(self._folder, RESULT), "w", encoding="utf-8") as file:
            json.dump(self._result(passes), file)

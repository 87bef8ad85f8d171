"""What ``lstmprof run`` passes to the process that runs a script."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any, Dict, List, Optional

from lstmprof.capture.request import FRAMEWORKS_OWN

#: What a script does once its steps are measured.
GO_ON, STOP = "go-on", "stop"
THEN = (GO_ON, STOP)


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """A script, where its run goes, how many steps are let pass, timed and profiled.

    ``target`` is the path of a file, of a ``module`` its name. ``step_function`` is ``name`` of a
    function in the script, or ``module:name``; None has the framework's steps found. ``writer`` is
    the interpreter that writes the run; ``folder`` is for the recording of Nsight Systems.
    ``watch`` times every step until the script ends, and profiles when steps slow down.
    ``parts`` is the folder for the parts of ranks, in the request of a process of a job.
    """

    target: str
    place: str
    arguments: List[str] = dataclasses.field(default_factory=list)
    module: bool = False
    python: str = sys.executable
    warmup: int = 5
    timed: int = 20
    steps: int = 10
    step_function: Optional[str] = None
    framework: Optional[str] = None
    then: str = GO_ON
    profiler: str = FRAMEWORKS_OWN
    force: bool = False
    quiet: bool = False
    watch: bool = False
    parts: str = ""
    compare_with: Optional[str] = None
    writer: str = sys.executable
    folder: str = ""
    facts: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Return the request as ``from_json`` reads it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ScriptRequest:
        """Return the request in ``text``."""
        return cls(**json.loads(text))

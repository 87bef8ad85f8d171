"""Change the implementation that a worker captures to the program that the request's label names.

Python imports this file at the start of a process if its folder is on PYTHONPATH, before the worker
imports anything. So an unchanged ``lstmprof capture`` captures a changed program.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

WORKER = "lstmprof.capture.worker"
#: Folder of implementations → the module with the programs for this framework.
PROGRAMS = {"torch": "torch_programs", "tensorflow": "tensorflow_programs", "jax": "jax_programs"}
_PREFIX = "lstmprof.implementations."


class _Rebuilt(importlib.abc.MetaPathFinder):
    """An import hook that changes an implementation after its file is imported."""

    def __init__(self, label: str) -> None:
        self.label = label

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the usual spec of an implementation's module, with a change after its import."""
        framework, _, file = fullname.removeprefix(_PREFIX).partition(".")
        if not fullname.startswith(_PREFIX) or not file or framework not in PROGRAMS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None or file.startswith("_"):
            return None
        run = spec.loader.exec_module

        def run_and_change(module: ModuleType) -> None:
            run(module)
            importlib.import_module(PROGRAMS[framework]).change(module, self.label)

        spec.loader.exec_module = run_and_change
        return spec


def _label() -> str:
    """Return the label of this worker's capture request; empty in other processes."""
    arguments = sys.orig_argv
    if WORKER not in arguments:
        return ""
    request = Path(arguments[arguments.index(WORKER) + 1])
    return str(json.loads(request.read_text(encoding="utf-8"))["label"])


if label := _label():
    sys.meta_path.insert(0, _Rebuilt(label))

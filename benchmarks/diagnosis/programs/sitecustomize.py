"""Builds a worker's implementation as the program that its request's label names (``changed``).

Python imports this file at its start where its folder is on PYTHONPATH, before the worker has
imported anything: so what is captured is a program of a user's, by ``lstmprof capture`` as it is.
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
#: The implementations' folder → the module with the programs of its framework.
PROGRAMS = {"torch": "torch_programs", "tensorflow": "tensorflow_programs", "jax": "jax_programs"}
_PREFIX = "lstmprof.implementations."


class _Rebuilt(importlib.abc.MetaPathFinder):
    """Finds an implementation's file, and gives it the ``build`` of another program."""

    def __init__(self, label: str) -> None:
        self.label = label

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As the import system asks for it."""
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
    """The label of the request that this process was started for; none of another process."""
    arguments = sys.orig_argv
    if WORKER not in arguments:
        return ""
    request = Path(arguments[arguments.index(WORKER) + 1])
    return str(json.loads(request.read_text(encoding="utf-8"))["label"])


if label := _label():
    sys.meta_path.insert(0, _Rebuilt(label))

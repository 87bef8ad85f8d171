"""What Python runs first in an lstmprof worker whose PYTHONPATH begins with this folder.

The worker is the shipped one. As soon as it has loaded the loop of its framework, the loop's
Trainer is replaced by one whose steps also do what is planted. What that is stands in the file
``<label>.json`` of the folder ``PLANTED``, where the label is that of the capture; a label without
a file, and every other process, is left alone.

The file is ``{"causes": [[name, share of the clean step], …], "setting": name or null,
"environment": {name: value}}``. An environment is what allocators read before the first line of
Python, so the worker starts itself once more with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = "PLANTED"
WORKER, LOOPS = "lstmprof.capture.worker", "lstmprof.capture.worker.loops."
#: The loop's module → the module with its plants.
PLANTS = {f"{LOOPS}{name}": f"plants_{name}" for name in ("torch", "tensorflow", "jax")}


def asked(argv: list[str]) -> dict[str, Any] | None:
    """What is to be planted in the process of this command line; None for nothing at all."""
    if FOLDER not in os.environ or WORKER not in argv:
        return None
    request = json.loads(Path(argv[argv.index(WORKER) + 1]).read_text())
    path = Path(os.environ[FOLDER], f"{request['label']}.json")
    return {**json.loads(path.read_text()), "label": request["label"]} if path.exists() else None


class Planter:
    """A finder that lets the loops be loaded as ever, and then replaces their Trainer."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The module's own spec, which plants when it has run."""
        if name not in PLANTS:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            plants = importlib.import_module(PLANTS[name])
            module.Trainer = plants.planted_trainer(module.Trainer, self.plan)

        spec.loader.exec_module = exec_module
        return spec


def main() -> None:
    """Plant where this is a worker that has something to be planted."""
    plan = asked(sys.orig_argv)
    if plan is None:
        return
    if any(os.environ.get(name) != value for name, value in plan["environment"].items()):
        os.environ.update(plan["environment"])
        os.execv(sys.executable, sys.orig_argv)
    sys.meta_path.insert(0, Planter(plan))  # type: ignore[arg-type]


main()

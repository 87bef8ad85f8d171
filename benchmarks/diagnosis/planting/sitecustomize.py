"""Replace the Trainer of an lstmprof worker by one whose steps also run planted causes.

Python imports this file at the start of any process whose PYTHONPATH contains this folder. When a
worker has imported the loop of its framework, this file replaces the loop's Trainer. What to plant
is in the file ``<label>.json`` in the folder that the environment variable ``PLANTED`` names, where
label is that of the capture. Without such a file, and in other processes, nothing is changed.

The file is ``{"causes": [[name, share of the clean step], …], "setting": name or null,
"environment": {name: value}}``. Because memory allocators read the environment before Python runs,
the worker starts itself again with this environment.
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
#: Module of a framework's loop → module with the causes for this framework.
PLANTS = {f"{LOOPS}{name}": f"plants_{name}" for name in ("torch", "tensorflow", "jax")}


def asked(argv: list[str]) -> dict[str, Any] | None:
    """Return the plan for the process with command line ``argv``; None if nothing is planted."""
    if FOLDER not in os.environ or WORKER not in argv:
        return None
    request = json.loads(Path(argv[argv.index(WORKER) + 1]).read_text())
    path = Path(os.environ[FOLDER], f"{request['label']}.json")
    return {**json.loads(path.read_text()), "label": request["label"]} if path.exists() else None


class Planter:
    """An import hook that imports the framework's loop, and then replaces its Trainer."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the usual spec of the module ``name``, with the Trainer replaced after import."""
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
    """Install the import hook if this process is a worker with a plan."""
    plan = asked(sys.orig_argv)
    if plan is None:
        return
    if any(os.environ.get(name) != value for name, value in plan["environment"].items()):
        os.environ.update(plan["environment"])
        os.execv(sys.executable, sys.orig_argv)
    sys.meta_path.insert(0, Planter(plan))  # type: ignore[arg-type]


main()

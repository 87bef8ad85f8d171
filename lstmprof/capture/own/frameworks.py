"""Which framework a user's process computes with, by what it has imported."""

from __future__ import annotations

import importlib
import sys
from typing import List, Optional

from lstmprof.capture.worker.profilers import Profiler
from lstmprof.errors import UsageError, unknown_name

#: Framework -> the module and the class of its profiler.
PROFILERS = {
    "torch": ("lstmprof.capture.worker.profilers.torch", "TorchProfiler"),
    "tensorflow": ("lstmprof.capture.worker.profilers.tensorflow", "TensorflowProfiler"),
    "jax": ("lstmprof.capture.worker.profilers.jax", "JaxProfiler"),
}
KERAS = "keras"


def framework_of(asked: Optional[str] = None) -> str:
    """``asked``, else the one framework that is imported; of Keras its backend.

    Raises:
        UsageError: there is none, there are several, or ``asked`` is not known.
    """
    if asked == KERAS:
        return _checked(str(importlib.import_module(KERAS).config.backend()))
    if asked is not None:
        return _checked(asked)
    imported = _imported()
    keras = sys.modules.get(KERAS)
    if keras is not None and hasattr(keras, "config"):  # Keras 3; it may have imported others too
        return _checked(str(keras.config.backend()))
    if len(imported) == 1:
        return imported[0]
    if not imported:
        raise UsageError(
            "no framework is imported yet",
            "import torch, tensorflow or jax first, or pass framework=",
        )
    raise UsageError(
        "several frameworks are imported: {}".format(", ".join(imported)),
        f"pass the one that runs the steps: framework='{imported[0]}'",
    )


def _imported() -> List[str]:
    """Frameworks that are imported, and not only begun to be."""
    return [name for name in PROFILERS if hasattr(sys.modules.get(name), "__version__")]


def _checked(framework: str) -> str:
    if framework not in PROFILERS:
        raise unknown_name("framework", framework, [*PROFILERS, KERAS])
    return framework


def profiler_of(framework: str) -> Profiler:
    """The profiler of ``framework``, which is imported where it is not yet."""
    module, name = PROFILERS[framework]
    profiler: Profiler = getattr(importlib.import_module(module), name)()
    return profiler

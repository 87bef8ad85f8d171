"""What a framework raised, in words for its user."""

from __future__ import annotations

import sys
from typing import List

#: what a worker imports and lstmprof itself does not bring into its interpreter
PROVIDED_BY = {
    "numpy": "numpy",
    "torch": "lstmprof[torch]",
    "tensorflow": "lstmprof[tensorflow]",
    "keras": "lstmprof[tensorflow]",
    "jax": "lstmprof[jax]",
    "flax": "lstmprof[jax]",
    "pytensor": "lstmprof[pytensor]",
}


def explained(error: Exception) -> List[str]:
    """Fault and next step, one line each."""
    if isinstance(error, ModuleNotFoundError) and error.name in PROVIDED_BY:
        return [
            "{} is not installed in {}".format(error.name, sys.executable),
            "install {} there".format(PROVIDED_BY[error.name]),
        ]
    if "No working C++ compiler" in str(error):  # Inductor's InvalidCxxCompiler, wrapped or not
        return ["torch.compile found no C++ compiler", "install g++, or name another in CXX"]
    if "Failed to find C compiler" in str(error):  # triton/runtime/build.py
        return ["Triton, which torch.compile uses on a GPU, found no C compiler", "install gcc"]
    if _out_of_memory(error):
        return ["out of memory: " + _first_line(error), "try a smaller --batch"]
    return ["{}: {}".format(type(error).__name__, _first_line(error)), ""]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _out_of_memory(error: Exception) -> bool:
    loops = ("worker_torch", "worker_tensorflow", "worker_jax")
    loaded = [sys.modules.get(__package__ + "." + name) for name in loops]
    return isinstance(error, MemoryError) or any(m and m.out_of_memory(error) for m in loaded)

"""Tune lstmprof's own processes: the command, and the workers that read profiles.

Importing lstmprof changes no setting of the user's process.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

#: Settings of glibc's mallopt(3) in bytes: M_TRIM_THRESHOLD (-1), M_MMAP_THRESHOLD (-3).
_KEPT_BYTES = {-1: 2**26, -3: 2**25}
#: Setting of mallopt -> (environment variable for the setting, glibc's default).
_USUAL = {-1: ("MALLOC_TRIM_THRESHOLD_", 2**17), -3: ("MALLOC_MMAP_THRESHOLD_", 2**17)}
#: New containers after which Python collects garbage; the default, 700, costs too much time.
_COLLECT_AFTER = 100_000
#: Environment variable with the number of OpenBLAS's threads, by default one per core.
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def be_quick() -> None:
    """Make this process faster for a short command."""
    sys.meta_path[:0] = [_WithoutPandas, _WithoutThreads]
    gc.set_threshold(_COLLECT_AFTER)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Keep the memory of freed arrays in this process, for later arrays."""
    # avoid two thirds of a breakdown's page faults, which returning memory would cause
    _set_allocator(_KEPT_BYTES)


def give_freed_memory_back() -> None:
    """Restore glibc's defaults, and return free memory to the system."""
    sizes = {}
    for number, (variable, size) in _USUAL.items():
        written = os.environ.get(variable, "")
        sizes[number] = int(written) if written.isdecimal() else size
    _set_allocator(sizes, give_back=True)


def _set_allocator(sizes: dict[int, int], *, give_back: bool = False) -> None:
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim if give_back else None
    except (AttributeError, OSError, TypeError):  # the C library is not glibc
        return
    for number, size in sizes.items():
        mallopt(number, size)
    if trim:
        trim(0)


class _WithoutPandas:
    """An import hook that hides pandas. Importing pandas takes as long as a command."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of the command line", name=name)


class _WithoutThreads:
    """An import hook that loads NumPy with one BLAS thread."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        # limit the BLAS threads: no command multiplies matrices, and an idle thread spins for 25 ms
        if name != "numpy" or _BLAS_THREADS in os.environ:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def with_one_blas_thread(module: ModuleType) -> None:
                os.environ[_BLAS_THREADS] = "1"
                try:
                    load(module)
                finally:
                    del os.environ[_BLAS_THREADS]

            spec.loader.exec_module = with_one_blas_thread  # type: ignore[method-assign]
        return spec

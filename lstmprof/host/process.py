"""How a process of lstmprof's own is set: the command, and the workers that read for it.

A process of the user's keeps its own settings: none of this is done where lstmprof is imported.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

#: What glibc is told to keep of freed memory, and the size from which a block is mapped by itself:
#: the numbers of mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, and bytes.
_KEPT = {-1: 2**26, -3: 2**25}
#: What it keeps by itself, and the variable by which a user, or dask, has told it otherwise.
_USUAL = {-1: ("MALLOC_TRIM_THRESHOLD_", 2**17), -3: ("MALLOC_MMAP_THRESHOLD_", 2**17)}
#: So many containers more than before, then Python looks for cycles among them. After 700, as it
#: does by itself, every hundredth time it looks at all that the libraries have made, too.
_LOOKED_AT = 100_000
#: How many threads OpenBLAS starts, one a core unless it is told otherwise when it is loaded.
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def be_quick() -> None:
    """Let this process keep freed memory, look for garbage seldom, do without pandas and threads.

    These are OpenBLAS's.
    """
    sys.meta_path[:0] = [_WithoutPandas, _WithoutThreads]
    gc.set_threshold(_LOOKED_AT)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let the allocator keep what arrays of a few megabytes free, for the next ones.

    By default it soon gives back what is free at its end, and asks for it again: two thirds of the
    page faults of a breakdown of a million events. Of other allocators nothing is asked.
    """
    _tell_allocator(_KEPT)


def give_freed_memory_back() -> None:
    """Let the allocator keep what it usually does, and give back what is free."""
    sizes = {}
    for number, (variable, size) in _USUAL.items():
        told = os.environ.get(variable, "")
        sizes[number] = int(told) if told.isdecimal() else size
    _tell_allocator(sizes, give_back=True)


def _tell_allocator(sizes: dict[int, int], *, give_back: bool = False) -> None:
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim if give_back else None
    except (AttributeError, OSError, TypeError):  # it is not glibc's
        return
    for number, size in sizes.items():
        mallopt(number, size)
    if trim:
        trim(0)


class _WithoutPandas:
    """Says that pandas is not installed: pyarrow imports it with the first array that it makes.

    That takes as long as all the rest of a command, and no command shows a data frame.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas; of other modules say nothing."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of the command line", name=name)


class _WithoutThreads:
    """Has NumPy start no threads to multiply matrices, which no command does.

    There would be one a core, and each looks for work for 25 ms of CPU before it sleeps. What this
    process starts, as a training, is told nothing.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """NumPy as it is found, to be loaded with one thread; of other modules say nothing."""
        if name != "numpy" or _BLAS_THREADS in os.environ:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def alone(module: ModuleType) -> None:
                os.environ[_BLAS_THREADS] = "1"
                try:
                    load(module)
                finally:
                    del os.environ[_BLAS_THREADS]

            spec.loader.exec_module = alone  # type: ignore[method-assign]
        return spec

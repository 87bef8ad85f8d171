"""CUDA's libraries without a framework: where they lie, and calls of them that are checked.

A library is looked for in ``LD_LIBRARY_PATH``, so that one can be put before all others; in the
wheels that PyTorch and TensorFlow bring (``nvidia/*/lib`` on ``sys.path``), so that it is the
framework's own; in the interpreter's ``lib`` (conda); then where the loader looks by itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Callable, ClassVar, ContextManager, Iterator, Mapping, Optional

from lstmprof.errors import CaptureError

Call = Callable[[], None]

#: cuDNN 9: the library, and the wheels that bring it
CUDNN = ("libcudnn.so.9", "nvidia-cudnn-cu12 (or -cu13)")

#: what a parameter's letter means in a prototype; without a letter it is a pointer or a descriptor
TYPES = {
    "": ctypes.c_void_p,
    "i": ctypes.c_int,  # and enums
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "q": ctypes.c_ulonglong,
}


def places(name: str) -> Iterator[str]:
    """Where library ``name`` may lie, the first choice first; at last the bare name."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [Path(folder) for folder in named if folder]
    for entry in sys.path:
        folders += sorted(Path(entry).glob("nvidia/*/lib"))
    for folder in [*folders, Path(sys.prefix, "lib")]:
        if (folder / name).is_file():
            yield str(folder / name)
    yield name


def load(name: str, package: str) -> ctypes.CDLL:
    """The library ``name``, which the wheel ``package`` brings.

    Raises:
        CaptureError: it is nowhere, or cannot be loaded.
    """
    fault: Optional[OSError] = None
    for path in places(name):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            fault = fault or error
    raise CaptureError(
        "{} cannot be loaded: {}".format(name, fault),
        "install {} in {}, or name its folder in LD_LIBRARY_PATH".format(package, sys.executable),
    )


class Library:
    """A C library whose functions return a status, 0 for success.

    ``prototypes``: function -> its parameters in order, ``name`` or ``name:letter`` of ``TYPES``.
    Arguments are given by these names, the header's own, so that a test can hold them to it.
    """

    prototypes: ClassVar[Mapping[str, str]] = {}

    def __init__(self, library: Any) -> None:
        self.library = library
        #: entered around every call, with the function's name: the profile pass's
        self.observer: Optional[Callable[[str], ContextManager[Any]]] = None
        for name, parameters in self.prototypes.items():
            if not hasattr(library, name):
                raise CaptureError(
                    "{} has no {}".format(library._name, name), "install a newer version of it"
                )
            letters = [p.partition(":")[2] for p in parameters.split()]
            getattr(library, name).argtypes = [TYPES[letter] for letter in letters]

    def bound(self, name: str, arguments: Mapping[str, Any]) -> Call:
        """A call of function ``name`` with those of ``arguments`` that it has, to be repeated.

        The call raises CaptureError where the function fails.
        """
        function = getattr(self.library, name)
        values = tuple(arguments[p.partition(":")[0]] for p in self.prototypes[name].split())

        def call() -> None:
            if self.observer is None:
                status = function(*values)
            else:
                with self.observer(name):
                    status = function(*values)
            if status:
                raise self.failure(name, status)

        return call

    def call(self, name: str, **arguments: Any) -> None:
        """Call function ``name`` once.

        Raises:
            CaptureError: it fails.
        """
        self.bound(name, arguments)()

    def failure(self, name: str, status: int) -> CaptureError:
        """The error for a function that returned ``status``."""
        raise NotImplementedError

"""CUDA without a framework, through ctypes: its libraries, and the runtime's memory and events.

A library is searched in ``LD_LIBRARY_PATH``, so that users can override it; in the wheels of
PyTorch and TensorFlow (``nvidia/*/lib`` on ``sys.path``), so that it is the framework's own; in the
interpreter's ``lib`` (conda); then in the loader's default places.

Everything runs on the default stream. Source: cuda_runtime_api.h and driver_types.h of CUDA 12.9,
whose functions also exist in CUDA 13.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from pathlib import Path
from typing import Any, Callable, ClassVar, ContextManager, Iterator, Mapping, Optional, Tuple

import numpy as np

from lstmprof.errors import CaptureError

Call = Callable[[], None]

#: cuDNN 9: the library, and the wheels that bring it
CUDNN = ("libcudnn.so.9", "nvidia-cudnn-cu12 (or -cu13)")

#: Type of a parameter by its letter in a prototype; without a letter, a pointer or a descriptor.
TYPES = {
    "": ctypes.c_void_p,
    "i": ctypes.c_int,  # and enums
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "q": ctypes.c_ulonglong,
}

SUCCESS, ERROR_MEMORY_ALLOCATION = 0, 2  # cudaError_t
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind
DEFAULT_STREAM = None


def library_places(name: str) -> Iterator[str]:
    """Yield possible paths of library ``name``, preferred ones first; the bare name is last."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [Path(folder) for folder in named if folder]
    for entry in sys.path:
        folders += sorted(Path(entry).glob("nvidia/*/lib"))
    for folder in [*folders, Path(sys.prefix, "lib")]:
        if (folder / name).is_file():
            yield str(folder / name)
    yield name


def loaded(name: str, package: str) -> ctypes.CDLL:
    """Return the library ``name``, which is part of the wheel ``package``.

    Raises:
        CaptureError: it does not exist, or cannot be loaded.
    """
    fault: Optional[OSError] = None
    for path in library_places(name):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            fault = fault or error
    raise CaptureError(
        "could not load {}: {}".format(name, fault),
        "install {} in {}, or add its folder to LD_LIBRARY_PATH".format(package, sys.executable),
    )


class Library:
    """A C library whose functions return a status, 0 for success.

    ``prototypes``: function -> its parameters in order, ``name`` or ``name:letter`` of ``TYPES``.
    Arguments have the names of the header, so that a test can compare them.
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
        """Return a repeatable call of function ``name`` with its parameters from ``arguments``.

        The call raises CaptureError if the function fails.
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
        """Return the error for a function that returned ``status``."""
        raise NotImplementedError


class Runtime(Library):
    """libcudart."""

    prototypes: ClassVar[Mapping[str, str]] = {
        "cudaSetDevice": "device:i",
        "cudaMalloc": "devPtr size:z",
        "cudaFree": "devPtr",
        "cudaMemcpy": "dst src count:z kind:i",
        "cudaMemcpyAsync": "dst src count:z kind:i stream",
        "cudaMemset": "devPtr value:i count:z",
        "cudaMemsetAsync": "devPtr value:i count:z stream",
        "cudaMemGetInfo": "free total",
        "cudaDeviceSynchronize": "",
        "cudaEventCreate": "event",
        "cudaEventRecord": "event stream",
        "cudaEventElapsedTime": "ms start end",
        "cudaEventDestroy": "event",
        "cudaRuntimeGetVersion": "runtimeVersion",
        "cudaDriverGetVersion": "driverVersion",
    }

    @classmethod
    def load(cls, cuda_version: int) -> Runtime:
        """Return the runtime of CUDA's major version, given as 12090 for 12.9.

        Raises:
            CaptureError: it does not exist.
        """
        major = cuda_version // 1000
        wheel = "nvidia-cuda-runtime" + ("-cu12" if major == 12 else "")
        return cls(loaded("libcudart.so.{}".format(major), wheel))

    def failure(self, name: str, status: int) -> CaptureError:
        """Return the error for a function that returned ``status``."""
        if status == ERROR_MEMORY_ALLOCATION:
            return CaptureError("out of memory: " + name, "try a smaller --batch")
        error_string = self.library.cudaGetErrorString
        error_string.argtypes, error_string.restype = [ctypes.c_int], ctypes.c_char_p
        words = error_string(status).decode("utf-8", "replace")
        return CaptureError(
            "{} failed: {} (error {})".format(name, words, status),
            "check that nvidia-smi lists the GPU and a driver recent enough for the library",
        )

    def version(self, component: str) -> str:
        """Return the CUDA version of the ``Runtime`` or ``Driver``, such as ``12.9``."""
        number = ctypes.c_int()
        name = "cuda{}GetVersion".format(component)
        self.call(name, **{component.lower() + "Version": ctypes.byref(number)})
        return "{}.{}".format(number.value // 1000, number.value % 1000 // 10)

    def memory_bytes(self) -> int:
        """Return the total memory of the device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudaMemGetInfo", free=ctypes.byref(free), total=ctypes.byref(total))
        return total.value


class Buffer:
    """An array on the device, zeros at first, freed with this object."""

    def __init__(self, runtime: Runtime, shape: Tuple[int, ...], dtype: Any = np.float32) -> None:
        self.runtime, self.shape, self.dtype = runtime, shape, np.dtype(dtype)
        self.size = int(np.prod(shape, dtype=np.int64))
        self.bytes = self.size * self.dtype.itemsize
        pointer = ctypes.c_void_p()
        runtime.call("cudaMalloc", devPtr=ctypes.byref(pointer), size=max(self.bytes, 1))
        self.address = int(pointer.value or 0)
        weakref.finalize(self, runtime.bound("cudaFree", {"devPtr": self.address}))
        self.zero = runtime.bound(
            "cudaMemsetAsync",
            {"devPtr": self.address, "value": 0, "count": self.bytes, "stream": DEFAULT_STREAM},
        )
        runtime.call("cudaMemset", devPtr=self.address, value=0, count=self.bytes)

    def set(self, array: Any) -> None:
        """Copy ``array`` of this shape to the device, and wait for it."""
        self.upload(array)()
        self.runtime.call("cudaDeviceSynchronize")

    def upload(self, array: Any) -> Call:
        """Return a call that enqueues a copy of ``array`` to the device."""
        held = np.ascontiguousarray(array, self.dtype)
        if held.shape != self.shape:
            raise ValueError("an array of shape {} for {}".format(held.shape, self.shape))
        return self.runtime.bound(
            "cudaMemcpyAsync",
            {
                "dst": self.address,
                "src": held.ctypes.data_as(ctypes.c_void_p),  # keeps the array alive
                "count": self.bytes,
                "kind": HOST_TO_DEVICE,
                "stream": DEFAULT_STREAM,
            },
        )

    def array(self) -> Any:
        """Return a copy on the host, after all enqueued work."""
        content = np.empty(self.shape, self.dtype)
        self.runtime.call(
            "cudaMemcpy",
            dst=content.ctypes.data,
            src=self.address,
            count=self.bytes,
            kind=DEVICE_TO_HOST,
        )
        return content


class Stopwatch:
    """Two CUDA events that measure the device's time between them."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.first, self.last = self._event(), self._event()
        self.start = self._recorded(self.first)
        self.stop = self._recorded(self.last)

    def _event(self) -> int:
        event = ctypes.c_void_p()
        self.runtime.call("cudaEventCreate", event=ctypes.byref(event))
        weakref.finalize(self, self.runtime.bound("cudaEventDestroy", {"event": event.value}))
        return int(event.value or 0)

    def _recorded(self, event: int) -> Call:
        return self.runtime.bound("cudaEventRecord", {"event": event, "stream": DEFAULT_STREAM})

    def elapsed_ns(self) -> int:
        """Return the time from ``start`` to ``stop``, which the device has reached (resolution
        0.5 µs).
        """
        length_ms = ctypes.c_float()
        self.runtime.call(
            "cudaEventElapsedTime", ms=ctypes.byref(length_ms), start=self.first, end=self.last
        )
        return round(length_ms.value * 1e6)


def device_name(number: int) -> Optional[str]:
    """Return the driver's name of device ``number``, or None without a driver."""
    pair = _driver_and_device(number)
    name = ctypes.create_string_buffer(256)
    if pair is None or pair[0].cuDeviceGetName(name, len(name), pair[1]) != SUCCESS:
        return None
    return name.value.decode("utf-8", "replace")


def device_memory_bytes(number: int) -> Optional[int]:
    """Return the total memory of device ``number`` from the driver, or None without one."""
    pair = _driver_and_device(number)
    total = ctypes.c_size_t()
    if pair is None or pair[0].cuDeviceTotalMem_v2(ctypes.byref(total), pair[1]) != SUCCESS:
        return None
    return total.value


def _driver_and_device(number: int) -> Optional[Tuple[Any, ctypes.c_int]]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    if driver.cuInit(0) != SUCCESS or driver.cuDeviceGet(ctypes.byref(device), number) != SUCCESS:
        return None
    return driver, device

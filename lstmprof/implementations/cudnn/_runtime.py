"""CUDA through ctypes, without a framework: its libraries, memory and events.

A library is searched in ``LD_LIBRARY_PATH``, in ``nvidia/*/lib`` on ``sys.path`` (wheels of PyTorch
and TensorFlow), in the interpreter's ``lib`` (conda), then in the loader's default folders. Source:
cuda_runtime_api.h and driver_types.h of CUDA 12.9; the functions also exist in CUDA 13.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from pathlib import Path
from typing import Any, Callable, ClassVar, ContextManager, Iterator, Mapping, Optional, Tuple

import numpy as np

from lstmprof.base.errors import CaptureError

Call = Callable[[], None]

#: File name of cuDNN 9, and the wheels that contain the file.
CUDNN = ("libcudnn.so.9", "nvidia-cudnn-cu12 (or -cu13)")

#: Letter in ``Library.prototypes`` -> C type; no letter means a pointer or a descriptor.
TYPES = {
    "": ctypes.c_void_p,
    "i": ctypes.c_int,  # also enums
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "q": ctypes.c_ulonglong,
}

SUCCESS, ERROR_MEMORY_ALLOCATION = 0, 2  # cudaError_t
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind
DEFAULT_STREAM = None


def library_places(name: str) -> Iterator[str]:
    """Yield the paths to try when loading a library, in search order."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [Path(folder) for folder in named if folder]
    for entry in sys.path:
        folders += sorted(Path(entry).glob("nvidia/*/lib"))
    for folder in [*folders, Path(sys.prefix, "lib")]:
        if (folder / name).is_file():
            yield str(folder / name)
    yield name


def loaded(name: str, package: str) -> ctypes.CDLL:
    """Load a library; the error names the wheel to install."""
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
    """A C library whose functions return a status, 0 for success."""

    # C function -> its parameters, each ``name`` or ``name:letter`` for a C type in ``TYPES``
    prototypes: ClassVar[Mapping[str, str]] = {}

    def __init__(self, library: Any) -> None:
        self.library = library
        #: Maps a C function's name to a context manager for a call; None without profiling.
        self.observer: Optional[Callable[[str], ContextManager[Any]]] = None
        for name, parameters in self.prototypes.items():
            if not hasattr(library, name):
                raise CaptureError(
                    "{} has no {}".format(library._name, name), "install a newer version of it"
                )
            letters = [p.partition(":")[2] for p in parameters.split()]
            getattr(library, name).argtypes = [TYPES[letter] for letter in letters]

    def bound(self, name: str, arguments: Mapping[str, Any]) -> Call:
        """Return a function that calls a C function with fixed arguments."""
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
        self.bound(name, arguments)()

    def failure(self, name: str, status: int) -> CaptureError:
        raise NotImplementedError


class Runtime(Library):
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
        """Load the runtime for a CUDA version such as 12090 (12.9)."""
        major = cuda_version // 1000
        wheel = "nvidia-cuda-runtime" + ("-cu12" if major == 12 else "")
        return cls(loaded("libcudart.so.{}".format(major), wheel))

    def failure(self, name: str, status: int) -> CaptureError:
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
        """Return the CUDA version of the ``Runtime`` or the ``Driver``, such as ``12.9``."""
        number = ctypes.c_int()
        name = "cuda{}GetVersion".format(component)
        self.call(name, **{component.lower() + "Version": ctypes.byref(number)})
        return "{}.{}".format(number.value // 1000, number.value % 1000 // 10)

    def memory_bytes(self) -> int:
        """Return the total memory of the current device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudaMemGetInfo", free=ctypes.byref(free), total=ctypes.byref(total))
        return total.value


class Buffer:
    """An array of zeros in device memory, which is freed with this object."""

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
        """Copy an array to the device, and wait for the copy."""
        self.upload(array)()
        self.runtime.call("cudaDeviceSynchronize")

    def upload(self, array: Any) -> Call:
        """Return a function that enqueues a copy of an array to the device."""
        contiguous = np.ascontiguousarray(array, self.dtype)
        if contiguous.shape != self.shape:
            raise ValueError("an array of shape {} for {}".format(contiguous.shape, self.shape))
        return self.runtime.bound(
            "cudaMemcpyAsync",
            {
                "dst": self.address,
                "src": contiguous.ctypes.data_as(ctypes.c_void_p),  # keeps the array alive
                "count": self.bytes,
                "kind": HOST_TO_DEVICE,
                "stream": DEFAULT_STREAM,
            },
        )

    def array(self) -> Any:
        """Wait for all enqueued work, and copy the buffer to the host."""
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
    """Measures device time between two CUDA events."""

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
        """Return the measured time (resolution 0.5 µs); fails until the device has finished."""
        length_ms = ctypes.c_float()
        self.runtime.call(
            "cudaEventElapsedTime", ms=ctypes.byref(length_ms), start=self.first, end=self.last
        )
        return round(length_ms.value * 1e6)


def device_name(number: int) -> Optional[str]:
    pair = _driver_and_device(number)
    name = ctypes.create_string_buffer(256)
    if pair is None or pair[0].cuDeviceGetName(name, len(name), pair[1]) != SUCCESS:
        return None
    return name.value.decode("utf-8", "replace")


def device_memory_bytes(number: int) -> Optional[int]:
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

"""The CUDA runtime through ctypes: memory, copies, events. Everything on the default stream.

Source: cuda_runtime_api.h and driver_types.h of CUDA 12.9; the functions are those of CUDA 13 too.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, ClassVar, Mapping, Optional, Tuple

import numpy as np

from lstmprof.errors import CaptureError
from lstmprof.implementations.cudnn import _libraries
from lstmprof.implementations.cudnn._libraries import Call, Library

SUCCESS, ERROR_MEMORY_ALLOCATION = 0, 2  # cudaError_t
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind
DEFAULT_STREAM = None


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
        """The runtime of CUDA's major version, given as 12090 for 12.9.

        Raises:
            CaptureError: there is none.
        """
        major = cuda_version // 1000
        wheel = "nvidia-cuda-runtime" + ("-cu12" if major == 12 else "")
        return cls(_libraries.load("libcudart.so.{}".format(major), wheel))

    def failure(self, name: str, status: int) -> CaptureError:
        """The error for a function that returned ``status``."""
        if status == ERROR_MEMORY_ALLOCATION:
            return CaptureError("out of memory: " + name, "try a smaller --batch")
        said = self.library.cudaGetErrorString
        said.argtypes, said.restype = [ctypes.c_int], ctypes.c_char_p
        words = said(status).decode("utf-8", "replace")
        return CaptureError(
            "{} failed: {} (error {})".format(name, words, status),
            "see whether nvidia-smi shows the GPU, and a driver as new as the library",
        )

    def version(self, of: str) -> str:
        """``Runtime``'s or ``Driver``'s version of CUDA, as ``12.9``."""
        number = ctypes.c_int()
        name = "cuda{}GetVersion".format(of)
        self.call(name, **{of.lower() + "Version": ctypes.byref(number)})
        return "{}.{}".format(number.value // 1000, number.value % 1000 // 10)

    def memory_bytes(self) -> int:
        """Memory of the device in all."""
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
        """A call that enqueues a copy of ``array`` to the device."""
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
        """A copy on the host, of all that was enqueued before."""
        found = np.empty(self.shape, self.dtype)
        self.runtime.call(
            "cudaMemcpy",
            dst=found.ctypes.data,
            src=self.address,
            count=self.bytes,
            kind=DEVICE_TO_HOST,
        )
        return found


class Stopwatch:
    """Two CUDA events: the time that the device took from one to the other."""

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
        """From ``start`` to ``stop``, both reached by the device; 0.5 µs resolution."""
        length_ms = ctypes.c_float()
        self.runtime.call(
            "cudaEventElapsedTime", ms=ctypes.byref(length_ms), start=self.first, end=self.last
        )
        return round(length_ms.value * 1e6)


def device_name(number: int) -> Optional[str]:
    """The driver's name of device ``number``; None where there is no driver."""
    found = _driver_and_device(number)
    name = ctypes.create_string_buffer(256)
    if found is None or found[0].cuDeviceGetName(name, len(name), found[1]) != SUCCESS:
        return None
    return name.value.decode("utf-8", "replace")


def device_memory_bytes(number: int) -> Optional[int]:
    """Memory of device ``number`` in all, by the driver; None where there is none."""
    found = _driver_and_device(number)
    total = ctypes.c_size_t()
    if found is None or found[0].cuDeviceTotalMem_v2(ctypes.byref(total), found[1]) != SUCCESS:
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

"""CUPTI's numbers by name, as Nsight Systems and nvprof write them into their databases.

Source: ``cupti_activity.h``, ``cupti_runtime_cbid.h`` and ``cupti_driver_cbid.h`` of CUDA 13.0, and
Nsight Systems' own ``ENUM_CUDA_MEM_KIND``, which counts otherwise than CUPTI. Activities have the
names that Kineto gives them.
"""

from __future__ import annotations

import re

import pyarrow as pa

from lstmprof.formats.cuda.columns import named
from lstmprof.formats.cuda.sqlite import Ints

#: CUpti_ActivityMemcpyKind; Nsight Systems goes on with unified memory's three.
_COPIES = (
    *("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("UVM HtoD", "UVM DtoH", "UVM DtoD"),
)
#: CUpti_ActivityMemoryKind.
MEMORY = (
    *("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed"),
    *("Device Static", "Managed Static"),
)
#: ENUM_CUDA_MEM_KIND.
NSYS_MEMORY = (*MEMORY[1:], MEMORY[0])
#: CUpti_ActivitySynchronizationType.
_SYNCS = (
    *("Unknown Synchronize", "Event Synchronize", "Stream Wait Event", "Stream Synchronize"),
    "Context Synchronize",
)
#: CUpti_ActivityOverheadKind over 2¹⁶, but for 1 itself, and whether the profiler is to blame.
OVERHEADS = {
    1: ("Driver Compiler", False),
    1 << 16: ("Buffer Flush", True),
    2 << 16: ("Instrumentation", True),
    3 << 16: ("Resource", True),
    4 << 16: ("Runtime Triggered Module Loading", False),
    5 << 16: ("Lazy Function Loading", False),
    6 << 16: ("Command Buffer Full", False),
}
_VERSION = re.compile(r"_v\d{4,}$")
_BYTE = 256

_RUNTIME_CALLS = """
    4 GetDeviceProperties 10 GetLastError 11 PeekAtLastError 13 Launch 15 FuncGetAttributes
    16 SetDevice 17 GetDevice 20 Malloc 21 MallocPitch 22 Free 25 MallocHost 26 FreeHost
    27 HostAlloc 31 Memcpy 32 Memcpy2D 41 MemcpyAsync 44 Memcpy2DAsync 49 Memset 51 MemsetAsync
    126 ThreadSynchronize 129 StreamCreate 131 StreamSynchronize 132 StreamQuery
    134 EventCreateWithFlags 135 EventRecord 136 EventDestroy 137 EventSynchronize 138 EventQuery
    147 StreamWaitEvent 152 HostRegister 153 HostUnregister 160 MemcpyPeer 161 MemcpyPeerAsync
    165 DeviceSynchronize 198 StreamCreateWithFlags 200 DeviceGetAttribute
    202 StreamCreateWithPriority 206 MallocManaged 207 OccupancyMaxActiveBlocksPerMultiprocessor
    210 OccupancyMaxActiveBlocksPerMultiprocessor 211 LaunchKernel 214 LaunchKernel_ptsz
    251 OccupancyMaxActiveBlocksPerMultiprocessorWithFlags 269 LaunchCooperativeKernel
    272 LaunchCooperativeKernelMultiDevice 284 LaunchHostFunc 311 GraphLaunch
    317 StreamIsCapturing 370 EventRecordWithFlags 373 MallocAsync 375 FreeAsync
    391 MallocFromPoolAsync 430 LaunchKernelExC
"""
_DRIVER_CALLS = """
    17 CtxSynchronize 19 ModuleLoadData 20 ModuleLoadDataEx 29 MemAlloc 33 MemFree
    37 MemAllocHost 38 MemFreeHost 39 MemHostAlloc 43 MemcpyHtoD 45 MemcpyDtoH 47 MemcpyDtoD
    60 MemcpyHtoDAsync 62 MemcpyDtoHAsync 64 MemcpyDtoDAsync 75 MemsetD32 115 Launch
    119 EventRecord 120 EventQuery 121 EventSynchronize 125 StreamQuery 126 StreamSynchronize
    220 MemsetD32Async 243 MemAlloc_v2 245 MemFree_v2 251 MemsetD32_v2 271 MemHostAlloc_v2
    276 MemcpyHtoD_v2 277 MemcpyHtoDAsync_v2 278 MemcpyDtoH_v2 279 MemcpyDtoHAsync_v2
    280 MemcpyDtoD_v2 281 MemcpyDtoDAsync_v2 294 MemAllocHost_v2 295 StreamWaitEvent 305 Memcpy
    306 MemcpyAsync 307 LaunchKernel 371 MemAllocManaged 477 LaunchCooperativeKernel
    480 LaunchCooperativeKernelMultiDevice 514 GraphLaunch 598 MemAllocAsync 600 MemFreeAsync
"""


def _calls(listed: str, prefix: str) -> dict[int, str]:
    words = listed.split()
    return {int(n): prefix + name for n, name in zip(words[::2], words[1::2], strict=True)}


#: Callback ids of the calls that launch, copy, wait or allocate, and of frameworks' commonest.
RUNTIME_CALLS = _calls(_RUNTIME_CALLS, "cuda")
DRIVER_CALLS = _calls(_DRIVER_CALLS, "cu")


def call_name(written: str) -> str:
    """``cudaLaunchKernel`` of ``cudaLaunchKernel_v7000``; a driver call's ``_v2`` is its name."""
    return _VERSION.sub("", written)


def copy_names(
    copy: Ints, source: Ints, target: Ints, memory: tuple[str, ...]
) -> pa.DictionaryArray:
    """``Memcpy HtoD (Pageable -> Device)``, as Kineto names copies."""

    def name(key: int) -> str:
        first, second = memory_name(key // _BYTE % _BYTE), memory_name(key % _BYTE)
        kinds = f" ({first} -> {second})" if first and second else ""
        return f"Memcpy {_nth(_COPIES, key // _BYTE**2) or _COPIES[0]}{kinds}"

    def memory_name(kind: int) -> str | None:
        return _nth(memory, kind)

    keys = [kind.clip(-1, _BYTE - 2) % _BYTE for kind in (copy, source, target)]
    return named((keys[0] * _BYTE + keys[1]) * _BYTE + keys[2], name)


def memset_names(kind: Ints, memory: tuple[str, ...]) -> pa.DictionaryArray:
    """``Memset (Device)``, as Kineto names them."""
    return named(kind, lambda key: f"Memset ({_nth(memory, key) or 'Unknown'})")


def sync_names(type_: Ints) -> pa.DictionaryArray:
    """``Stream Synchronize`` and the others, as Kineto names them."""
    return named(type_, lambda key: _nth(_SYNCS, key) or _SYNCS[0])


def _nth(names: tuple[str, ...], position: int) -> str | None:
    return names[position] if 0 <= position < len(names) else None

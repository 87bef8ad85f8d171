"""Name the activities, calls and ranges in the databases of nvprof and Nsight Systems.

Example: runtime call 211 is ``cudaLaunchKernel``. Activities get Kineto's names. The numbers come
from CUDA 13.0: ``cupti_activity.h``, ``cupti_runtime_cbid.h`` and ``cupti_driver_cbid.h``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.formats.cuda.database_tables import UNKNOWN, Ints
from lstmprof.formats.cuda.events import Batch, named, positive

#: Names of copies by CUpti_ActivityMemcpyKind; only Nsight Systems has the last three.
_COPIES = (
    *("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("UVM HtoD", "UVM DtoH", "UVM DtoD"),
)
#: Names of kinds of memory; the index is a CUpti_ActivityMemoryKind.
MEMORY = (
    *("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed"),
    *("Device Static", "Managed Static"),
)
#: Names of kinds of memory; the index is Nsight Systems' ENUM_CUDA_MEM_KIND.
NSYS_MEMORY = (*MEMORY[1:], MEMORY[0])
#: Names of waits; the index is a CUpti_ActivitySynchronizationType.
_SYNCS = (
    *("Unknown Synchronize", "Event Synchronize", "Stream Wait Event", "Stream Synchronize"),
    "Context Synchronize",
)
#: Overheads: {CUpti_ActivityOverheadKind: (name, whether the profiler causes the overhead)}.
OVERHEADS = {
    1: ("Driver Compiler", False),
    1 << 16: ("Buffer Flush", True),
    2 << 16: ("Instrumentation", True),
    3 << 16: ("Resource", True),
    4 << 16: ("Runtime Triggered Module Loading", False),
    5 << 16: ("Lazy Function Loading", False),
    6 << 16: ("Command Buffer Full", False),
}
_VERSION = re.compile(r"_v\d{4,}$")  # not ``_v2``, which is part of a name
_BYTE = 256
#: Pattern of the names of steps that lstmprof and torch.profiler write.
_STEP = re.compile(r"step|ProfilerStep#\d+")
_SUFFIX = re.compile(r", (?=(?:seq|op_id|sizes) = )")
_EMITTED = re.compile(
    r"(?:seq = (?P<seq>\d+))?(?:(?:^|, )op_id = (?P<op_id>\d{1,18}))?"
    r"(?:(?:^|, )sizes = (?P<sizes>\[[\[\]\d, -]*\]))?(?:, input_op_ids = \[.*\])?"
)
#: Pattern (RE2) of emit_nvtx's texts: ``mm, seq = 7, op_id = 5, sizes = [[2, 3], [3, 4]]``.
#: Source: ``getNvtxStr`` in PyTorch's ``torch/csrc/profiler/util.cpp``.
#: Ops that autograd records have ``seq``. Texts have ``sizes`` only on request.
EMITTED = (
    r"^(?P<head>[^,{][^,]*)(?P<seq>, seq = [0-9]+)?(?P<op_id>, op_id = [0-9]{1,18})?"
    r"(?P<sizes>, sizes = \[[\[\]0-9, -]*\])?(?:, input_op_ids = \[.*\])?$"
)
_OP = re.compile(
    r"(?:aten|prims?|quantized|torch::autograd|autograd::engine|c10d)::.+|\w+Backward\d*"
)
#: Pattern of a library's op (``torchvision::nms``). A match without an ``op_id`` may be any C++
#: scope.
_LIBRARY_OP = re.compile(r"[a-z_]\w*::\w+(?:\.\w+)?")
_BARE = re.compile(r"[a-z_]\w*")
#: Patterns of pyprof's texts (Python dictionaries): a call with its arguments, or a stack.
_PYPROF_CALL = re.compile(r"\{'mod': '([^']*)', 'op': '([^']*)'")
_PYPROF_STACK = re.compile(r"\{'traceMarker': \[(.*)\]\}", re.DOTALL)
_FRAME = re.compile(r"'(?:[^']*/)?([^'/]+:\d+)'")

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


#: Callback id -> name of the CUDA call, for frequent CUDA calls.
RUNTIME_CALLS = _calls(_RUNTIME_CALLS, "cuda")
DRIVER_CALLS = _calls(_DRIVER_CALLS, "cu")


def call_name(written: str) -> str:
    """Remove the version: ``cudaLaunchKernel_v7000`` -> ``cudaLaunchKernel``."""
    return _VERSION.sub("", written)


def copy_names(
    copy: Ints, source: Ints, target: Ints, memory: tuple[str, ...]
) -> pa.DictionaryArray:
    """Return Kineto's names of copies, such as ``Memcpy HtoD (Pageable -> Device)``."""

    def name(key: int) -> str:
        first, second = memory_name(key // _BYTE % _BYTE), memory_name(key % _BYTE)
        kinds = f" ({first} -> {second})" if first and second else ""
        return f"Memcpy {_nth(_COPIES, key // _BYTE**2) or _COPIES[0]}{kinds}"

    def memory_name(kind: int) -> str | None:
        return _nth(memory, kind)

    keys = [kind.clip(-1, _BYTE - 2) % _BYTE for kind in (copy, source, target)]
    return named((keys[0] * _BYTE + keys[1]) * _BYTE + keys[2], name)


def memset_names(kind: Ints, memory: tuple[str, ...]) -> pa.DictionaryArray:
    """Return Kineto's names of memsets, such as ``Memset (Device)``."""
    return named(kind, lambda key: f"Memset ({_nth(memory, key) or 'Unknown'})")


def sync_names(type_: Ints) -> pa.DictionaryArray:
    """Return Kineto's names of waits, such as ``Stream Synchronize``."""
    return named(type_, lambda key: _nth(_SYNCS, key) or _SYNCS[0])


def _nth(names: tuple[str, ...], position: int) -> str | None:
    return names[position] if 0 <= position < len(names) else None


class NvtxRange(NamedTuple):
    """One NVTX range, as columns of the events table."""

    kind: str
    name: str
    external_id: int | None = None
    shapes: str | None = None


def nvtx_range(text: str) -> NvtxRange:
    """Parse the text of an NVTX range: an op, a step or a plain range."""
    if text.startswith("{'"):
        return NvtxRange("range", _pyprof_name(text))
    name, *suffix = _SUFFIX.split(text, maxsplit=1)
    emitted = _EMITTED.fullmatch(suffix[0] if suffix else "")
    if emitted is None:
        return NvtxRange("range", text)
    seq, op_id, sizes = emitted.groups()
    kind, name = _classified(name, seq is not None, op_id is not None)
    if kind != "op":
        return NvtxRange(kind, name)
    return NvtxRange("op", name, int(op_id or 0) or None, _shapes(sizes) if sizes else None)


@lru_cache(maxsize=65_536)
def _classified(name: str, has_seq: bool, has_id: bool) -> tuple[str, str]:
    """Return (kind, name), such as ("op", "aten::mm") for ``mm`` with a ``seq``."""
    if _STEP.fullmatch(name):
        return "step", name
    # only ops have a ``seq``, but ranges of users and of torch.optim may have an ``op_id``
    if not (has_seq or _OP.fullmatch(name) or (has_id and _LIBRARY_OP.fullmatch(name))):
        return "range", name
    # PyTorch 1.6 and older write ``mm, seq = 7``
    return "op", name if has_id or not _BARE.fullmatch(name) else f"aten::{name}"


@lru_cache(maxsize=65_536)
def _shapes(sizes: str) -> str | None:
    try:
        return json.dumps(json.loads(sizes), separators=(",", ":"))
    except (ValueError, RecursionError):
        return None


def _pyprof_name(text: str) -> str:
    """Return the call or last frame in pyprof's text: ``torch.cat``, ``model.py:33``."""
    if call := _PYPROF_CALL.match(text):
        return ".".join(part for part in call.groups() if part) or text
    if stack := _PYPROF_STACK.match(text):
        frames = [f for f in _FRAME.findall(stack[1]) if not f.startswith("nvmarker.py:")]
        return frames[-1] if frames else text
    return text


def nvtx_ranges(ints: Mapping[str, Ints], text: pa.Array) -> Batch:
    """Parse texts of NVTX ranges, once for texts that differ only in ``seq``, ``op_id``."""
    alike, ids = _without_ids(text)
    encoded = alike.dictionary_encode()
    ranges = [nvtx_range(message) for message in encoded.dictionary.to_pylist()]
    own_ids = np.array(
        [UNKNOWN if d.external_id is None else d.external_id for d in ranges], np.int64
    )
    codes = encoded.indices.to_numpy()
    columns = {
        name: pa.array([getattr(d, name) for d in ranges], pa.string()).dictionary_encode()
        for name in ("kind", "name", "shapes")
    }
    has_id = (ids != UNKNOWN) & (own_ids != UNKNOWN)[codes]
    return Batch(
        {**ints, "external_id": np.where(has_id, positive(ids), own_ids[codes])},
        {name: values.take(encoded.indices) for name, values in columns.items()},
    )


def _without_ids(text: pa.Array) -> tuple[pa.Array, Ints]:
    """Replace emit_nvtx's ``seq`` and ``op_id`` by 1; return (texts, op ids)."""
    parts = pc.extract_regex(text, EMITTED)
    head, seq, op_id, sizes = (parts.field(name) for name in ("head", "seq", "op_id", "sizes"))
    has_seq, has_id = (pc.not_equal(part, "") for part in (seq, op_id))
    alike = pc.binary_join_element_wise(
        *(head, pc.if_else(has_seq, ", seq = 1", ""), pc.if_else(has_id, ", op_id = 1", "")),
        *(sizes, ""),
    )
    is_emitted = pc.and_(parts.is_valid(), pc.or_(has_seq, has_id)).fill_null(False)
    digits = pc.replace_substring(pc.if_else(has_id, op_id, None), ", op_id = ", "")
    ids = np.asarray(digits.cast(pa.int64()).fill_null(UNKNOWN).to_numpy(zero_copy_only=False))
    return pc.if_else(is_emitted, alike, text), ids

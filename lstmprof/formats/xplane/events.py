"""What one event of an XPlane is: its kind by its name and its stats.

A device's stream lines hold activities. A host thread's line holds TraceMe events, all alike, so
that only names and stats tell them apart. TensorFlow 2.21 writes, on line ``python``: the user's
``Trace`` (a step has the stat ``step_num``), a ``tf.function`` by its bare name with the stat
``tf_function_call`` (so a function called ``step`` is no step), and the runtime's own
(``TFE_Py_Execute``, ``EagerExecute: …``, ``EagerLocalExecute: MatMul``, ``FunctionRun``); on lines
``tf_Compute/<id>`` the kernels, as ``<node>:<OpType>``. Only the last compute; the others wrap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lstmprof.events.schema import PHASES
from lstmprof.formats import rows
from lstmprof.formats.rows import Row

Stats = Mapping[str, Any]

#: Thread-pool bookkeeping and allocator marks, without duration or around work that is there by
#: itself: no work of their own.
_BOOKKEEPING = (
    "ThreadpoolListener::",
    "ExecutorState::Process",
    "MemoryAllocation",
    "MemoryDeallocation",
    "end: ",  # XLA on a CPU: the end of the instruction of that name
)
#: Marks of memory on a stream's line: they last as long as the memory and occupy nothing.
_MEMORY_DETAILS = frozenset(("memalloc_details", "memfree_details", "memory_residency_details"))
_RUNTIME = re.compile(r"(?:cu|cuda|hip)[A-Z]|hsa_")
_ENCODED = re.compile(r"(.+?)#([^#]*=[^#]*)#", re.DOTALL)
_SIZE = re.compile(r"\bsize:(\d{1,18})\b")
_INPUT = re.compile(r"(\w*)\[([\d,]*)\]")
#: What XLA on AMD writes as ``tf_op`` of every kernel.
_NO_OP = "XlaModule:"

#: The stats that are read; all others are skipped.
LEVELS = tuple(f"level {depth}" for depth in range(7, -1, -1))
STATS = _MEMORY_DETAILS.union(
    ("correlation_id", "cuda_graph_node_id", "step_num", "tf_function_call", "shape"),
    ("kernel_details", "memcpy_details", "memset_details"),
    ("tf_op", "name", "hlo_op", "hlo_module", "annotation"),
    LEVELS,
)
#: Of these, ids that differ from event to event …
IDS = ("correlation_id", "cuda_graph_node_id")
#: … and those of which nothing but their being there is read.
MARKS = _MEMORY_DETAILS.union(("kernel_details", "step_num", "tf_function_call"))


def activity_row(
    name: str, stats: Stats, timed: tuple[int, int], place: tuple[int, int | None]
) -> Row | None:
    """An event on stream ``place[1]`` of GPU ``place[0]``; None for what does not occupy it."""
    kind = activity_kind(name, stats)
    if kind is None:
        return None
    return Row(
        kind,
        name,
        *timed,
        device=place[0],
        stream=place[1],
        correlation_id=rows.positive(stats.get("correlation_id")),
        graph_node_id=rows.positive(stats.get("cuda_graph_node_id")),
        op_name=op_name(stats),
        bytes=moved_bytes(stats),
    )


def host_row(name: str, stats: Stats, timed: tuple[int, int], tid: int | None) -> Row | None:
    """An event on the host thread ``tid``; None for bookkeeping."""
    name, encoded = decoded(name)
    stats = {**encoded, **stats}
    kind = host_kind(name, stats)
    if kind is None:
        return None
    shapes, dtypes = inputs(stats) if kind == "op" else (None, None)
    return Row(
        kind,
        name,
        *timed,
        tid=tid,
        correlation_id=rows.positive(stats.get("correlation_id")),
        op_name=op_name(stats) if kind in ("op", "runtime") else None,
        shapes=shapes,
        dtypes=dtypes,
    )


def activity_kind(name: str, stats: Stats) -> str | None:
    """The kind of an event on a stream's line, None for what does not occupy the device."""
    if "kernel_details" in stats:
        return "kernel"
    if "memcpy_details" in stats or name.startswith(("Memcpy", "UnifiedMemory")):
        return "memcpy"
    if "memset_details" in stats or name.startswith("Memset"):
        return "memset"
    return None if _MEMORY_DETAILS & stats.keys() else "kernel"


def host_kind(name: str, stats: Stats) -> str | None:
    """The kind of an event on a host thread's line, None for bookkeeping."""
    if name.startswith(_BOOKKEEPING):
        return None
    # Before 2022 a launch has the name of its kernel or copy: the correlation gives it away.
    if "correlation_id" in stats or _RUNTIME.match(name):
        return "runtime"
    if name.startswith("$"):
        return "python"
    if "tf_function_call" in stats:
        return "op"
    if "step_num" in stats or name == "step":
        return "step"
    return "range" if name in PHASES else "op"


def decoded(name: str) -> tuple[str, dict[str, str]]:
    """A TraceMe name without its metadata, and the metadata: ``step#step_num=3,_r=1#``."""
    encoded = _ENCODED.fullmatch(name)
    if encoded is None:
        return name, {}
    pairs = (pair.partition("=") for pair in encoded[2].split(","))
    return encoded[1], {key: value for key, equals, value in pairs if equals}


def with_path(stats: dict[str, Any], paths: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """``stats`` with the path of the XLA instruction, where it is known, as its ``tf_op``."""
    path = paths.get((str(stats.get("hlo_module")), str(stats.get("hlo_op"))))
    if path is None or stats.get("tf_op") not in (None, _NO_OP):
        return stats
    return {**stats, "tf_op": path}


def op_name(stats: Stats) -> str | None:
    """The framework op that an event names, from the best stat there is.

    ``tf_op`` is TensorFlow's node or JAX's path; XLA on AMD leaves ``XlaModule:`` there and the
    path in ``name``. Older TensorFlow has ``annotation``, split into levels (the last is the
    innermost) of ``<node>:<OpType>#metadata#``.
    """
    for key in ("tf_op", "name", *LEVELS, "annotation", "hlo_op"):
        value = stats.get(key)
        if isinstance(value, str) and value and value != _NO_OP:
            return value.partition("#")[0] if key == "annotation" else value
    return None


def moved_bytes(stats: Stats) -> int | None:
    """The size of a copy or fill; AMD's tracer writes 0 where it does not know."""
    details = stats.get("memcpy_details", stats.get("memset_details"))
    size = _SIZE.search(details) if isinstance(details, str) else None
    return (int(size[1]) or None) if size else None


def inputs(stats: Stats) -> tuple[str | None, str | None]:
    """(shapes, dtypes) as JSON, from TensorFlow's ``(half[4,384];float[])``."""
    text = stats.get("shape")
    if not isinstance(text, str) or not (text.startswith("(") and text.endswith(")")):
        return None, None
    found = [_INPUT.fullmatch(part) for part in text[1:-1].split(";")]
    shapes = [[int(n) for n in m[2].split(",") if n] if m else [] for m in found]
    dtypes = [m[1] if m else "" for m in found]
    return json.dumps(shapes, separators=(",", ":")), json.dumps(dtypes, separators=(",", ":"))

"""Describe one XPlane event: find its kind from its name and stats, and its XLA instruction.

On line ``python`` TensorFlow writes the user's ``Trace`` (a step has the stat ``step_num``), a
``tf.function`` by its bare name with the stat ``tf_function_call``, and runtime events; on lines
``tf_Compute/<id>`` the CPU kernels, as ``<node>:<OpType>``.

Plane ``/host:metadata`` has one ``Hlo Proto`` per compiled module (hlo.proto of openxla/xla), with
the path of each instruction in the user's program and with shapes. Modules of one name differ by
their program id: ``jit_step(74)``. Older XLA gave every module of a CPU the id 0; then the last
module of this name in the file counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lstmprof.events import launch_config
from lstmprof.events.schema import KERAS_LAYER, PHASES, PROGRAM
from lstmprof.formats import rows
from lstmprof.formats.rows import Row
from lstmprof.formats.xplane.schema import Messages, message_class

_MESSAGES: Messages = {
    "HloProto": "module 1 HloModule",
    "HloModule": "name 1 bytes, computations 3 *HloComputation",
    "HloComputation": "instructions 2 *HloInstruction, id 5 int64",
    "HloInstruction": (
        "name 1 bytes, opcode 2 bytes, shape 3 Shape, metadata 7 OpMetadata, "
        "custom_call_target 28 bytes, id 35 int64, operand_ids 36 *int64, "
        "called_computation_ids 38 *int64"
    ),
    "Shape": "element_type 2 int64, dimensions 3 *int64",
    "OpMetadata": "op_name 2 bytes",
}
#: Number of an element type in XLA (``PrimitiveType``, xla_data.proto) → name of the type.
_ELEMENTS = {10: "f16", 11: "f32", 12: "f64", 16: "bf16"}
#: Pattern of custom calls that multiply matrices, such as cuDNN's in ``jax.experimental.rnn``.
_LIBRARY_CALL = re.compile(rb"gemm|matmul|cudnn_rnn", re.IGNORECASE)
#: Levels of nested computations that are searched for a matmul or tanh.
_DEEPEST = 3


@dataclass(frozen=True)
class Instruction:
    """An XLA instruction: its path, and the operands of its matmul or tanh."""

    path: str | None
    operands: str | None


#: Protobuf messages of an instruction, and of the computation around the instruction.
_Placed = tuple[Any, Any]
#: (module, program id, instruction name) -> instruction; ``ANY``: the last module of this name.
Instructions = Mapping[tuple[str, str, str], Instruction]
ANY = ""
_PROGRAM_ID = re.compile(r"\((?P<id>\d{1,20})\)$")


@cache
def hlo_proto() -> Any:
    return message_class("hlo", _MESSAGES, "HloProto")


def instructions(content: bytes, program_id: str = ANY) -> dict[tuple[str, str, str], Instruction]:
    """Return the instructions of a module that have a path or operands."""
    from google.protobuf.message import DecodeError

    try:
        module = hlo_proto().FromString(content).module
    except DecodeError:
        return {}
    name = text(module.name)
    inside = _Operands({each.id: each for each in module.computations})
    found = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            path = _path(instruction.metadata.op_name)
            operands = inside.of(instruction, computation)
            if path or operands:
                described = Instruction(path, operands)
                for number in (ANY, program_id):
                    found[name, number, text(instruction.name)] = described
    return found


def _path(op_name: bytes) -> str | None:
    """Return an instruction's path in the user's program, if ``op_name`` is one."""
    return rows.clean(text(op_name)) if b"/" in op_name else None


class _Operands:
    """Finds the operands of instructions, each computation once."""

    def __init__(self, computations: Mapping[int, Any]) -> None:
        self._computations = computations
        self._inside: dict[tuple[int, bool], list[_Placed]] = {}

    def of(self, instruction: Any, computation: Any) -> str | None:
        """Return the operands of the first matmul or smallest tanh."""
        products = self._find(instruction, computation, _DEEPEST, products=True)
        if products:
            return self._listed(*products[0])
        tanhs = self._find(instruction, computation, _DEEPEST, products=False)
        narrowest = min(
            tanhs, key=lambda placed: math.prod(placed[0].shape.dimensions), default=None
        )
        return self._listed(*narrowest) if narrowest else None

    def _listed(self, instruction: Any, computation: Any) -> str | None:
        shapes = {inner.id: inner.shape for inner in computation.instructions}
        listed = [_shape(shapes[n]) for n in instruction.operand_ids if n in shapes]
        return "(" + ";".join(listed) + ")" if listed and all(listed) else None

    def _find(
        self, instruction: Any, computation: Any, depth: int, *, products: bool
    ) -> list[_Placed]:
        """Return the matmuls that an instruction contains, or its tanhs."""
        if _is_product(instruction) if products else instruction.opcode == b"tanh":
            return [(instruction, computation)]
        if instruction.opcode not in (b"fusion", b"call") or not depth:
            return []
        numbers = instruction.called_computation_ids
        return [placed for n in numbers for placed in self._in(n, depth - 1, products)]

    def _in(self, number: int, depth: int, products: bool) -> list[_Placed]:
        key = (number, products)
        if key not in self._inside:
            inner = self._computations.get(number)
            listed = inner.instructions if inner is not None else ()
            matches = (
                self._find(instruction, inner, depth, products=products) for instruction in listed
            )
            self._inside[key] = [placed for match in matches for placed in match]
        return self._inside[key]


def _is_product(instruction: Any) -> bool:
    library = _LIBRARY_CALL.search(instruction.custom_call_target)
    return instruction.opcode == b"dot" or bool(library)


def _shape(shape: Any) -> str:
    """Return a shape such as ``f32[6,16]``."""
    element = _ELEMENTS.get(shape.element_type)
    return f"{element}[{','.join(map(str, shape.dimensions))}]" if element else ""


Stats = Mapping[str, Any]

#: Names of memory events on a host thread, and names of their stats.
ALLOCATION, FREE = "MemoryAllocation", "MemoryDeallocation"
ALLOCATOR_NAME, DEVICE_NUMBERS = "allocator_name", ("index_on_host", "device_ordinal")
MEMORY_STATS = (ALLOCATOR_NAME, *DEVICE_NUMBERS, "bytes_allocated", "allocation_bytes")
#: Beginnings of names of events that are left out: bookkeeping of thread pools and allocators.
_BOOKKEEPING = (
    "ThreadpoolListener::",
    "ExecutorState::Process",
    "ExecutorDoneCallback",  # may end in the next step, after waking the step's thread
    ALLOCATION,
    FREE,
    "end: ",  # XLA on a CPU: the end of the instruction
)
#: Stats that mark events of a block of memory, which last as long as the block is allocated.
_MEMORY_DETAILS = frozenset(("memalloc_details", "memfree_details", "memory_residency_details"))
_RUNTIME = re.compile(r"(?:cu|cuda|hip)[A-Z]|hsa_")
_ENCODED = re.compile(r"(.+?)#([^#]*=[^#]*)#", re.DOTALL)
#: Pattern of a part of ``kernel_details``: ``regs:32 grid:80,1,1 block:128,1,1 occ_pct:100``.
_DETAIL = re.compile(r"\b(\w{1,32}):(\d{1,18}(?:[.,]\d{1,18}){0,2})(?=\s|$)", re.ASCII)
_SIZE = re.compile(r"\bsize:(\d{1,18})\b")
_INPUT = re.compile(r"(\w*)\[([\d,]*)\]")
#: Value of ``tf_op`` that XLA gives every kernel on AMD GPUs, and that names no op.
_NO_OP = "XlaModule:"

#: Names of the stats with the levels of an annotation, innermost level first.
LEVELS = tuple(f"level {depth}" for depth in range(7, -1, -1))
_LEVELS = frozenset(LEVELS)
#: The stats that are read.
STATS = _MEMORY_DETAILS.union(
    ("correlation_id", "cuda_graph_node_id", "step_num", "shape"),
    ("tf_function_call", "tracing_count"),
    ("kernel_details", "memcpy_details", "memset_details"),
    ("tf_op", "name", "hlo_op", "hlo_module", "program_id", "annotation"),
    LEVELS,
)
#: Stats whose values are ids, which differ between otherwise equal events.
IDS = ("correlation_id", "cuda_graph_node_id")
#: Stats of which only the presence matters, not the value.
MARKS = _MEMORY_DETAILS.union(("step_num",))
HLO_PLANE = "/host:metadata"
_HLO_PROTO = "Hlo Proto"


def activity_row(
    name: str, stats: Stats, timed: tuple[int, int], gpu_stream: tuple[int, int | None]
) -> Row | None:
    """Convert an event of a GPU's stream to a row, if it is work of the GPU."""
    kind = activity_kind(name, stats)
    if kind is None:
        return None
    shapes, dtypes = inputs(stats)
    return Row(
        kind,
        name,
        *timed,
        device=gpu_stream[0],
        stream=gpu_stream[1],
        correlation_id=rows.positive(stats.get("correlation_id")),
        graph_node_id=rows.positive(stats.get("cuda_graph_node_id")),
        op_name=op_name(stats),
        shapes=shapes,
        dtypes=dtypes,
        bytes=moved_bytes(stats),
        launch_config=launched_with(stats),
    )


def host_row(name: str, stats: Stats, timed: tuple[int, int], tid: int | None) -> Row | None:
    """Convert an event of a host thread to a row, unless it is bookkeeping."""
    name, encoded = decoded(name)
    stats = {**encoded, **stats}
    kind = host_kind(name, stats)
    if kind is None:
        return None
    shapes, dtypes = inputs(stats) if kind in ("op", "range") else (None, None)
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
    """Return ``kernel``, ``memcpy`` or ``memset``, or None for an allocation."""
    if "kernel_details" in stats:
        return "kernel"
    if "memcpy_details" in stats or name.startswith(("Memcpy", "UnifiedMemory")):
        return "memcpy"
    if "memset_details" in stats or name.startswith("Memset"):
        return "memset"
    return None if _MEMORY_DETAILS & stats.keys() else "kernel"


def host_kind(name: str, stats: Stats) -> str | None:
    """Return a host event's type, such as ``op`` or ``step``; None for bookkeeping."""
    if name.startswith(_BOOKKEEPING):
        return None
    # launches from before 2022 have their kernel's name, but also a correlation id
    if "correlation_id" in stats or _RUNTIME.match(name):
        return "runtime"
    if name.startswith("$"):
        return "python"
    if "tf_function_call" in stats:
        return "op"
    if "step_num" in stats or name == "step":
        return "step"
    return "range" if name in (*PHASES, PROGRAM) or name.startswith(KERAS_LAYER) else "op"


def decoded(name: str) -> tuple[str, dict[str, str]]:
    """Split a TraceMe event, ``step#step_num=3,_r=1#``, into name and metadata."""
    encoded = _ENCODED.fullmatch(name)
    if encoded is None:
        return name, {}
    pairs = (pair.partition("=") for pair in encoded[2].split(","))
    return encoded[1], {key: value for key, equals, value in pairs if equals}


def with_instruction(stats: dict[str, Any], instructions: Instructions) -> dict[str, Any]:
    """Add what the event's XLA instruction shows."""
    module, name = str(stats.get("hlo_module")), str(stats.get("hlo_op"))
    keys = ((module, number, name) for number in (str(stats.get("program_id")), ANY))
    instruction = next((instructions[key] for key in keys if key in instructions), None)
    if instruction is None:
        return stats
    added = {}
    if instruction.path and stats.get("tf_op") in (None, _NO_OP):
        added["tf_op"] = instruction.path
    if instruction.operands and "shape" not in stats:
        added["shape"] = instruction.operands
    return {**stats, **added}


def op_name(stats: Stats) -> str | None:
    """Return the framework op that an event names."""
    if "tracing_count" in stats and "tf_function_call" in stats:
        return "{tf_function_call} #{tracing_count}".format(**stats)
    levels = () if _LEVELS.isdisjoint(stats) else LEVELS
    # ``name`` has AMD's path; ``annotation`` has old TensorFlow's ``<node>:<OpType>#metadata#``
    for key in ("tf_op", "name", *levels, "annotation", "hlo_op"):
        value = stats.get(key)
        if isinstance(value, str) and value and value != _NO_OP:
            return value.partition("#")[0] if key == "annotation" else value
    return None


def moved_bytes(stats: Stats) -> int | None:
    """Return the size of a copy or fill in bytes."""
    details = stats.get("memcpy_details", stats.get("memset_details"))
    size = _SIZE.search(details) if isinstance(details, str) else None
    return (int(size[1]) or None) if size else None  # AMD writes 0 for unknown


def launched_with(stats: Stats) -> str | None:
    """Return the launch configuration in the stat ``kernel_details``."""
    written = stats.get("kernel_details")
    details = dict(_DETAIL.findall(written)) if isinstance(written, str) else {}
    parts = [rows.int64(details.get(name)) for name in ("static_shared", "dynamic_shared")]
    apart = None if None in parts else sum(part for part in parts if part is not None)
    percent = details.get("occ_pct", "")
    is_number = percent.replace(".", "", 1).isdecimal()
    return launch_config.text(
        {
            "grid": _three(details.get("grid")),
            "block": _three(details.get("block")),
            "registers": rows.int64(details.get("regs")),
            "shared_bytes": rows.int64(details.get("group_mem")) if apart is None else apart,
            "dynamic_shared_bytes": parts[1],
            "theoretical_occupancy": float(percent) / 100 if is_number else None,
        }
    )


def _three(written: str | None) -> list[int | None] | None:
    return None if written is None else [rows.int64(part) for part in written.split(",")]


def inputs(stats: Stats) -> tuple[str | None, str | None]:
    """Parse TensorFlow's ``(half[4,384];float[])`` as (shapes, dtypes)."""
    listed = stats.get("shape")
    if not isinstance(listed, str) or not (listed.startswith("(") and listed.endswith(")")):
        return None, None
    matches = [_INPUT.fullmatch(part) for part in listed[1:-1].split(";")]
    shapes = [[int(n) for n in m[2].split(",") if n] if m else [] for m in matches]
    dtypes = [m[1] if m else "" for m in matches]
    return json.dumps(shapes, separators=(",", ":")), json.dumps(dtypes, separators=(",", ":"))


def text(content: bytes) -> str:
    """Decode UTF-8, as far as possible."""
    return content.decode("utf-8", errors="replace")


class PlaneTables:
    """The names and stats to which the events of a plane refer by number."""

    def __init__(self, plane: Any) -> None:
        self._stat_names = {e.key: text(e.value.name) for e in plane.stat_metadata}
        # number -> name of the stats that are read from all events
        self.wanted = {k: n for k, n in self._stat_names.items() if n in STATS}
        self._metadata = {
            e.key: (text(e.value.name), self.stats(e.value.stats)) for e in plane.event_metadata
        }
        self.memory_stats = {k: n for k, n in self._stat_names.items() if n in MEMORY_STATS}
        named = {number: name for number, (name, _) in self._metadata.items()}
        self.memory_events = {k: n for k, n in named.items() if n in (ALLOCATION, FREE)}

    def described(self, event: Any) -> tuple[str, dict[str, Any]]:
        """Return an event's name and ``wanted`` stats."""
        name, shared = self._metadata.get(event.metadata_id, ("", {}))
        return name, {**shared, **self.stats(event.stats)}

    def stats(self, stats: Any) -> dict[str, Any]:
        """Return the values of the ``wanted`` stats by name."""
        named = ((self.wanted.get(stat.metadata_id), stat) for stat in stats)
        return {name: self.value(stat) for name, stat in named if name is not None}

    def all_stats(self, stats: Any) -> dict[str, Any]:
        """Return the values of all stats by name."""
        return {self._stat_names.get(s.metadata_id, ""): self.value(s) for s in stats}

    def stat_name(self, number: int) -> str | None:
        return self._stat_names.get(number)

    def value(self, stat: Any) -> Any:
        field = stat.WhichOneof("value")
        if field == "ref_value":  # the number of a repeated text
            return self.stat_name(stat.ref_value)
        if field == "str_value":
            return text(stat.str_value)
        return getattr(stat, field) if field else None


def hlo_instructions(planes: list[tuple[str, Any]]) -> Instructions:
    """Return the XLA instructions of all modules."""
    by_module: dict[tuple[str, str, str], Instruction] = {}
    for plane in (plane for name, plane in planes if name == HLO_PLANE):
        tables = PlaneTables(plane)
        for entry in plane.event_metadata:
            content = tables.all_stats(entry.value.stats).get(_HLO_PROTO)
            if isinstance(content, bytes):
                number = _PROGRAM_ID.search(text(entry.value.name))
                by_module.update(instructions(content, number["id"] if number else ANY))
    return by_module

"""Convert XPlane events to rows of the events table.

Examples: on line ``python``, an event with the stat ``step_num`` is a step. On a line
``tf_Compute/<id>``, the event ``<node>:<OpType>`` is a CPU kernel. Plane ``/host:metadata`` has
the shapes and paths of XLA instructions (``Hlo Proto``, hlo.proto of openxla/xla).
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
#: Largest depth of nested computations to search for a matmul or tanh.
_DEEPEST = 3


@dataclass(frozen=True)
class Instruction:
    """An XLA instruction's path, and the operand shapes of an inner matmul or tanh."""

    path: str | None
    operands: str | None


#: (instruction, the computation that contains the instruction), as protobuf messages.
_Placed = tuple[Any, Any]
#: (module name, program id, instruction name) -> instruction.
#: Program id ``ANY`` finds the last module of the name.
Instructions = Mapping[tuple[str, str, str], Instruction]
ANY = ""
#: Pattern of the program id in a module's name, such as 74 in ``jit_step(74)``.
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
                # add ``ANY``, because older XLA gives every module of a CPU the id 0
                for number in (ANY, program_id):
                    found[name, number, text(instruction.name)] = described
    return found


def _path(op_name: bytes) -> str | None:
    """Return ``op_name`` if it is a path, such as ``jit(step)/dot_general``, else None."""
    return rows.clean(text(op_name)) if b"/" in op_name else None


class _Operands:
    """Finds operands of instructions, and caches the search of each computation."""

    def __init__(self, computations: Mapping[int, Any]) -> None:
        self._computations = computations
        self._inside: dict[tuple[int, bool], list[_Placed]] = {}

    def of(self, instruction: Any, computation: Any) -> str | None:
        """Return operands of the instruction's first matmul, or else smallest tanh."""
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
        """Return all matmuls (if ``products``) or all tanhs inside an instruction."""
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
#: Prefixes of names of events that the reader omits: bookkeeping of thread pools and allocators.
_BOOKKEEPING = (
    "ThreadpoolListener::",
    "ExecutorState::Process",
    "ExecutorDoneCallback",  # may end in the next step, after waking the step's thread
    ALLOCATION,
    FREE,
    "end: ",  # XLA on a CPU: the end of the instruction
)
#: Stats that only memory events have; such an event lasts as long as its block is allocated.
_MEMORY_DETAILS = frozenset(("memalloc_details", "memfree_details", "memory_residency_details"))
_RUNTIME = re.compile(r"(?:cu|cuda|hip)[A-Z]|hsa_")
_ENCODED = re.compile(r"(.+?)#([^#]*=[^#]*)#", re.DOTALL)
#: Pattern of an item in ``kernel_details`` (``regs:32 grid:80,1,1 block:128,1,1 occ_pct:100``).
_DETAIL = re.compile(r"\b(\w{1,32}):(\d{1,18}(?:[.,]\d{1,18}){0,2})(?=\s|$)", re.ASCII)
_SIZE = re.compile(r"\bsize:(\d{1,18})\b")
_INPUT = re.compile(r"(\w*)\[([\d,]*)\]")
#: Value that XLA writes as ``tf_op`` of every kernel on AMD GPUs; the value names no op.
_NO_OP = "XlaModule:"

#: Names of the stats that contain the levels of a nested annotation, innermost level first.
LEVELS = tuple(f"level {depth}" for depth in range(7, -1, -1))
_LEVELS = frozenset(LEVELS)
#: Names of the stats that the reader uses.
STATS = _MEMORY_DETAILS.union(
    ("correlation_id", "cuda_graph_node_id", "step_num", "shape"),
    ("tf_function_call", "tracing_count"),
    ("kernel_details", "memcpy_details", "memset_details"),
    ("tf_op", "name", "hlo_op", "hlo_module", "program_id", "annotation"),
    LEVELS,
)
#: Stats with ids of launches and graph nodes, in which otherwise equal events differ.
IDS = ("correlation_id", "cuda_graph_node_id")
#: Stats that lstmprof checks for presence only, without reading their values.
MARKS = _MEMORY_DETAILS.union(("step_num",))
HLO_PLANE = "/host:metadata"
_HLO_PROTO = "Hlo Proto"


def activity_row(
    name: str, stats: Stats, timed: tuple[int, int], gpu_stream: tuple[int, int | None]
) -> Row | None:
    """Convert an event on a GPU stream to a row; return None for an allocation."""
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
        op_name=op_name(stats),  # names the op, because an XPlane has no ids of ops
        shapes=shapes,
        dtypes=dtypes,
        bytes=moved_bytes(stats),
        launch_config=launched_with(stats),
    )


def host_row(name: str, stats: Stats, timed: tuple[int, int], tid: int | None) -> Row | None:
    """Convert a host event to a row; return None for bookkeeping."""
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
    """Return a host event's kind, such as ``op`` or ``step``; None for bookkeeping."""
    if name.startswith(_BOOKKEEPING):
        return None
    # check ``correlation_id``: before 2022, launches had the names of kernels
    if "correlation_id" in stats or _RUNTIME.match(name):
        return "runtime"
    if name.startswith("$"):
        return "python"
    # make an op of a call of a ``tf.function``, whose event has the function's bare name
    if "tf_function_call" in stats:
        return "op"
    if "step_num" in stats or name == "step":
        return "step"
    return "range" if name in (*PHASES, PROGRAM) or name.startswith(KERAS_LAYER) else "op"


def decoded(name: str) -> tuple[str, dict[str, str]]:
    """Split a TraceMe name, ``step#step_num=3,_r=1#``, into name and metadata."""
    encoded = _ENCODED.fullmatch(name)
    if encoded is None:
        return name, {}
    pairs = (pair.partition("=") for pair in encoded[2].split(","))
    return encoded[1], {key: value for key, equals, value in pairs if equals}


def with_instruction(stats: dict[str, Any], instructions: Instructions) -> dict[str, Any]:
    """Add the path and operands of the event's XLA instruction to its stats."""
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
    """Return the name of the framework op to which an event belongs."""
    if "tracing_count" in stats and "tf_function_call" in stats:
        return "{tf_function_call} #{tracing_count}".format(**stats)
    levels = () if _LEVELS.isdisjoint(stats) else LEVELS
    # AMD writes the path in ``name``; old TensorFlow writes ``<node>:<OpType>#metadata#`` in
    # ``annotation``
    for key in ("tf_op", "name", *levels, "annotation", "hlo_op"):
        value = stats.get(key)
        if isinstance(value, str) and value and value != _NO_OP:
            return value.partition("#")[0] if key == "annotation" else value
    return None


def moved_bytes(stats: Stats) -> int | None:
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
    """Convert TensorFlow's ``(half[4,384];float[])`` to JSON lists (shapes, dtypes)."""
    listed = stats.get("shape")
    if not isinstance(listed, str) or not (listed.startswith("(") and listed.endswith(")")):
        return None, None
    matches = [_INPUT.fullmatch(part) for part in listed[1:-1].split(";")]
    shapes = [[int(n) for n in m[2].split(",") if n] if m else [] for m in matches]
    dtypes = [m[1] if m else "" for m in matches]
    return json.dumps(shapes, separators=(",", ":")), json.dumps(dtypes, separators=(",", ":"))


def text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


class PlaneTables:
    """The names and stats to which the events of a plane refer by number."""

    def __init__(self, plane: Any) -> None:
        self._stat_names = {e.key: text(e.value.name) for e in plane.stat_metadata}
        # number -> name of the stats that the reader uses
        self.wanted = {k: n for k, n in self._stat_names.items() if n in STATS}
        self._metadata = {
            e.key: (text(e.value.name), self.stats(e.value.stats)) for e in plane.event_metadata
        }
        self.memory_stats = {k: n for k, n in self._stat_names.items() if n in MEMORY_STATS}
        named = {number: name for number, (name, _) in self._metadata.items()}
        self.memory_events = {k: n for k, n in named.items() if n in (ALLOCATION, FREE)}

    def described(self, event: Any) -> tuple[str, dict[str, Any]]:
        """Return an event's name, and the ``wanted`` stats of the event and its metadata."""
        name, shared = self._metadata.get(event.metadata_id, ("", {}))
        return name, {**shared, **self.stats(event.stats)}

    def stats(self, stats: Any) -> dict[str, Any]:
        """Return name -> value of the stats that the reader uses."""
        named = ((self.wanted.get(stat.metadata_id), stat) for stat in stats)
        return {name: self.value(stat) for name, stat in named if name is not None}

    def all_stats(self, stats: Any) -> dict[str, Any]:
        """Return name -> value of all stats."""
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
    by_module: dict[tuple[str, str, str], Instruction] = {}
    for plane in (plane for name, plane in planes if name == HLO_PLANE):
        tables = PlaneTables(plane)
        for entry in plane.event_metadata:
            content = tables.all_stats(entry.value.stats).get(_HLO_PROTO)
            if isinstance(content, bytes):
                number = _PROGRAM_ID.search(text(entry.value.name))
                by_module.update(instructions(content, number["id"] if number else ANY))
    return by_module

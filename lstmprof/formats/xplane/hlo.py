"""The instructions of XLA's compiled modules: their path in the user's program, their products.

Plane ``/host:metadata`` holds one ``Hlo Proto`` a compiled module (``hlo.proto`` and
``xla_data.proto`` of openxla/xla, by the field numbers below). An XLA event names its module and
its instruction (``hlo_module``, ``hlo_op``); the instruction's metadata has the path in the user's
program: ``jit(step)/transpose(jvp(forward))/while/body/dot_general``. What XLA made itself (copies,
loop counters) has none. XLA on a CPU gives every module the program id 0: of two modules of the
same name the later one's instructions win.

Of an instruction that is a product, calls a library's or holds one among what it fuses, the
operands are read too: an event has no shapes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lstmprof.formats import rows
from lstmprof.formats.xplane.schema import Messages, message_class

_MESSAGES: Messages = {
    "HloProto": (("module", 1, "HloModule"),),
    "HloModule": (("name", 1, "bytes"), ("computations", 3, "*HloComputation")),
    "HloComputation": (("instructions", 2, "*HloInstruction"), ("id", 5, "int64")),
    "HloInstruction": (
        ("name", 1, "bytes"),
        ("opcode", 2, "bytes"),
        ("shape", 3, "Shape"),
        ("metadata", 7, "OpMetadata"),
        ("custom_call_target", 28, "bytes"),
        ("id", 35, "int64"),
        ("operand_ids", 36, "*int64"),
        ("called_computation_ids", 38, "*int64"),
    ),
    "Shape": (("element_type", 2, "int64"), ("dimensions", 3, "*int64")),
    "OpMetadata": (("op_name", 2, "bytes"),),
}
#: ``PrimitiveType`` of xla_data.proto, those of products.
_ELEMENTS = {10: "f16", 11: "f32", 12: "f64", 16: "bf16"}
#: Libraries' products, and cuDNN's recurrent layers (``jax.experimental.rnn``).
_LIBRARY_CALL = re.compile(rb"gemm|matmul|cudnn_rnn", re.IGNORECASE)
#: Computations in computations that are looked into for a product.
_DEEPEST = 3


@dataclass(frozen=True)
class Instruction:
    """``path`` in the user's program; ``operands`` of its product, ``(f32[6,16];f32[16,64])``."""

    path: str | None
    operands: str | None


#: (module, instruction) -> what is known of it
Instructions = Mapping[tuple[str, str], Instruction]


@cache
def hlo_proto() -> Any:
    """The message class ``HloProto``, of the fields that are read."""
    return message_class("hlo", _MESSAGES, "HloProto")


def instructions(content: bytes) -> dict[tuple[str, str], Instruction]:
    """The instructions of one module of which something is known; none where it cannot be read."""
    from google.protobuf.message import DecodeError

    try:
        module = hlo_proto().FromString(content).module
    except DecodeError:
        return {}
    name = _text(module.name)
    products = _Products({each.id: each for each in module.computations})
    found = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            path = _path(instruction.metadata.op_name)
            operands = products.operands(instruction, computation)
            if path or operands:
                found[name, _text(instruction.name)] = Instruction(path, operands)
    return found


def _path(op_name: bytes) -> str | None:
    """The path; an argument's name is none."""
    return rows.clean(_text(op_name)) if b"/" in op_name else None


class _Products:
    """The product that an instruction is, calls or holds; each computation is looked into once."""

    def __init__(self, computations: Mapping[int, Any]) -> None:
        self._computations = computations
        self._first: dict[int, tuple[Any, Any] | None] = {}

    def operands(self, instruction: Any, computation: Any) -> str | None:
        """Of the first product, as TensorFlow writes shapes; None without one."""
        product = self._of(instruction, computation, _DEEPEST)
        if product is None:
            return None
        shapes = {each.id: each.shape for each in product[1].instructions}
        numbers = product[0].operand_ids
        listed = [_shape(shapes[number]) for number in numbers if number in shapes]
        return "(" + ";".join(listed) + ")" if listed and all(listed) else None

    def _of(self, instruction: Any, computation: Any, depth: int) -> tuple[Any, Any] | None:
        """(product, its computation)."""
        if instruction.opcode == b"dot" or _LIBRARY_CALL.search(instruction.custom_call_target):
            return instruction, computation
        if instruction.opcode not in (b"fusion", b"call") or not depth:
            return None
        found = (self._in(number, depth - 1) for number in instruction.called_computation_ids)
        return next((product for product in found if product), None)

    def _in(self, number: int, depth: int) -> tuple[Any, Any] | None:
        if number not in self._first:
            inner = self._computations.get(number)
            listed = inner.instructions if inner is not None else ()
            found = (self._of(each, inner, depth) for each in listed)
            self._first[number] = next((product for product in found if product), None)
        return self._first[number]


def _shape(shape: Any) -> str:
    """``f32[6,16]``; empty for a tuple and for what is never an operand of a product."""
    element = _ELEMENTS.get(shape.element_type)
    return f"{element}[{','.join(map(str, shape.dimensions))}]" if element else ""


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")

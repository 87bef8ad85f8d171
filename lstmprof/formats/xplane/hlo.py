"""The instructions of XLA's compiled modules: their path in the user's program, their operands.

Plane ``/host:metadata`` holds one ``Hlo Proto`` a compiled module (``hlo.proto`` and
``xla_data.proto`` of openxla/xla, by the field numbers below). An XLA event names its module and
its instruction (``hlo_module``, ``hlo_op``); the instruction's metadata has the path in the user's
program: ``jit(step)/transpose(jvp(forward))/while/body/dot_general``. What XLA made itself (copies,
loop counters) has none. XLA on a CPU gives every module the program id 0: of two modules of the
same name the later one's instructions win.

Of an instruction that is a product, calls a library's or holds one among what it fuses, the
operands are read too, of any other that of a tanh in it, which is as wide as a recurrent layer's
units: an event has no shapes of its own.
"""

from __future__ import annotations

import math
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
#: Computations in computations that are looked into.
_DEEPEST = 3


@dataclass(frozen=True)
class Instruction:
    """``path`` in the user's program; ``operands`` of its product, ``(f32[6,16];f32[16,64])``.

    Of its tanh, ``(f32[6,16])``, where it has no product.
    """

    path: str | None
    operands: str | None


#: An instruction and the computation that it is of.
_Placed = tuple[Any, Any]
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
    inside = _Operands({each.id: each for each in module.computations})
    found = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            path = _path(instruction.metadata.op_name)
            operands = inside.of(instruction, computation)
            if path or operands:
                found[name, _text(instruction.name)] = Instruction(path, operands)
    return found


def _path(op_name: bytes) -> str | None:
    """The path; an argument's name is none."""
    return rows.clean(_text(op_name)) if b"/" in op_name else None


class _Operands:
    """What an instruction is, calls or holds of some sort; each computation is looked into once."""

    def __init__(self, computations: Mapping[int, Any]) -> None:
        self._computations = computations
        self._inside: dict[tuple[int, bool], list[_Placed]] = {}

    def of(self, instruction: Any, computation: Any) -> str | None:
        """Of the first product, else of the narrowest tanh, as TensorFlow writes shapes."""
        products = self._found(instruction, computation, _DEEPEST, products=True)
        if products:
            return self._listed(*products[0])
        tanhs = self._found(instruction, computation, _DEEPEST, products=False)
        narrowest = min(tanhs, key=lambda placed: _elements(placed[0].shape), default=None)
        return self._listed(*narrowest) if narrowest else None

    def _listed(self, instruction: Any, computation: Any) -> str | None:
        shapes = {each.id: each.shape for each in computation.instructions}
        listed = [_shape(shapes[n]) for n in instruction.operand_ids if n in shapes]
        return "(" + ";".join(listed) + ")" if listed and all(listed) else None

    def _found(
        self, instruction: Any, computation: Any, depth: int, *, products: bool
    ) -> list[_Placed]:
        """(instruction, its computation), in their order."""
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
            found = (self._found(each, inner, depth, products=products) for each in listed)
            self._inside[key] = [placed for some in found for placed in some]
        return self._inside[key]


def _is_product(instruction: Any) -> bool:
    library = _LIBRARY_CALL.search(instruction.custom_call_target)
    return instruction.opcode == b"dot" or bool(library)


def _elements(shape: Any) -> int:
    return math.prod(shape.dimensions)


def _shape(shape: Any) -> str:
    """``f32[6,16]``; empty for a tuple and for what no product and no tanh reads."""
    element = _ELEMENTS.get(shape.element_type)
    return f"{element}[{','.join(map(str, shape.dimensions))}]" if element else ""


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")

"""The HLO modules that an XPlane carries, for the paths of the instructions that ran.

Plane ``/host:metadata`` holds one ``Hlo Proto`` a compiled module (``hlo.proto`` and
``xla_data.proto`` of openxla/xla, by the field numbers below). An XLA event names its module and
its instruction (``hlo_module``, ``hlo_op``); the instruction's metadata has the path in the user's
program: ``jit(step)/transpose(jvp(forward))/while/body/dot_general``. What XLA made itself (copies,
loop counters) has none. XLA on a CPU gives every module the program id 0: of two modules of the
same name the later one's paths win.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from lstmprof.formats import rows
from lstmprof.formats.xplane.plane import PlaneTables, text
from lstmprof.formats.xplane.schema import Messages, message_class

PLANE = "/host:metadata"
_PROTO = "Hlo Proto"
_MESSAGES: Messages = {
    "HloProto": (("module", 1, "HloModule"),),
    "HloModule": (("name", 1, "bytes"), ("computations", 3, "*HloComputation")),
    "HloComputation": (("instructions", 2, "*HloInstruction"),),
    "HloInstruction": (("name", 1, "bytes"), ("metadata", 7, "OpMetadata")),
    "OpMetadata": (("op_name", 2, "bytes"),),
}

#: (module, instruction) -> path
Paths = Mapping[tuple[str, str], str]


@cache
def message() -> Any:
    """The message class ``HloProto``, of the fields that are read."""
    return message_class("hlo", _MESSAGES, "HloProto")


def paths(planes: list[tuple[str, Any]]) -> Paths:
    """The path of every instruction that has one; a module that cannot be read has none."""
    found: dict[tuple[str, str], str] = {}
    for plane in (plane for name, plane in planes if name == PLANE):
        tables = PlaneTables(plane)
        for entry in plane.event_metadata:
            content = tables.all_stats(entry.value.stats).get(_PROTO)
            if isinstance(content, bytes):
                found.update(_module_paths(content))
    return found


def _module_paths(content: bytes) -> dict[tuple[str, str], str]:
    from google.protobuf.message import DecodeError

    try:
        module = message().FromString(content).module
    except DecodeError:
        return {}
    return {
        (text(module.name), text(one.name)): rows.clean(text(one.metadata.op_name))
        for computation in module.computations
        for one in computation.instructions
        if b"/" in one.metadata.op_name  # else an argument's name
    }

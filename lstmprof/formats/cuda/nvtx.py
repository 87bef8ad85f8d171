"""What the text of an NVTX range says: its kind, a readable name, an op's id and shapes.

``torch.autograd.profiler.emit_nvtx`` writes ``aten::mm, op_id = 5`` (``getNvtxStr`` in PyTorch's
``torch/csrc/profiler/util.cpp``), with ``, seq = 7`` for what autograd records, ``, sizes = [...]``
where shapes were asked for and ``, input_op_ids = [...]``. Until PyTorch 1.6 there was neither an
``op_id`` nor a namespace: ``mm, seq = 7`` is ``aten::mm``. User ranges and torch.optim's have an
``op_id`` too, but never a ``seq``. pyprof writes Python dictionaries: a call with its arguments, or
the stack around it.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

#: lstmprof's own name of a step and torch.profiler's.
_STEP = re.compile(r"step|ProfilerStep#\d+")
_SUFFIX = re.compile(r", (?=(?:seq|op_id|sizes) = )")
_EMITTED = re.compile(
    r"(?:seq = (?P<seq>\d+))?(?:(?:^|, )op_id = (?P<op_id>\d{1,18}))?"
    r"(?:(?:^|, )sizes = (?P<sizes>\[[\[\]\d, -]*\]))?(?:, input_op_ids = \[.*\])?"
)
#: Usual texts of emit_nvtx, in RE2's syntax: of those that differ in numbers alone, ``described``
#: says the same but for the op's id.
EMITTED = (
    r"^(?P<head>[^,{][^,]*)(?P<seq>, seq = [0-9]+)?(?P<op_id>, op_id = [0-9]{1,18})?"
    r"(?P<sizes>, sizes = \[[\[\]0-9, -]*\])?(?:, input_op_ids = \[.*\])?$"
)
_OP = re.compile(
    r"(?:aten|prims?|quantized|torch::autograd|autograd::engine|c10d)::.+|\w+Backward\d*"
)
_BARE = re.compile(r"[a-z_]\w*")
_PYPROF_CALL = re.compile(r"\{'mod': '([^']*)', 'op': '([^']*)'")
_PYPROF_STACK = re.compile(r"\{'traceMarker': \[(.*)\]\}", re.DOTALL)
_FRAME = re.compile(r"'(?:[^']*/)?([^'/]+:\d+)'")


class Described(NamedTuple):
    """One NVTX range, as columns of the events table."""

    kind: str
    name: str
    external_id: int | None = None
    shapes: str | None = None


def described(text: str) -> Described:
    """What an NVTX range of this text is."""
    if text.startswith("{'"):
        return Described("range", _pyprof_name(text))
    name, *suffix = _SUFFIX.split(text, maxsplit=1)
    emitted = _EMITTED.fullmatch(suffix[0] if suffix else "")
    if emitted is None:
        return Described("range", text)
    seq, op_id, sizes = emitted.groups()
    kind, name = _classified(name, seq is not None, op_id is not None)
    if kind != "op":
        return Described(kind, name)
    return Described("op", name, int(op_id or 0) or None, _shapes(sizes) if sizes else None)


@lru_cache(maxsize=65_536)
def _classified(name: str, has_seq: bool, has_id: bool) -> tuple[str, str]:
    """(kind, name) of what emit_nvtx wrote with such a suffix."""
    if _STEP.fullmatch(name):
        return "step", name
    if not (has_seq or _OP.fullmatch(name)):
        return "range", name
    return "op", name if has_id or not _BARE.fullmatch(name) else f"aten::{name}"


@lru_cache(maxsize=65_536)
def _shapes(sizes: str) -> str | None:
    try:
        return json.dumps(json.loads(sizes), separators=(",", ":"))
    except (ValueError, RecursionError):
        return None


def _pyprof_name(text: str) -> str:
    """``torch.cat`` of a call, ``model.py:33`` of a stack: its last frame outside pyprof."""
    if call := _PYPROF_CALL.match(text):
        return ".".join(part for part in call.groups() if part) or text
    if stack := _PYPROF_STACK.match(text):
        frames = [f for f in _FRAME.findall(stack[1]) if not f.startswith("nvmarker.py:")]
        return frames[-1] if frames else text
    return text

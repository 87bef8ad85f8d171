"""Sampled stacks: what each was at, in the ledger's own words, and on which Python line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from lstmprof.events.annotate.rules import LIBRARY_OP, op_rule
from lstmprof.events.annotate.rules.frames import BY_OP, DISPATCH, FRAME_RULES, UNKNOWN, FrameRule

GARBAGE_COLLECTOR = "garbage collector"
_COLLECTS = re.compile(r"^(?:gc_collect_\w+|deduce_unreachable|_PyGC_\w+)\b")
_PYTHON = re.compile(r"\.py:\d+\)$")
#: The step of a worker's loop: what is outside it is the worker's own.
_STEP = re.compile(r"^(?:\w+\.)?step \(lstmprof/capture/worker/loops/\w+\.py:\d+\)$")
_OPTIMIZER = re.compile(r"\(torch/optim/")
#: Small work of the optimizer is the optimizer, as in the ledger.
_OPTIMIZER_WORK = ("pointwise", "reduction", "layout", "other")
_NO_RULE = "no rule knows a frame of it"


@dataclass(frozen=True)
class Place:
    """What a stack was at: the ledger's part, the rule that decided, the innermost Python line.

    ``line`` is None where no frame is Python's.
    """

    part: str
    rule: str
    line: str | None


def within_step(frames: Sequence[str]) -> Sequence[str] | None:
    """``frames`` from the step on; of a thread without Python all of them; None outside a step."""
    for place, frame in enumerate(frames):
        if _STEP.match(frame):
            return frames[place:]
    return None if any(map(is_python, frames)) else frames


def place_of(frames: Sequence[str], framework: str) -> Place:
    """What a stack of ``framework`` was at; the innermost frame is the last."""
    line = next(filter(is_python, reversed(frames)), None)
    if any(_COLLECTS.match(frame) for frame in frames):
        line = GARBAGE_COLLECTOR
    for rule in FRAME_RULES:
        if rule.frameworks and framework not in rule.frameworks:
            continue
        for frame in reversed(frames):
            part = _part(rule, frame)
            if part in _OPTIMIZER_WORK and any(map(_OPTIMIZER.search, frames)):
                part = "optimizer"
            if part is not None:
                return Place(part, rule.reason, line)
    return Place(UNKNOWN, _NO_RULE, line)


def is_python(frame: str) -> bool:
    """Whether a frame is of Python, not native."""
    return bool(_PYTHON.search(frame))


@lru_cache(maxsize=65536)
def _part(rule: FrameRule, frame: str) -> str | None:
    """The part of a stack with this frame by ``rule``; None where it does not find it."""
    match = rule.pattern.search(frame)
    if match is None:
        return None
    return part_of_torch_op(match["op"]) if rule.part == BY_OP else rule.part


def part_of_torch_op(symbol: str) -> str | None:
    """The part of ``at::_ops::<symbol>``: its op's name and overload, joined by a line.

    ``add__Tensor`` is ``aten::add_.Tensor``: the longest beginning that a rule knows is the name.
    """
    words = symbol.split("_")
    for length in range(len(words), 0, -1):
        rule = op_rule("aten::" + "_".join(words[:length]))
        if rule is not None and rule is not LIBRARY_OP:
            return rule.category or DISPATCH
    return "other"

"""The inputs of the ops of one step: what a profile without shapes does not say.

Recording shapes slows a Python loop of small ops (by 35 to 101 % with flops, torch 2.13 on a CPU),
so that the profile itself is made without. They come from one step more, or from the graph that the
framework compiled, and are joined to the profile's ops by name and order when it is read.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

#: Name of an op, shapes of its inputs, their element types.
OpInputs = Tuple[str, List[Any], List[str]]
#: Likewise, with the number of the step in the profile: its inputs need not be those of others.
StepInputs = Tuple[str, List[Any], List[str], int]
#: The file that holds inputs, beside a profile.
FILE = "shapes.json"
#: Behind the name of a node into which TensorFlow's remapper may fuse the product before it.
FUSED = ":_FusedMatMul"


def of_trace(path: str) -> List[OpInputs]:
    """Those in torch.profiler's JSON, in the order in which the ops began."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ops = [event for event in events if event.get("cat") == "cpu_op" and "ts" in event]
    ops.sort(key=lambda event: (float(event["ts"]), -float(event.get("dur", 0))))
    return [
        (op["name"], op["args"]["Input Dims"], op["args"].get("Input type", []))
        for op in ops
        if "Input Dims" in op.get("args", {})
    ]


def of_tensors(
    name: str, tensors: Iterable[Tuple[Optional[Sequence[Optional[int]]], str]]
) -> OpInputs:
    """Those of an op whose inputs have these (shape, element type); what is not static is null."""
    listed = list(tensors)
    shapes = [[] if shape is None or None in shape else list(shape) for shape, _ in listed]
    return name, shapes, [dtype for _, dtype in listed]


def written(inputs: Iterable[Union[OpInputs, StepInputs]], path: str) -> Optional[str]:
    """The file at ``path`` that holds ``inputs``; None where there are none."""
    listed = list(inputs)
    if not listed:
        return None
    with open(path, "w", encoding="utf-8") as file:
        json.dump(listed, file)
    return path

"""Input shapes of the ops of one step, recorded apart from the profile.

Recording shapes slows a Python loop of small ops (by 35 to 101 % with flops, torch 2.13 on a CPU).
The shapes therefore come from one more step, or from the framework's compiled graph. The rules for
TensorFlow's fusions come from grappler/optimizers/remapper.cc.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

#: An op's name, shapes of the inputs, and element types of the inputs.
OpInputs = Tuple[str, List[Any], List[str]]
#: An op's name, shapes and element types of the inputs, and number of the step.
StepInputs = Tuple[str, List[Any], List[str], int]
FILE = "shapes.json"
#: Suffix of a node's name, to name the matmul that TensorFlow may fuse into the node.
FUSED = ":_FusedMatMul"
#: Types of ops into which TensorFlow fuses a matmul.
FUSED_INTO = ("BiasAdd", "Add", "AddV2", "Tanh", "Sigmoid", "Relu", "Elu", "LeakyRelu")


def inputs_in_trace(path: str) -> List[OpInputs]:
    """Return the input shapes of the ops in torch.profiler's JSON, earliest first."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ops = [event for event in events if event.get("cat") == "cpu_op" and "ts" in event]
    ops.sort(key=lambda event: (float(event["ts"]), -float(event.get("dur", 0))))
    return [
        (op["name"], op["args"]["Input Dims"], op["args"].get("Input type", []))
        for op in ops
        if "Input Dims" in op.get("args", {})
    ]


def inputs_of_tensors(
    name: str, tensors: Iterable[Tuple[Optional[Sequence[Optional[int]]], str]]
) -> OpInputs:
    """Return the input shapes and dtypes of an op; an unknown shape becomes ``[]``."""
    listed = list(tensors)
    shapes = [[] if shape is None or None in shape else list(shape) for shape, _ in listed]
    return name, shapes, [dtype for _, dtype in listed]


def written(inputs: Iterable[Union[OpInputs, StepInputs]], path: str) -> Optional[str]:
    """Write the input shapes of ops to a file; return None if there are none."""
    listed = list(inputs)
    if not listed:
        return None
    with open(path, "w", encoding="utf-8") as file:
        json.dump(listed, file)
    return path


def inputs_of(nodes: Iterable[Any], batch: Optional[int] = None) -> Iterator[OpInputs]:
    """Yield the input shapes of each node, and of a matmul fused into the node."""
    for op in nodes:
        yield _inputs(op, op.name, batch)
        product = _fused_product(op)
        if product is not None:
            yield _inputs(product, op.name + FUSED, batch)


def nodes_of(graph: Any, seen: Optional[Set[str]] = None) -> Iterator[Any]:
    """Yield the nodes of a graph and of its functions, such as loop bodies."""
    seen = set() if seen is None else seen
    for node in graph.get_operations():
        yield node
    for name, function in getattr(graph, "_functions", {}).items():
        if name not in seen and hasattr(function, "graph"):
            seen.add(name)
            for node in nodes_of(function.graph, seen):
                yield node


def _inputs(op: Any, name: str, batch: Optional[int]) -> OpInputs:
    if "while" not in getattr(getattr(op, "graph", None), "name", ""):
        batch = None  # elsewhere, a reshape may have joined batch and time
    # assume no inputs for a condition's placeholder, which lacks ``inputs`` in TensorFlow 2.8
    inputs = getattr(op, "inputs", ())
    tensors = [(_static(each.shape, batch), each.dtype.base_dtype.name) for each in inputs]
    return inputs_of_tensors(name, tensors)


def _fused_product(op: Any) -> Optional[Any]:
    """Return the matmul that TensorFlow may fuse into ``op``."""
    for _ in range(2):
        if op.type not in FUSED_INTO or not op.inputs:
            return None
        op = op.inputs[0].op
        if op.type == "MatMul":
            return op
    return None


def _static(shape: Any, batch: Optional[int]) -> Optional[List[Optional[int]]]:
    if shape.ndims is None:
        return None
    dimensions: List[Optional[int]] = shape.as_list()
    if dimensions[:1] == [None]:
        dimensions[0] = batch
    return dimensions

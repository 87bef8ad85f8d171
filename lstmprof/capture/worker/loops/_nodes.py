"""The inputs of the nodes of a TensorFlow graph, of TensorFlow 1's and of a function's.

Source of what is fused: TensorFlow's remapper, grappler/optimizers/remapper.cc.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Optional, Set

from lstmprof.capture.worker import shapes

#: what the remapper fuses a product before it into
FUSED_INTO = ("BiasAdd", "Add", "AddV2", "Tanh", "Sigmoid", "Relu", "Elu", "LeakyRelu")


def inputs_of(nodes: Iterable[Any], batch: Optional[int] = None) -> Iterator[shapes.OpInputs]:
    """Yield those of each node, and of the product that may be fused into it.

    ``batch`` is the first dimension of tensors in the body of a loop, if the graph leaves it open.
    """
    for op in nodes:
        yield _inputs(op, op.name, batch)
        product = _fused_product(op)
        if product is not None:
            yield _inputs(product, op.name + shapes.FUSED, batch)


def nodes_of(graph: Any, seen: Optional[Set[str]] = None) -> Iterator[Any]:
    """Yield the nodes of ``graph`` and of the functions that it calls, such as those of loops."""
    seen = set() if seen is None else seen
    for node in graph.get_operations():
        yield node
    for name, function in getattr(graph, "_functions", {}).items():
        if name not in seen and hasattr(function, "graph"):
            seen.add(name)
            for node in nodes_of(function.graph, seen):
                yield node


def _inputs(op: Any, name: str, batch: Optional[int]) -> shapes.OpInputs:
    if "while" not in getattr(getattr(op, "graph", None), "name", ""):
        batch = None  # elsewhere a reshape may have joined batch and time
    inputs = getattr(op, "inputs", ())  # a condition's placeholders have no such list in 2.8
    tensors = [(_static(each.shape, batch), each.dtype.base_dtype.name) for each in inputs]
    return shapes.of_tensors(name, tensors)


def _fused_product(op: Any) -> Optional[Any]:
    """The MatMul whose sum with a bias, or that under an activation, the node is."""
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

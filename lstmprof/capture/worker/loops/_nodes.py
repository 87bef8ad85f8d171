"""The inputs of the nodes of a TensorFlow graph, of TensorFlow 1's and of a function's.

Source of what is fused: TensorFlow's remapper, grappler/optimizers/remapper.cc.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Optional

from lstmprof.capture.worker import shapes

#: what the remapper fuses a product before it into
FUSED_INTO = ("BiasAdd", "Add", "AddV2", "Tanh", "Sigmoid", "Relu", "Elu", "LeakyRelu")


def inputs_of(nodes: Iterable[Any]) -> Iterator[shapes.OpInputs]:
    """Those of each node, and of the product that may be fused into it."""
    for op in nodes:
        yield _inputs(op, op.name)
        product = _fused_product(op)
        if product is not None:
            yield _inputs(product, op.name + shapes.FUSED)


def _inputs(op: Any, name: str) -> shapes.OpInputs:
    inputs = getattr(op, "inputs", ())  # a condition's placeholders have no such list in 2.8
    tensors = [(_static(each.shape), each.dtype.base_dtype.name) for each in inputs]
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


def _static(shape: Any) -> Optional[List[Optional[int]]]:
    return None if shape.ndims is None else shape.as_list()

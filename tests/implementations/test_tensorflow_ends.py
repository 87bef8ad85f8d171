"""The head and the lengths of a TensorFlow network, as operators of its graph."""

from typing import Any

import pytest

from lstmprof.workloads import Workload

EVERY_STEP = Workload("tiny-ctc", 1, 4, False, 2, 8, 3, 4, "ctc", labels=2, shortest=5)
LENGTHS = Workload("tiny", 2, 4, True, 3, 6, 5, 3, "ce", shortest=2, variable_length=True)


def graph(function: Any, *shapes: Any) -> Any:
    tf = pytest.importorskip("tensorflow")
    traced = tf.function(function, autograph=False).get_concrete_function(*shapes)
    return traced.graph


def test_the_heads_gradient_at_every_step_is_one_product() -> None:
    tf = pytest.importorskip("tensorflow")
    from lstmprof.implementations.tensorflow import lstmblockfusedcell

    module = lstmblockfusedcell.build(EVERY_STEP)

    def head_gradient(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(module(inputs))
        return tape.gradient(loss, module.head)

    nodes = graph(head_gradient, tf.TensorSpec([8, 2, 3])).as_graph_def().node
    products = [node.op for node in nodes if "MatMul" in node.op]
    assert products
    assert set(products) == {"MatMul"}  # a BatchMatMul would be one a time step, summed afterwards


def test_cudnn_is_told_the_lengths() -> None:
    tf = pytest.importorskip("tensorflow")
    from lstmprof.implementations.tensorflow import cudnnlstm

    module = cudnnlstm.build(LENGTHS)
    inputs, lengths = tf.TensorSpec([6, 3, 5]), tf.TensorSpec([3], tf.int32, name="lengths")

    def given(*shapes: Any) -> Any:
        made = graph(lambda *tensors: module(*tensors), *shapes)
        (layers,) = [op for op in made.get_operations() if op.type == "CudnnRNNV3"]
        assert layers.get_attr("time_major")
        return layers.inputs[4].op

    assert given(inputs, lengths).name == "lengths"
    assert given(inputs).type == "Fill"

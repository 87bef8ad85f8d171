"""tf-basiclstmcell's cell makes the loop of TensorFlow 1's own class, where tf-keras has it."""

import warnings
from collections import Counter
from typing import Any

import pytest


def operators(tf: Any, cell: Any) -> Counter[str]:
    """What the loop of dynamic_rnn with ``cell`` is made of: operator -> how many."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator, unused-ignore]
    def outputs(inputs: Any) -> Any:
        return tf.compat.v1.nn.dynamic_rnn(cell, inputs, dtype=tf.float32, time_major=True)[0]

    graph = outputs.get_concrete_function(tf.TensorSpec([7, 3, 4], tf.float32)).graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    return Counter(node.op for node in nodes if node.op not in ("Const", "Identity"))


def test_the_cell_is_tensorflows_own_operator_for_operator() -> None:
    tf = pytest.importorskip("tensorflow")
    legacy = pytest.importorskip("tf_keras.src.layers.rnn.legacy_cells", reason="no tf-keras")
    from lstmprof.implementations.tensorflow import basiclstmcell

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated: that is why it is written out
        theirs = operators(tf, legacy.BasicLSTMCell(5, forget_bias=0.0))
    ours = operators(tf, basiclstmcell.BasicLSTMCell(4, 5, "l0"))
    assert ours == theirs
    assert ours["MatMul"] == 1

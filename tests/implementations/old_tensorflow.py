"""A program of Python 3.7: rows in an old TensorFlow or Keras against the float64 reference.

Reads ``[[row, workload], …]`` as JSON from its input, writes a list of the relative errors, by what
is compared, to its last line of output.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np

from lstmprof import implementations, workloads
from lstmprof.capture.worker import loops, reference
from lstmprof.workloads import Workload

SEED = 5


def errors(name: str, workload: Workload) -> dict[str, float]:
    """What is compared -> the largest difference, relative to the largest element."""
    row = implementations.find(name)
    file: Any = importlib.import_module(row.module)
    loop = loops.loop_of(row)
    step = of_a_graph if loop.__name__.endswith("tensorflow1") else of_a_function
    loss, outputs, gradients, weights = step(loop, file, workload)
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.swapaxes(0, 1)
    shared = workloads.weights(workload, SEED)
    right = reference.outcome(workload, shared, workloads.batch(workload, SEED))
    found = {"loss": relative(loss, right.loss), "outputs": relative(outputs, right.outputs)}
    assert set(gradients) == set(right.gradients) == set(weights), sorted(gradients)
    for name, gradient in right.gradients.items():
        found[name] = relative(gradients[name], gradient)
        found["loaded " + name] = relative(weights[name], shared[name])
    return found


def relative(found: Any, expected: Any) -> float:
    """Of an expected zero found's size."""
    assert np.shape(found) == np.shape(expected)
    return float(np.abs(found - expected).max() / (np.abs(expected).max() or 1.0))


def of_a_graph(loop: Any, file: Any, workload: Workload) -> Any:
    """TensorFlow 1."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        module = file.build(workload)
        fed = loop.Fed(module, workload, file.TIME_MAJOR, SEED)
        session.run(tf.global_variables_initializer())
        file.load(module, workloads.weights(workload, SEED))
        own, loss = file.parameters(module), fed.loss()
        gradients = tf.gradients(loss, list(own.values()))
        nodes = [loss, fed.outputs, [tf.convert_to_tensor(each) for each in gradients]]
        number, outputs, arrays = session.run(nodes, fed.feed)
        there = dict(zip(own, session.run(list(own.values()))))
        return (
            float(number),
            outputs,
            file.canonical(module, dict(zip(own, arrays))),
            file.canonical(module, there),
        )


def of_a_function(loop: Any, file: Any, workload: Workload) -> Any:
    """TensorFlow 2."""
    import tensorflow as tf

    module = file.build(workload)
    file.load(module, workloads.weights(workload, SEED))
    own = file.parameters(module)

    def step(inputs: Any, lengths: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = module(inputs, *lengths)
            loss = loop.loss_of(workload, outputs, targets, file.TIME_MAJOR)
        gradients = tape.gradient(loss, list(own.values()))
        return loss, outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    batch = loop.batch_of(workload, SEED, file.TIME_MAJOR)
    made = tf.function(step, autograph=False)
    loss, outputs, gradients = made(*tf.nest.map_structure(tf.constant, batch))
    arrays = {name: each.numpy() for name, each in zip(own, gradients)}
    there = {name: variable.numpy() for name, variable in own.items()}
    return (
        float(loss),
        outputs.numpy(),
        file.canonical(module, arrays),
        file.canonical(module, there),
    )


def main() -> None:
    """Answer what is asked."""
    asked = [(name, Workload(**fields)) for name, fields in json.load(sys.stdin)]
    print(json.dumps([errors(name, workload) for name, workload in asked]))


if __name__ == "__main__":
    main()

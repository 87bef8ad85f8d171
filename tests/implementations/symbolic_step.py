"""One step of rows of Theano in Theano's own interpreter, which has no pytest.

Standard input: a JSON list of [row, workload's fields, seed]. Standard output: for each one the
errors of loss, outputs and every gradient against the float64 reference, each over the largest
element, and under ``way back`` whether the weights that were loaded came back.
"""

import importlib
import json
import sys

import numpy as np

from lstmprof import implementations, workloads
from lstmprof.capture.worker import loops, reference
from lstmprof.workloads import Workload


def errors(name, fields, seed):
    row, workload = implementations.find(name), Workload(**fields)
    library = loops.loop_for(row.framework).LIBRARY
    file = importlib.import_module(row.module)
    module, weights = file.build(workload), workloads.weights(workload, seed)
    file.load(module, weights)
    own, batch = file.parameters(module), workloads.batch(workload, seed)
    arrays = {name: variable.get_value() for name, variable in own.items()}
    back = file.canonical(module, arrays)
    loss, outputs, gradients = step(library, file, workload, module, batch)
    right = reference.outcome(workload, weights, batch)
    found = {"loss": abs(loss - right.loss) / abs(right.loss)}
    found["outputs"] = relative(outputs, right.outputs)
    for name, expected in right.gradients.items():
        found[name] = relative(file.canonical(module, gradients)[name], expected)
    found["way back"] = all(np.array_equal(back[name], weights[name]) for name in weights)
    return found


def step(library, file, workload, module, batch):
    own, symbols = file.parameters(module), library.symbols(workload)
    inputs, targets, lengths = symbols
    known = (lengths,) if workload.variable_length else ()
    outputs = file.apply(module, inputs, None, *known)
    loss = library.loss_of(workload, outputs, targets, file.TIME_MAJOR)
    wanted = [loss, outputs, *library.package.grad(loss, list(own.values()))]
    function = library.package.function(list(symbols), wanted, on_unused_input="ignore")
    given = batch.inputs
    if not file.TIME_MAJOR:
        given = np.ascontiguousarray(given.swapaxes(0, 1))
    loss, outputs, *gradients = function(given, batch.targets, batch.lengths)
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.swapaxes(0, 1)
    return float(loss), outputs, dict(zip(own, gradients))


def relative(found, expected):
    """Against an expected zero found's size."""
    assert np.shape(found) == np.shape(expected), (np.shape(found), np.shape(expected))
    return float(np.abs(found - expected).max() / (np.abs(expected).max() or 1.0))


if __name__ == "__main__":
    answers = [errors(*asked) for asked in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)

"""A program of Python 3.7: rows of Chainer, MXNet and Caffe2 against the float64 reference.

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
    loop: Any = loops.loop_for(row.framework)
    shared, batch = workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    module = file.build(workload)
    file.load(module, shared)
    loss, outputs, gradients, weights = STEPS[row.framework](loop, file, module, workload, batch)
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.swapaxes(0, 1)
    right = reference.outcome(workload, shared, batch)
    found = {"loss": relative(loss, right.loss), "outputs": relative(outputs, right.outputs)}
    assert set(gradients) == set(right.gradients) == set(weights), sorted(gradients)
    for name, gradient in right.gradients.items():
        found[name] = relative(gradients[name], gradient)
        found["loaded " + name] = relative(weights[name], shared[name])
    return found


def relative(found: Any, expected: Any) -> float:
    """Of an expected zero found's size."""
    assert np.shape(found) == np.shape(expected), (np.shape(found), np.shape(expected))
    return float(np.abs(found - expected).max() / (np.abs(expected).max() or 1.0))


def of_chainer(loop: Any, file: Any, module: Any, workload: Workload, batch: Any) -> Any:
    """Chainer's functions and their gradients."""
    inputs = batch.inputs if file.TIME_MAJOR else batch.inputs.swapaxes(0, 1)
    known = (batch.lengths,) if workload.variable_length else ()
    outputs = module(np.ascontiguousarray(inputs), *known)
    loss = loop.loss_of(workload, outputs, batch.targets, batch.lengths, file.TIME_MAJOR)
    module.cleargrads()
    loss.backward()
    own = file.parameters(module)
    # A parameter that no output depends on has None: it was multiplied by the first state, zeros.
    arrays = {name: np.zeros(p.shape) if p.grad is None else p.grad for name, p in own.items()}
    gradients = file.canonical(module, arrays)
    weights = file.canonical(module, {name: p.array for name, p in own.items()})
    return float(loss.array), outputs.array, gradients, weights


def of_mxnet(loop: Any, file: Any, module: Any, workload: Workload, batch: Any) -> Any:
    """A Block under autograd, or a graph that Module runs."""
    import mxnet as mx

    given = loop.given(workload, batch, file.TIME_MAJOR)
    arrays = {name: mx.nd.array(array) for name, array in given.items()}
    own = file.parameters(module)
    if hasattr(file, "apply"):
        network = loop.ModuleNetwork(file, module, workload, False)
        outputs = network.outputs.eval(mx.cpu(), inputs=arrays["inputs"], **own)[0]
        data = [array for name, array in arrays.items() if name != "targets"]
        labels = [array for name, array in arrays.items() if name == "targets"]
        network.module.forward_backward(mx.io.DataBatch(data, labels or None))
        loss = network.module.get_outputs()[0]
        (executor,) = network.module._exec_group.execs
        gradients = {name: executor.grad_dict[name].asnumpy() for name in own}
        weights = {name: executor.arg_dict[name].asnumpy() for name in own}
    else:
        known = [arrays["lengths"]] if workload.variable_length else []
        with mx.autograd.record():
            outputs = module(arrays["inputs"], *known)
            loss = loop.loss_of(mx.nd, workload, outputs, arrays, file.TIME_MAJOR)
        loss.backward()
        gradients = {name: p.grad().asnumpy() for name, p in own.items()}
        weights = {name: p.data().asnumpy() for name, p in own.items()}
    return (
        float(loss.asnumpy().ravel()[0]),
        outputs.asnumpy(),
        file.canonical(module, gradients),
        file.canonical(module, weights),
    )


def of_caffe2(loop: Any, file: Any, module: Any, workload: Workload, batch: Any) -> Any:
    """A net of all phases, run once; its blobs."""
    from caffe2.python import core, workspace

    for name, array in loop.given(workload, batch).items():
        workspace.FeedBlob(name, array)
    assert [phase for phase, _, _ in loop.phases(workload, module, False)][-1] == "optimizer"
    model, own = module.model, file.parameters(module)
    workspace.RunNetOnce(model.param_init_net)
    file.load(module, workloads.weights(workload, SEED))
    weights = {name: workspace.FetchBlob(name) for name in own}
    workspace.CreateNet(model.net)
    workspace.RunNet(model.net.Proto().name)
    blobs = {name: str(model.param_to_grad[core.BlobReference(name)]) for name in own}
    gradients = {name: workspace.FetchBlob(blob) for name, blob in blobs.items()}
    return (
        float(workspace.FetchBlob(loop.LOSS)),
        workspace.FetchBlob(str(module.outputs)),
        file.canonical(module, gradients),
        file.canonical(module, weights),
    )


STEPS = {"chainer": of_chainer, "mxnet": of_mxnet, "caffe2": of_caffe2}


def main() -> None:
    """Answer what is asked."""
    asked = [(name, Workload(**fields)) for name, fields in json.load(sys.stdin)]
    print(json.dumps([errors(name, workload) for name, workload in asked]))


if __name__ == "__main__":
    main()

"""Runs the lines that build networks, in one process of a framework, and says what came out.

Reads a JSON list of (code, framework, shape of the inputs) from its input; writes a list of
{"shape": …, "untrained": parameters without a gradient, null where the lines only run forward}.
Compilers, which change neither, are left out.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def of_torch(scope: dict[str, Any], inputs: Any) -> Any:
    import torch

    network = scope["network"]
    outputs = network(torch.from_numpy(inputs))
    if "exported" in scope:
        return outputs, None
    outputs.sum().backward()
    return outputs, [n for n, p in network.named_parameters() if p.grad is None]


def of_tensorflow(scope: dict[str, Any], inputs: Any) -> Any:
    import tensorflow as tf

    network = scope["network"]
    if "CudnnRNNV3" in scope["code"]:  # no kernel on a CPU: its graph alone
        spec = tf.TensorSpec(inputs.shape, tf.float32)
        return tf.function(network).get_concrete_function(spec).outputs[0], None

    @tf.function
    def gradients(given: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = network(given)
            total = tf.reduce_sum(outputs)
        found = tape.gradient(total, network.trainable_variables)
        untrained.extend(
            v.name for v, g in zip(network.trainable_variables, found, strict=True) if g is None
        )
        return outputs

    untrained: list[str] = []
    return gradients(tf.constant(inputs)), untrained


def called_lstm(
    x: Any, h: Any, c: Any, weights: Any, lengths: Any, *sizes: Any, **more: Any
) -> Any:
    """In place of cuDNN's: zeros, where the weights and states are those of the sizes."""
    import jax
    from jax.experimental import rnn

    inputs, hidden, layers, _, both = sizes
    assert weights.shape == (rnn.get_num_params_in_lstm(inputs, hidden, layers, both),)
    assert h.shape == c.shape == (layers * (1 + both), len(x), hidden)
    assert lengths.shape == (len(x),)
    return jax.numpy.zeros((*x.shape[:2], hidden * (1 + both))), h, c


def of_jax(scope: dict[str, Any], inputs: Any) -> Any:
    import jax

    network = scope["network"]
    if "jax.experimental" in scope["code"]:  # no kernel on a CPU: what it is called with
        scope["rnn"].lstm = called_lstm
        return jax.eval_shape(network, scope["parameters"], inputs), None
    if hasattr(network, "init"):
        call = network.apply
        parameters = jax.eval_shape(network.init, jax.random.key(0), inputs)
    elif "parameters" in scope:
        call, parameters = network, scope["parameters"]
    else:  # equinox: a module is a tree of its parameters
        call, parameters = (lambda module, given: jax.vmap(module)(given)), network
    # traced and not compiled, which takes a second a network
    jax.eval_shape(jax.grad(lambda values: call(values, inputs).sum()), parameters)
    return jax.eval_shape(call, parameters, inputs), None


def of_pytensor(scope: dict[str, Any], inputs: Any) -> Any:
    import pytensor

    gradients = pytensor.grad(scope["scores"].sum(), scope["parameters"])
    untrained = [str(g) for g in gradients if g is None]
    return scope["network"](inputs), untrained


def of_others(scope: dict[str, Any], inputs: Any) -> Any:
    if "jax" in sys.argv:  # as above: called by itself each of its ops would be compiled
        import jax

        return jax.eval_shape(scope["network"], inputs), None
    return scope["network"](inputs), None


RUN = {
    "torch": of_torch,
    "tensorflow": of_tensorflow,
    "jax": of_jax,
    "pytensor": of_pytensor,
}


def without_compilers() -> None:
    if "torch" not in sys.argv:
        return
    import torch

    torch.compile = lambda module: module
    torch._inductor.aoti_compile_and_package = lambda exported: exported
    torch._inductor.aoti_load_package = lambda package: package.module()


def outcome(code: str, framework: str, size: list[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:  # torch.jit.script reads its source
        path = Path(folder) / "network.py"
        path.write_text(code, encoding="utf-8")
        scope = {**runpy.run_path(str(path)), "code": code}
    inputs = np.ones(size, np.float32)
    run = of_others if "keras" in scope else RUN.get(framework, of_others)
    outputs, untrained = run(scope, inputs)
    return {"shape": [int(n) for n in outputs.shape], "untrained": untrained}


if __name__ == "__main__":
    gc.disable()  # what a framework imports stays: a fifth of the CPU time went to looking at it
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", PYTENSOR_FLAGS="cxx=")
    asked = json.load(sys.stdin)
    lines = os.dup(1)
    os.dup2(2, 1)
    without_compilers()
    answer = json.dumps([outcome(*one) for one in asked])
    os.write(lines, answer.encode())
    gc.freeze()

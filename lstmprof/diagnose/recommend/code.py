"""The lines that build an implementation's network, for a user to paste: without lstmprof.

What has no lines of its own here, and networks that need more than layers and a head, are built as
lstmprof builds them. ``tests`` run each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Template

from lstmprof import implementations
from lstmprof.workloads import Workload

_TORCH_LAYER = """\
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.$cell($features, $hidden, $layers, bidirectional=$bidirectional)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        outputs, _ = self.lstm(inputs)
        return self.head($seen)

network = Network()
"""
_TORCH_CELL = """\
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell($features, $hidden)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        h = c = inputs.new_zeros(inputs.shape[1], $hidden)
        outputs = []
        for x in inputs.unbind(0):  # not inputs[t], whose gradient fills zeros at every step
            h, c = self.cell(x, (h, c))
            outputs.append(h)
        return self.head($stacked)

network = Network()
"""
_TORCH_BY_HAND = """\
import torch

$decorator
def cell(x, h, c, w, u, b):
    i, f, g, o = (x @ w + h @ u + b).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        shapes = ($features, 4 * $hidden), ($hidden, 4 * $hidden), (4 * $hidden,)
        drawn = [torch.nn.Parameter(torch.empty(s).uniform_(-0.05, 0.05)) for s in shapes]
        self.weights = torch.nn.ParameterList(drawn)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        h = c = inputs.new_zeros(inputs.shape[1], $hidden)
        outputs = []
        for x in inputs.unbind(0):
            h, c = cell(x, h, c, *self.weights)
            outputs.append(h)
        return self.head($stacked)

network = Network()
"""
_KERAS = """\
import os

os.environ["KERAS_BACKEND"] = "$backend"  # before keras is imported
import keras

network = keras.Sequential([
    keras.layers.Input(($time_steps, $features)),
$keras_layers
])
"""
_BLOCK = """\
import tensorflow as tf

class Network(tf.Module):
    def __init__(self):
        shape = [$features + $hidden, 4 * $hidden]
        self.kernel = tf.Variable(tf.random.uniform(shape, -0.05, 0.05))  # gates i c f o
        self.bias = tf.Variable(tf.zeros([4 * $hidden]))
        self.head = tf.Variable(tf.random.uniform([$hidden, $classes], -0.05, 0.05))

    def __call__(self, inputs):  # (time, batch, features)
        state, peephole = tf.zeros([inputs.shape[1], $hidden]), tf.zeros([$hidden])
        outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant($time_steps, tf.int64), x=inputs, cs_prev=state, h_prev=state,
            w=self.kernel, wci=peephole, wcf=peephole, wco=peephole, b=self.bias,
            forget_bias=0.0, cell_clip=-1.0,
        ).h
        return tf.tensordot($seen, self.head, 1)

network = Network()
"""
_SCAN = """\
import jax
import jax.numpy as jnp

shapes = {"w": ($features, 4 * $hidden), "u": ($hidden, 4 * $hidden), "b": (4 * $hidden,)}
shapes["head"] = ($hidden, $classes)
keys = jax.random.split(jax.random.key(0), len(shapes))
parameters = {n: 0.05 * jax.random.normal(k, s) for (n, s), k in zip(shapes.items(), keys)}

def network(parameters, inputs):  # (time, batch, features); under jax.jit, with its gradient
    def cell(state, x):
        h, c = state
        gates = x @ parameters["w"] + h @ parameters["u"] + parameters["b"]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((inputs.shape[1], $hidden))
    _, outputs = jax.lax.scan(cell, (zeros, zeros), inputs)
    return $seen @ parameters["head"]
"""
_FLAX = """\
from flax import linen

class Network(linen.Module):
    @linen.compact
    def __call__(self, inputs):  # (batch, time, features)
        outputs = inputs
        for _ in range($layers):
            outputs = $flax_layer(outputs)
        return linen.Dense($classes, use_bias=False)($seen_batch_major)

network = Network()  # parameters = network.init(jax.random.key(0), inputs)
"""
_AS_BUILT = """\
from lstmprof.implementations.$folder import $module
from lstmprof.workloads import Workload

workload = Workload($fields)
network = $module.build(workload)  # the file lstmprof/implementations/$folder/$module.py
"""

#: Whether a network is one layer of one direction, which is all that some lines build.
_Fits = Callable[[Workload], bool]


def _one_lstm(w: Workload) -> bool:
    return _lstms(w) and w.layers == 1 and not w.bidirectional and w.head


def _lstms(w: Workload) -> bool:
    return w.cell == "lstm"


def _any(w: Workload) -> bool:
    return True


def _with_head(w: Workload) -> bool:
    return w.head and w.cell in ("lstm", "gru")


#: Implementation → its lines, and the networks that they build
TEMPLATES: Mapping[str, tuple[str, _Fits]] = {
    "torch-lstmcell-basic": (_TORCH_BY_HAND.replace("$decorator\n", ""), _one_lstm),
    "torch-lstmcell-fused": (_TORCH_CELL, _one_lstm),
    "torch-cudnn": (_TORCH_LAYER, _any),
    "torch-script": (_TORCH_BY_HAND.replace("$decorator", "@torch.jit.script"), _one_lstm),
    "torch-compile": (_TORCH_BY_HAND.replace("$decorator", "@torch.compile"), _one_lstm),
    "torch-compile-layer": (
        _TORCH_LAYER.replace("network = Network()", "network = torch.compile(Network())"),
        _any,
    ),
    "tf-lstmblockfusedcell": (_BLOCK, _one_lstm),
    "keras-lstm": (_KERAS, _any),
    "keras-lstm-mode1": (_KERAS, _any),
    "keras-lstm-mode2": (_KERAS, _any),
    "keras-torch-lstm": (_KERAS, _any),
    "keras-jax-lstm": (_KERAS, _any),
    "jax-scan": (_SCAN, _one_lstm),
    "flax-lstm": (_FLAX, _with_head),
}
#: What makes Keras take the mode of a row
_MODES = {f"keras-lstm-mode{mode}": f", implementation={mode}, use_cudnn=False" for mode in (1, 2)}


def code_of(implementation: str, workload: Workload) -> str:
    """The lines that build ``implementation``'s network of ``workload``."""
    row = implementations.ROWS.get(implementation)
    if row is None:
        return f"# {implementation} is your own file: it has the code\n"
    template, fits = TEMPLATES.get(row.name, ("", _any))
    plain = not workload.vocabulary and not workload.variable_length
    if not template or not plain or not fits(workload):
        return _as_built(row.file, workload)
    return Template(template).substitute(_values(row.name, row.framework, workload))


def _as_built(file: str, workload: Workload) -> str:
    folder, _, module = file.rpartition(".")
    folder, module = (folder, module) if folder else (file, "__init__")
    given = {name: value for name, value in vars(workload).items() if value is not None}
    fields = ", ".join(f"{name}={value!r}" for name, value in given.items())
    values = {"folder": folder, "module": module, "fields": fields}
    return _wrapped(Template(_AS_BUILT).substitute(values))


def _wrapped(text: str) -> str:
    """The fields of the workload on lines of their own, four a line."""
    head, fields, tail = re.split(r"Workload\((?=name)|\)\nnetwork", text)
    parts = fields.split(", ")
    lines = [", ".join(parts[at : at + 4]) for at in range(0, len(parts), 4)]
    body = "".join(f"    {line},\n" for line in lines)
    return f"{head}Workload(\n{body})\nnetwork{tail}"


def _values(name: str, framework: str, w: Workload) -> dict[str, object]:
    cell = w.cell.upper()
    head = f"torch.nn.Linear({w.directions * w.hidden}, {w.classes}, bias=False)"
    return {
        "cell": cell,
        "features": w.features,
        "hidden": w.hidden,
        "layers": w.layers,
        "bidirectional": w.bidirectional,
        "classes": w.classes,
        "time_steps": w.time_steps,
        "torch_head": head if w.head else "torch.nn.Identity()",
        "seen": "outputs" if w.every_step else "outputs[-1]",
        "seen_batch_major": "outputs" if w.every_step else "outputs[:, -1]",
        "stacked": "torch.stack(outputs)" if w.every_step else "h",
        "backend": framework,
        "keras_layers": "\n".join(_keras_layers(name, w)),
        "flax_layer": _flax_layer(w),
    }


def _keras_layers(name: str, w: Workload) -> list[str]:
    called = {"lstm": "LSTM", "gru": "GRU", "rnn": "SimpleRNN"}[w.cell]
    mode = _MODES.get(name, "") if w.cell != "rnn" else ""
    lines = []
    for number in range(w.layers):
        every = w.every_step or number < w.layers - 1
        layer = f"keras.layers.{called}({w.hidden}, return_sequences={every}{mode})"
        lines.append(
            f"    keras.layers.Bidirectional({layer})," if w.bidirectional else f"    {layer},"
        )
    head = [f"    keras.layers.Dense({w.classes}, use_bias=False),"] if w.head else []
    return lines + head


def _flax_layer(w: Workload) -> str:
    cell = {"lstm": "OptimizedLSTMCell", "gru": "GRUCell"}.get(w.cell, "SimpleCell")
    one = f"linen.RNN(linen.{cell}({w.hidden}))"
    return f"linen.Bidirectional({one}, {one})" if w.bidirectional else one

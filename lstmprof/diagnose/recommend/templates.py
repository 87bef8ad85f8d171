"""Templates of Python code for each implementation's network. ``code.py`` fills in the sizes."""

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

"""
LAYER = _TORCH_LAYER + "network = Network()\n"
COMPILED_LAYER = _TORCH_LAYER + "network = torch.compile(Network())\n"
EXPORTED_LAYER = (
    _TORCH_LAYER
    + """\
inputs = torch.zeros($time_steps, $batch, $features)
with torch.no_grad():
    exported = torch.export.export(Network().eval(), (inputs,))
    package = torch._inductor.aoti_compile_and_package(exported)
network = torch._inductor.aoti_load_package(package)  # forward pass only, for inputs of this shape
"""
)
CELL = """\
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell($features, $hidden)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        h = c = inputs.new_zeros(inputs.shape[1], $hidden)
        outputs = []
        for x in inputs.unbind(0):  # inputs[t] would fill a gradient with zeros at every step
            h, c = self.cell(x, (h, c))
            outputs.append(h)
        return self.head($stacked)

network = Network()
"""
_BY_HAND = """\
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
BY_HAND = "import torch\n\n" + _BY_HAND
SCRIPTED = "import torch\n\n@torch.jit.script\n" + _BY_HAND
COMPILED_CELL = "import torch\n\n@torch.compile\n" + _BY_HAND


KERAS = """\
import os

os.environ["KERAS_BACKEND"] = "$backend"  # before keras is imported
import keras

network = keras.Sequential([
    keras.layers.Input(($time_steps, $features)),
$keras_layers
])
"""
PYTENSOR = """\
import numpy as np
import pytensor
import pytensor.tensor as pt

drawn = np.random.default_rng(0)
shapes = ($features, 4 * $hidden), ($hidden, 4 * $hidden), (4 * $hidden,), ($hidden, $classes)
arrays = [drawn.uniform(-0.05, 0.05, shape).astype("float32") for shape in shapes]
w, u, b, head = parameters = [pytensor.shared(array) for array in arrays]

def cell(x, h, c, w, u, b):
    gates = pt.dot(x, w) + pt.dot(h, u) + b
    i, f, g, o = (gates[:, k * $hidden : (k + 1) * $hidden] for k in range(4))
    c = pt.sigmoid(f) * c + pt.sigmoid(i) * pt.tanh(g)
    return pt.sigmoid(o) * pt.tanh(c), c

inputs = pt.ftensor3("inputs")  # (time, batch, features)
zeros = pt.zeros((inputs.shape[1], $hidden), dtype="float32")
outputs, _ = pytensor.scan(cell, inputs, [zeros, zeros], [w, u, b], return_updates=False)
scores = pt.dot($seen, head)  # to train: pytensor.grad(loss, parameters)
network = pytensor.function([inputs], scores, mode="CVM")
"""
_ONNX = """\
import numpy as np
from onnx import TensorProto, helper, numpy_helper

drawn = np.random.default_rng(0)
shapes = {"w": (1, 4 * $hidden, $features), "r": (1, 4 * $hidden, $hidden), "b": (1, 8 * $hidden)}
shapes["head"] = ($hidden, $classes)
arrays = {n: drawn.uniform(-0.05, 0.05, s).astype("float32") for n, s in shapes.items()}
arrays["axes"] = np.array([$onnx_axis])
nodes = [
    helper.make_node("LSTM", ["inputs", "w", "r", "b"], $onnx_outputs, hidden_size=$hidden),
    helper.make_node("Squeeze", ["seen", "axes"], ["squeezed"]),
    helper.make_node("MatMul", ["squeezed", "head"], ["outputs"]),
]
size = $time_steps, $batch, $features  # (time, batch, features)
inputs = helper.make_tensor_value_info("inputs", TensorProto.FLOAT, size)
outputs = helper.make_tensor_value_info("outputs", TensorProto.FLOAT, None)
weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
graph = helper.make_graph(nodes, "network", [inputs], [outputs], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
"""
ONNX_RUNTIME = (
    _ONNX
    + """
import onnxruntime

session = onnxruntime.InferenceSession(model.SerializeToString())

def network(inputs):  # forward pass only
    return session.run(None, {"inputs": inputs})[0]
"""
)
OPENVINO = (
    _ONNX
    + """
import openvino

core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU")

def network(inputs):  # forward pass only
    return compiled(inputs)[0]
"""
)


SCAN = """\
import jax
import jax.numpy as jnp

shapes = {"w": ($features, 4 * $hidden), "u": ($hidden, 4 * $hidden), "b": (4 * $hidden,)}
shapes["head"] = ($hidden, $classes)
keys = jax.random.split(jax.random.key(0), len(shapes))
parameters = {n: 0.05 * jax.random.normal(k, s) for (n, s), k in zip(shapes.items(), keys)}

def network(parameters, inputs):  # (time, batch, features); call in jax.jit
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
FLAX = """\
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
EQUINOX = """\
import equinox
import jax
import jax.numpy as jnp

class Network(equinox.Module):
    cell: equinox.nn.LSTMCell
    head: equinox.nn.Linear

    def __init__(self, key):
        one, other = jax.random.split(key)
        self.cell = equinox.nn.LSTMCell($features, $hidden, key=one)
        self.head = equinox.nn.Linear($hidden, $classes, use_bias=False, key=other)

    def __call__(self, inputs):  # one sequence (time, features)
        def step(state, x):
            h, c = self.cell(x, state)
            return (h, c), h

        zeros = jnp.zeros($hidden)
        _, outputs = jax.lax.scan(step, (zeros, zeros), inputs)
        return $equinox_head

network = Network(jax.random.key(0))  # in equinox.filter_jit: jax.vmap(network)(batch)
"""
HAIKU = """\
import haiku

def outputs_of(inputs):  # (time, batch, features)
    outputs = inputs
    for _ in range($layers):
        core = haiku.LSTM($hidden)
        outputs, _ = haiku.dynamic_unroll(core, outputs, core.initial_state(inputs.shape[1]))
    return haiku.Linear($classes, with_bias=False)($seen)

network = haiku.without_apply_rng(haiku.transform(outputs_of))
# parameters = network.init(jax.random.key(0), inputs); call network.apply inside jax.jit
"""
CUDNN = """\
import jax
import jax.numpy as jnp
from jax.experimental import rnn

count = rnn.get_num_params_in_lstm($features, $hidden, $layers, $bidirectional)
shapes = {"lstm": (count,), "head": ($width, $classes)}
keys = jax.random.split(jax.random.key(0), len(shapes))
parameters = {n: 0.05 * jax.random.normal(k, s) for (n, s), k in zip(shapes.items(), keys)}

def network(parameters, inputs):  # (batch, time, features); call in jax.jit on an NVIDIA GPU
    batch, time_steps = inputs.shape[:2]
    state = jnp.zeros(($layers * $directions, batch, $hidden))
    lengths = jnp.full(batch, time_steps, jnp.int32)
    outputs, _, _ = rnn.lstm(
        inputs, state, state, parameters["lstm"], lengths,
        $features, $hidden, $layers, 0.0, $bidirectional,
    )
    return $seen_batch_major @ parameters["head"]
"""


_IMPORT = "import tensorflow as tf\n\n"
_CALLED = "\nnetwork = Network()  # call in a tf.function, with its gradient\n"
_WEIGHTS = """\
        shape = [$features + $hidden, 4 * $hidden]
        self.kernel = tf.Variable(tf.random.uniform(shape, -0.05, 0.05))  # gates i c f o
        self.bias = tf.Variable(tf.zeros([4 * $hidden]))
"""
_HEAD = """\
        self.head = tf.Variable(tf.random.uniform([$width, $classes], -0.05, 0.05))
"""
_NETWORK = f"""\
class Network(tf.Module):
    def __init__(self):
{_WEIGHTS}{_HEAD}
    def __call__(self, inputs):  # (time, batch, features)
"""
#: Template of a loop over time steps that calls a cell with its input x and its states h, c.
_LOOP = """\
        start = 0, zeros, zeros, tf.TensorArray(tf.float32, $time_steps)
        _, h, _, outputs = tf.while_loop(lambda t, *_: t < $time_steps, step, start)
        return tf.tensordot($tf_stacked, self.head, 1)
"""

WHILE_LOOP = f"""\
{_IMPORT}{_NETWORK}\
        x = tf.TensorArray(tf.float32, $time_steps).unstack(inputs)
        zeros = tf.zeros([inputs.shape[1], $hidden])

        def step(t, h, c, outputs):
            gates = tf.concat([x.read(t), h], 1) @ self.kernel + self.bias
            i, j, f, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            return t + 1, h, c, outputs.write(t, h)

{_LOOP}{_CALLED}"""

DYNAMIC_RNN = f"""\
{_IMPORT}\
class Cell(tf.Module):  # does what BasicLSTMCell of the package tf-keras does
    output_size, state_size, get_initial_state = $hidden, ($hidden, $hidden), None

    def __init__(self):
{_WEIGHTS}
    def zero_state(self, batch, dtype):
        return tf.zeros([batch, $hidden], dtype), tf.zeros([batch, $hidden], dtype)

    def __call__(self, x, state):
        c, h = state
        i, j, f, o = tf.split(tf.concat([x, h], 1) @ self.kernel + self.bias, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, (c, h)

class Network(tf.Module):
    def __init__(self):
        self.cell = Cell()
{_HEAD}
    def __call__(self, inputs):  # (time, batch, features)
        outputs, _ = tf.compat.v1.nn.dynamic_rnn(
            self.cell, inputs, dtype=tf.float32, time_major=True
        )
        return tf.tensordot($seen, self.head, 1)
{_CALLED}"""

BLOCK_CELL = f"""\
{_IMPORT}\
@tf.custom_gradient  # TensorFlow 2 registers no gradient of LSTMBlockCell
def cell(x, h, c, kernel, bias):
    given = {{"x": x, "h_prev": h, "cs_prev": c, "w": kernel, "b": bias, "use_peephole": False}}
    given.update(dict.fromkeys(("wci", "wcf", "wco"), tf.zeros([$hidden])))
    block = tf.raw_ops.LSTMBlockCell(forget_bias=0.0, cell_clip=-1.0, **given)

    def gradients(h_grad, c_grad):
        kept = {{name: getattr(block, name) for name in ("i", "cs", "f", "o", "ci", "co")}}
        found = tf.raw_ops.LSTMBlockCellGrad(cs_grad=c_grad, h_grad=h_grad, **kept, **given)
        both = tf.matmul(found.dicfo, kernel, transpose_b=True)
        x_grad, h_before = tf.split(both, [x.shape[1], $hidden], 1)
        kernel_grad = tf.matmul(tf.concat([x, h], 1), found.dicfo, transpose_a=True)
        return x_grad, h_before, found.cs_prev_grad, kernel_grad, tf.reduce_sum(found.dicfo, 0)

    return (block.h, block.cs), gradients

{_NETWORK}\
        x = tf.TensorArray(tf.float32, $time_steps).unstack(inputs)
        zeros = tf.zeros([inputs.shape[1], $hidden])
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)

        def step(t, h, c, outputs):
            h, c = cell(x.read(t), h, c, kernel, bias)
            return t + 1, h, c, outputs.write(t, h)

{_LOOP}{_CALLED}"""

BLOCK_LAYER = f"""\
{_IMPORT}{_NETWORK}\
        state, peephole = tf.zeros([inputs.shape[1], $hidden]), tf.zeros([$hidden])
        outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant($time_steps, tf.int64), x=inputs, cs_prev=state, h_prev=state,
            w=self.kernel, wci=peephole, wcf=peephole, wco=peephole, b=self.bias,
            forget_bias=0.0, cell_clip=-1.0,
        ).h
        return tf.tensordot($seen, self.head, 1)
{_CALLED}"""

CUDNN_LAYER = f"""\
{_IMPORT}\
class Network(tf.Module):
    def __init__(self):
        weights = tf.random.uniform([$cudnn_size], -0.05, 0.05)  # cuDNN wants one array
        self.weights = tf.Variable(weights)
{_HEAD}
    def __call__(self, inputs):  # (time, batch, features), on an NVIDIA GPU
        state = tf.zeros([$layers * $directions, inputs.shape[1], $hidden])
        outputs = tf.raw_ops.CudnnRNNV3(
            input=inputs, input_h=state, input_c=state, params=tf.convert_to_tensor(self.weights),
            sequence_lengths=tf.fill([inputs.shape[1]], $time_steps), rnn_mode="lstm",
            direction="$direction", is_training=True, time_major=True,
        ).output
        return tf.tensordot($seen, self.head, 1)
{_CALLED}"""

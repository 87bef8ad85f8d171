"""Code that builds the networks of Keras, PyTensor, and engines that run an ONNX graph."""

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
scores = pt.dot($seen, head)  # pytensor.grad of a loss of them by the parameters
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

def network(inputs):  # forward alone
    return session.run(None, {"inputs": inputs})[0]
"""
)
OPENVINO = (
    _ONNX
    + """
import openvino

core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU")

def network(inputs):  # forward alone
    return compiled(inputs)[0]
"""
)

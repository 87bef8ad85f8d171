"""The implementations of the LSTM, one a file, in the order in which they are shown.

A file of the table has

``build(workload)``
    the framework's own module with every parameter made; called with inputs in the framework's
    native layout, and for a workload of variable length with the lengths (batch,), it returns the
    head's outputs: of the last time step, or of every one (``Workload.every_step``)
``load(module, weights)``
    sets the shared NumPy weights (names and layout of ``workloads.parameter_shapes``)
``parameters(module)``
    own name -> trainable variable, in the module's order
``canonical(module, arrays)``
    the way back: NumPy arrays by own name, one a parameter, in the shared names and layout
``apply(module, arrays, inputs)``, of JAX, where modules are not called
    the outputs as a pure function of ``arrays``, one a parameter by own name; lengths as above
``apply(module, inputs, mode)``, of PyTensor, where modules are not called either
    the symbolic outputs
``build(workload, training, tf32)``, of cuDNN, whose modules are called neither
    ``forward()`` and ``backward()`` between the module's buffers on the device
``TIME_MAJOR``
    whether inputs (and outputs of every step) are (time, batch, …) or (batch, time, …)
``mixed_precision(precision)``
    TensorFlow's rows alone: to be called before ``build`` for ``amp-fp16`` and ``amp-bf16``
``forward(module, graph)``, of ONNX, where an engine is given the whole graph
    the network's nodes, added to ``graph``; the name of the outputs
``KERNELS``
    (operator, words): the first operator found in a profile says which kernels really ran

No loss, loop, timing, device or CLI: those exist once a framework, in ``capture``. What the files
of a folder share is in its ``__init__``; a name that starts with an underscore is no row's.

Keeps to the standard library and Python 3.7; an implementation's file is imported only by the
worker that runs it.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Mapping, Optional, Tuple

from lstmprof.errors import unknown_name
from lstmprof.implementations._refusals import (
    FRAMEWORKS,
    GRAPH_REWRITE,
    LATER,
    NO_FLOAT16_ONEDNN,
    UNUSUAL,
)

__all__ = [
    "CELL_OP",
    "FORMS",
    "FRAMEWORKS",
    "LAYER_OP",
    "LOOP",
    "ROWS",
    "TABLE",
    "UNUSUAL",
    "Implementation",
    "find",
]

#: How a layer is computed: a cell written in the framework's operators, time step after time step;
#: one operator, or one compiled region, a time step; one operator a layer.
LOOP, CELL_OP, LAYER_OP = FORMS = ("loop", "cell op", "layer op")


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One row of the table.

    ``form`` is one of ``FORMS``, ``form_on_gpu`` where it is another on a GPU. ``library`` is whose
    layer it is, where it is neither the framework's own nor written here; ``by_hand`` whether the
    cell is written here in operators, so that what is in it can be changed.
    ``refuses`` maps what this row cannot do to the reason, in the words that a user is shown:
    ``cpu``, ``cuda``, ``train``, ``forward``, ``bidirectional``, ``layers``, ``ctc``,
    ``cuda-graph``, ``xla``, ``keep-denormals``, ``no-onednn``, ``anomaly``, ``deterministic``, a
    precision, or two at once (``tf32 on cpu``, ``cuda-graph on cpu``, ``xla of ctc``).
    What its framework cannot do is in ``FRAMEWORKS``.
    """

    name: str
    file: str  # dotted, beneath this folder
    framework: str  # a key of FRAMEWORKS: which loop in capture/ runs it
    form: str
    summary: str
    refuses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Tuple[str, ...] = ()
    knows: Tuple[str, ...] = ()  # of UNUSUAL
    settles_after: int = 3  # iterations until it takes as long as ever after
    form_on_gpu: Optional[str] = None
    library: str = ""
    by_hand: bool = False

    @property
    def module(self) -> str:
        """The importable name of its file."""
        return "lstmprof.implementations." + self.file

    def form_on(self, device: str) -> str:
        """How it computes a layer on ``cpu`` or ``cuda``."""
        return self.form_on_gpu if self.form_on_gpu and device == "cuda" else self.form

    def refusals(self) -> Dict[str, str]:
        """What it cannot do -> the reason, its framework's included."""
        unknown = {need: why for need, why in UNUSUAL.items() if need not in self.knows}
        return dict(unknown, **FRAMEWORKS[self.framework], **self.refuses)


_OTHER_NETWORKS = ("mean", "no head", "each step", "tokens", "sgd")
_OTHER_NETWORKS_AND_LENGTHS = (*_OTHER_NETWORKS, "variable length")

TABLE: Tuple[Implementation, ...] = (
    Implementation(
        "torch-lstmcell-basic",
        "torch.lstmcell_basic",
        "torch",
        LOOP,
        "cell written by hand, Python loop over time steps",
        knows=_OTHER_NETWORKS_AND_LENGTHS,
        by_hand=True,
    ),
    Implementation(
        "torch-lstmcell-fused",
        "torch.lstmcell_fused",
        "torch",
        CELL_OP,
        "torch.nn.LSTMCell, Python loop over time steps",
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "torch-cudnn",
        "torch.cudnn",
        "torch",
        LAYER_OP,
        "torch.nn.LSTM: cuDNN on a GPU; oneDNN or ATen kernels on a CPU",
        NO_FLOAT16_ONEDNN,
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
    ),
    Implementation(
        "torch-script",
        "torch.script",
        "torch",
        LOOP,
        "cell and loop written by hand, compiled by torch.jit.script",
        knows=_OTHER_NETWORKS,
        settles_after=5,  # its executor profiles and optimises the first calls
        by_hand=True,
    ),
    Implementation(
        "torch-compile",
        "torch.compile",
        "torch",
        CELL_OP,
        "cell written by hand under torch.compile, loop in Python",
        knows=_OTHER_NETWORKS_AND_LENGTHS,
        by_hand=True,
    ),
    Implementation(
        "torch-compile-layer",
        "torch.compile_layer",
        "torch",
        LAYER_OP,
        "torch.nn.LSTM in a network under torch.compile, as users write it",
        dict(NO_FLOAT16_ONEDNN, **{"variable length": LATER}),
        knows=("gru", "rnn", *_OTHER_NETWORKS),
    ),
    Implementation(
        "torch-aot-inductor",
        "torch.aot_inductor",
        "torch",
        LAYER_OP,
        "torch.nn.LSTM exported and compiled ahead of time, run forward",
        {
            "train": "AOTInductor compiles a forward pass: give --mode forward",
            **dict.fromkeys(("variable length", "amp-fp16", "amp-bf16", "cuda-graph"), LATER),
        },
        knows=("gru", "rnn", *_OTHER_NETWORKS),
    ),
    Implementation(
        "tf-lstmcell",
        "tensorflow.lstmcell",
        "tensorflow",
        LOOP,
        "cell written by hand under tf.while_loop",
        GRAPH_REWRITE,
        knows=_OTHER_NETWORKS_AND_LENGTHS,
        by_hand=True,
    ),
    Implementation(
        "tf-basiclstmcell",
        "tensorflow.basiclstmcell",
        "tensorflow",
        LOOP,
        "BasicLSTMCell under dynamic_rnn",
        GRAPH_REWRITE,
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "tf-lstmblockcell",
        "tensorflow.lstmblockcell",
        "tensorflow",
        CELL_OP,
        "LSTMBlockCell, one operator a time step, tf.while_loop",
        dict(GRAPH_REWRITE, xla="XLA does not compile LSTMBlockCell"),
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "tf-lstmblockfusedcell",
        "tensorflow.lstmblockfusedcell",
        "tensorflow",
        LAYER_OP,
        "BlockLSTM, one operator a layer and direction",
        dict(GRAPH_REWRITE, xla="XLA does not compile BlockLSTM"),
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "tf-cudnnlstm",
        "tensorflow.cudnnlstm",
        "tensorflow",
        LAYER_OP,
        "cuDNN's LSTM, one operator for all layers",
        dict(
            GRAPH_REWRITE,
            cpu="CudnnRNNV3 has no CPU kernel",
            xla="XLA does not compile CudnnRNNV3",
        ),
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "keras-lstm",
        "keras.lstm",
        "tensorflow",
        LOOP,
        "keras.layers.LSTM as it comes: cuDNN on a GPU",
        {"xla on cuda": "there it is cuDNN's, which XLA does not compile: use keras-lstm-mode2"},
        aliases=("keras-lstm-mode0",),
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
        library="keras",
        form_on_gpu=LAYER_OP,
    ),
    Implementation(
        "keras-lstm-mode1",
        "keras.lstm_mode1",
        "tensorflow",
        LOOP,
        "keras.layers.LSTM, a product for each gate, no cuDNN",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
        library="keras",
    ),
    Implementation(
        "keras-lstm-mode2",
        "keras.lstm_mode2",
        "tensorflow",
        LOOP,
        "keras.layers.LSTM, one product for all gates, no cuDNN",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
        library="keras",
    ),
    Implementation(
        "jax-scan",
        "jax.scan",
        "jax",
        LOOP,
        "cell written by hand under jax.lax.scan",
        knows=_OTHER_NETWORKS_AND_LENGTHS,
        by_hand=True,
    ),
    Implementation(
        "flax-lstm",
        "jax.flax_lstm",
        "jax",
        LOOP,
        "flax.linen.OptimizedLSTMCell under flax.linen.RNN",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
        library="flax",
    ),
    Implementation(
        "equinox-lstm",
        "jax.equinox_lstm",
        "jax",
        LOOP,
        "equinox.nn.LSTMCell under jax.lax.scan and jax.vmap",
        {"rnn": "Equinox has no cell of a plain RNN"},
        knows=("gru", *_OTHER_NETWORKS_AND_LENGTHS),
        library="equinox",
    ),
    Implementation(
        "haiku-lstm",
        "jax.haiku_lstm",
        "jax",
        LOOP,
        "haiku.LSTM under haiku.dynamic_unroll",
        {
            "gru": "Haiku's GRU multiplies by the reset gate before the product",
            "rnn": "Haiku's VanillaRNN has ReLU in place of tanh",
        },
        knows=_OTHER_NETWORKS,
        library="haiku",
    ),
    Implementation(
        "jax-cudnn",
        "jax.cudnn",
        "jax",
        LAYER_OP,
        "jax.experimental.rnn.lstm: cuDNN, one call for all layers",
        {"cpu": "jax.experimental.rnn is cuDNN's, which computes on NVIDIA GPUs alone"},
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "keras-torch-lstm",
        "keras.torch_lstm",
        "torch",
        LOOP,
        "keras.layers.LSTM as it comes, on PyTorch",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
        library="keras",
        form_on_gpu=LAYER_OP,
    ),
    Implementation(
        "keras-jax-lstm",
        "keras.jax_lstm",
        "jax",
        LOOP,
        "keras.layers.LSTM as it comes, on JAX",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
        library="keras",
        form_on_gpu=LAYER_OP,
    ),
    Implementation(
        "pytensor-scan",
        "pytensor.scan",
        "pytensor",
        LOOP,
        "cell written by hand under pytensor.scan",
        knows=_OTHER_NETWORKS_AND_LENGTHS,
        by_hand=True,
    ),
    Implementation(
        "onnxruntime-lstm",
        "onnx.onnxruntime_lstm",
        "onnxruntime",
        LAYER_OP,
        "ONNX's LSTM, run forward by ONNX Runtime",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
    ),
    Implementation(
        "openvino-lstm",
        "onnx.openvino_lstm",
        "openvino",
        LAYER_OP,
        "ONNX's LSTM, run forward by OpenVINO",
        knows=("gru", "rnn", *_OTHER_NETWORKS_AND_LENGTHS),
    ),
    Implementation(
        "cudnn-direct",
        "cudnn.direct",
        "cudnn",
        LAYER_OP,
        "cuDNN's own functions without a framework, as DeepBench calls them",
        {"cpu": "cuDNN computes on NVIDIA GPUs alone"},
        knows=("gru", "rnn", "mean", "no head", "each step", "sgd"),
    ),
)


#: Name or alias → row.
ROWS: Mapping[str, Implementation] = {
    name: row for row in TABLE for name in (row.name, *row.aliases)
}


def find(name: str) -> Implementation:
    """The row called ``name``, or by one of its aliases.

    Raises:
        UsageError: no such implementation; says which name is nearest.
    """
    if name not in ROWS:
        raise unknown_name("implementation", name, [row.name for row in TABLE])
    return ROWS[name]

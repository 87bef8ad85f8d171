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
    ``cpu``, ``cuda``, ``forward``, ``bidirectional``, ``layers``, ``ctc``, ``cuda-graph``, ``xla``,
    ``keep-denormals``, ``no-onednn``, ``anomaly``, ``deterministic``, a precision, or two at once
    (``tf32 on cpu``, ``cuda-graph on cpu``, ``xla of ctc``).
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


_LATER = "not built yet"
_ANOMALY = "anomaly mode is PyTorch's"

#: What a workload may ask for beyond an LSTM of features under a head trained by Adam; refused with
#: this reason by every row that does not say that it ``knows`` it.
UNUSUAL: Mapping[str, str] = {
    "gru": "written for LSTM cells",
    "rnn": "written for LSTM cells",
    **dict.fromkeys(("mean", "no head", "each step", "tokens", "sgd"), _LATER),
    "variable length": "it runs over the padded length of every sequence",
}

#: What no implementation of a framework can do, and why.
FRAMEWORKS: Mapping[str, Mapping[str, str]] = {
    "torch": {
        "xla": "XLA is TensorFlow's and JAX's compiler",
        "tf32 on cpu": "TF32 is a mode of NVIDIA GPUs",
        "cuda-graph on cpu": "CUDA graphs are a feature of NVIDIA GPUs",
        "cuda-graph of ctc": "torch's CTC loss copies lengths from the host and waits for them",
        "cuda-graph of variable length": "lengths are copied from the host in every step",
        "cuda-graph of anomaly": "the search for NaN reads gradients back, a graph cannot",
    },
    "tensorflow": {
        "cuda-graph": "TensorFlow captures no CUDA graphs",
        "tf32 on cpu": "TF32 is a mode of NVIDIA GPUs",
        "xla of ctc": "XLA does not compile TensorFlow's CTCLoss",
        "keep-denormals": "its own threads flush denormals whatever they are told",
        "anomaly": _ANOMALY,
    },
    "jax": {
        "cuda-graph": "XLA decides by itself what it captures as CUDA graphs",
        "xla": "JAX compiles every step with XLA: leave the option out",
        "tf32 on cpu": "TF32 is a mode of NVIDIA GPUs",
        **dict.fromkeys(
            ("amp-fp16", "amp-bf16"),
            "JAX has no automatic mixed precision: a network casts by itself, and these do not",
        ),
        "keep-denormals": "XLA's own threads flush denormals whatever they are told",
        "no-onednn": "XLA has no switch for oneDNN that all its versions know",
        "anomaly": _ANOMALY,
        "deterministic": "it is a flag of XLA: set XLA_FLAGS, which is recorded",
    },
    "pytensor": {
        "cuda": "PyTensor's compiled operators run on CPUs",
        "ctc": "PyTensor has no CTC loss",
        "cuda-graph": "PyTensor's compiled operators run on CPUs",
        "xla": "XLA is TensorFlow's and JAX's compiler",
        "tf32": "TF32 is a mode of NVIDIA GPUs",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), "PyTensor has no automatic mixed precision"),
        "no-onednn": "PyTensor uses no oneDNN",
        "anomaly": _ANOMALY,
        "deterministic": "PyTensor has no such mode",
    },
    "cudnn": {
        "head": "cuDNN's recurrent layers have no output layer",
        **dict.fromkeys(("ce", "ctc"), "it needs an output layer, and cuDNN's layers have none"),
        "tokens": "cuDNN has no embedding",
        "adam": "cuDNN has no optimizer: SGD is a scaled addition, Adam divides",
        "cuda-graph": _LATER,
        "xla": "XLA is TensorFlow's and JAX's compiler",
        **dict.fromkeys(
            ("amp-fp16", "amp-bf16"), "cuDNN has no automatic mixed precision: its caller casts"
        ),
        **dict.fromkeys(("keep-denormals", "no-onednn"), "cuDNN computes on a GPU"),
        "anomaly": _ANOMALY,
        "deterministic": _LATER,
    },
}

_OTHER_NETWORKS = ("mean", "no head", "each step", "tokens", "sgd")
_OTHER_NETWORKS_AND_LENGTHS = (*_OTHER_NETWORKS, "variable length")

_NO_FLOAT16_ONEDNN = {
    "amp-fp16 on cpu": "oneDNN, which runs nn.LSTM there, has no float16 LSTM for most CPUs"
}

#: Rows of TensorFlow operators: no autocast, but a rewrite of the graph (Keras has its policy).
_GRAPH_REWRITE = {
    "amp-fp16 on cpu": "TensorFlow rewrites graphs to float16 for NVIDIA GPUs alone",
    "amp-bf16 on cuda": "TensorFlow rewrites graphs to bfloat16 for CPUs alone",
    "xla of amp-fp16": "TensorFlow's rewrite to float16 leaves what XLA compiles as it is",
    "xla of amp-bf16": "TensorFlow's rewrite to bfloat16 leaves what XLA compiles as it is",
}

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
        _NO_FLOAT16_ONEDNN,
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
        dict(_NO_FLOAT16_ONEDNN, **{"variable length": _LATER}),
        knows=("gru", "rnn", *_OTHER_NETWORKS),
    ),
    Implementation(
        "tf-lstmcell",
        "tensorflow.lstmcell",
        "tensorflow",
        LOOP,
        "cell written by hand under tf.while_loop",
        _GRAPH_REWRITE,
        knows=_OTHER_NETWORKS_AND_LENGTHS,
        by_hand=True,
    ),
    Implementation(
        "tf-basiclstmcell",
        "tensorflow.basiclstmcell",
        "tensorflow",
        LOOP,
        "BasicLSTMCell under dynamic_rnn",
        _GRAPH_REWRITE,
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "tf-lstmblockcell",
        "tensorflow.lstmblockcell",
        "tensorflow",
        CELL_OP,
        "LSTMBlockCell, one operator a time step, tf.while_loop",
        dict(_GRAPH_REWRITE, xla="XLA does not compile LSTMBlockCell"),
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "tf-lstmblockfusedcell",
        "tensorflow.lstmblockfusedcell",
        "tensorflow",
        LAYER_OP,
        "BlockLSTM, one operator a layer and direction",
        dict(_GRAPH_REWRITE, xla="XLA does not compile BlockLSTM"),
        knows=_OTHER_NETWORKS_AND_LENGTHS,
    ),
    Implementation(
        "tf-cudnnlstm",
        "tensorflow.cudnnlstm",
        "tensorflow",
        LAYER_OP,
        "cuDNN's LSTM, one operator for all layers",
        dict(
            _GRAPH_REWRITE,
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

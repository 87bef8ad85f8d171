"""A row of the table of implementations: name, file, and reasons for missing features.

lstmprof prints these reasons unchanged. This file needs only Python 3.7 and its standard library,
because workers import it.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Mapping, Optional, Tuple

from lstmprof.base.package import version_numbers

LATER = "not implemented yet"
ANOMALY = "only PyTorch has an anomaly mode"

OTHER_NETWORKS = ("mean", "no head", "each step", "tokens", "sgd")
#: Feature -> why an implementation lacks the feature, unless its ``knows`` lists the feature.
UNUSUAL: Mapping[str, str] = {
    "gru": "it has LSTM cells only",
    "rnn": "it has LSTM cells only",
    **dict.fromkeys(OTHER_NETWORKS, LATER),
    "variable length": "it always computes the padded length of every sequence",
}

#: Feature -> why engines that run ONNX models on a CPU lack the feature.
_ENGINES_LACK: Mapping[str, str] = {
    "train": "it computes no gradients; use --mode forward",
    "cuda": LATER,
    "ctc": "ONNX has no CTC loss",
    "cuda-graph": "only NVIDIA GPUs have CUDA graphs",
    "xla": "only TensorFlow and JAX compile with XLA",
    "tf32": "only NVIDIA GPUs have TF32",
    "anomaly": ANOMALY,
}


def _unsupported(name: str, no_gpu: str) -> Mapping[str, str]:
    """Return feature -> why PyTensor or Theano does not support the feature."""
    return {
        **dict.fromkeys(("cuda", "cuda-graph"), no_gpu),
        "ctc": name + " has no CTC loss",
        "xla": "only TensorFlow and JAX compile with XLA",
        "tf32": "only NVIDIA GPUs have TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), name + " has no automatic mixed precision"),
        "no-onednn": name + " does not use oneDNN",
        "anomaly": ANOMALY,
        "deterministic": name + " has no deterministic mode",
    }


#: Framework -> feature -> why all implementations of the framework lack the feature.
FRAMEWORKS: Mapping[str, Mapping[str, str]] = {
    "torch": {
        "xla": "only TensorFlow and JAX compile with XLA",
        "tf32 on cpu": "only NVIDIA GPUs have TF32",
        "cuda-graph on cpu": "only NVIDIA GPUs have CUDA graphs",
        "cuda-graph with ctc": "torch's CTC loss copies lengths from the host and waits, which a "
        "CUDA graph cannot do",
        "cuda-graph with variable length": "every step copies lengths from the host, which a "
        "CUDA graph cannot do",
        "cuda-graph with anomaly": "the check for NaN reads gradients back to the host, which a "
        "CUDA graph cannot do",
    },
    "tensorflow": {
        "cuda-graph": "TensorFlow does not capture CUDA graphs",
        "tf32 on cpu": "only NVIDIA GPUs have TF32",
        "xla with ctc": "XLA does not compile TensorFlow's CTCLoss",
        "keep-denormals": "TensorFlow's threads always flush denormals",
        "anomaly": ANOMALY,
    },
    "tensorflow1": {
        "cuda-graph": "TensorFlow does not capture CUDA graphs",
        "xla": LATER,
        "tf32": "TensorFlow 1 has no TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), LATER),
        "keep-denormals": "TensorFlow's threads always flush denormals",
        "no-onednn": "it needs TensorFlow 2.5 or newer",
        "anomaly": ANOMALY,
        "deterministic": "it needs TensorFlow 2.9 or newer",
    },
    "jax": {
        "cuda-graph on cpu": "only NVIDIA GPUs have CUDA graphs",
        "xla": "JAX always compiles with XLA; omit the option",
        "tf32 on cpu": "only NVIDIA GPUs have TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), "JAX has no automatic mixed precision"),
        "keep-denormals": "XLA's threads always flush denormals",
        "no-onednn": "no switch for oneDNN works in all versions of XLA",
        "anomaly": ANOMALY,
        "deterministic": "XLA has a flag for this; set the flag in XLA_FLAGS",
    },
    "pytensor": _unsupported("PyTensor", "PyTensor runs on CPUs only"),
    "theano": _unsupported("Theano", "its environment lacks libgpuarray, which it needs on a GPU"),
    "mxnet": {
        "cuda": LATER,
        "cuda-graph": "MXNet does not capture CUDA graphs",
        "xla": "only TensorFlow and JAX compile with XLA",
        "tf32": "only NVIDIA GPUs have TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16", "no-onednn"), LATER),
        "anomaly": ANOMALY,
        "deterministic": "MXNet has no deterministic mode on a CPU",
    },
    "chainer": {
        "cuda": LATER,
        "cuda-graph": "Chainer does not capture CUDA graphs",
        "xla": "only TensorFlow and JAX compile with XLA",
        "tf32": "only NVIDIA GPUs have TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), LATER),
        "no-onednn": "Chainer computes with NumPy on a CPU",
        "anomaly": ANOMALY,
        "deterministic": "Chainer has no deterministic mode on a CPU",
    },
    "caffe2": {
        **dict.fromkeys(("cuda", "bidirectional", "ctc", "no-onednn"), LATER),
        "cuda-graph": "Caffe2 does not capture CUDA graphs",
        "xla": "only TensorFlow and JAX compile with XLA",
        "tf32": "only NVIDIA GPUs have TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), "Caffe2 has no automatic mixed precision"),
        "anomaly": ANOMALY,
        "deterministic": "Caffe2 has no deterministic mode on a CPU",
    },
    "onnxruntime": {
        **_ENGINES_LACK,
        **dict.fromkeys(
            ("amp-fp16", "amp-bf16"), "ONNX Runtime has no 16-bit LSTM kernel for CPUs"
        ),
        "no-onednn": "its CPU package is built without oneDNN",
    },
    "openvino": {
        **_ENGINES_LACK,
        "amp-fp16": "OpenVINO has float16 on few CPUs; use --precision amp-bf16",
        "no-onednn": "all its CPU kernels are oneDNN's",
        "deterministic": "OpenVINO has no deterministic mode",
    },
    "cudnn": {
        "head": "cuDNN's recurrent layers have no output layer",
        **dict.fromkeys(("ce", "ctc"), "it needs an output layer, which cuDNN lacks"),
        "tokens": "cuDNN has no embedding",
        "adam": "cuDNN has no division, which Adam needs",
        "cuda-graph": LATER,
        "xla": "only TensorFlow and JAX compile with XLA",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), "cuDNN has no automatic mixed precision"),
        **dict.fromkeys(("keep-denormals", "no-onednn"), "cuDNN runs on GPUs only"),
        "anomaly": ANOMALY,
        "deterministic": LATER,
    },
}

#: Precision that cuDNN's LSTM lacks in PyTorch, which casts to float16 instead of bfloat16
#: (AutocastRNN.cpp of ATen).
FLOAT16_CUDNN = {
    "amp-bf16 on cuda": "torch.autocast runs cuDNN's LSTM in float16; use --precision amp-fp16"
}
NN_LSTM = {
    "amp-fp16 on cpu": "oneDNN, which runs nn.LSTM on CPUs, has no float16 LSTM on most CPUs",
    **FLOAT16_CUDNN,
}

#: Settings for which TensorFlow cannot convert graphs to 16 bits → reason.
GRAPH_REWRITE = {
    "amp-fp16 on cpu": "TensorFlow converts graphs to float16 on NVIDIA GPUs only",
    "amp-bf16 on cuda": "TensorFlow converts graphs to bfloat16 on CPUs only",
    "xla with amp-fp16": "TensorFlow does not convert XLA-compiled graphs to float16",
    "xla with amp-bf16": "TensorFlow does not convert XLA-compiled graphs to bfloat16",
}


#: Forms of implementations: several operators per time step, one operator per time step, and
#: one operator per layer.
LOOP, CELL_OP, LAYER_OP = FORMS = ("loop", "cell op", "layer op")


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A row of the table: one implementation of the LSTM."""

    name: str
    file: str  # module path inside this folder, such as "torch.nn_lstm"
    form: str
    summary: str
    # unsupported feature, such as "tf32 on cpu" -> the reason that users see
    refuses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Tuple[str, ...] = ()
    knows: Tuple[str, ...] = (*OTHER_NETWORKS, "variable length")  # features in UNUSUAL it supports
    settles_after: int = 3  # warm-up iterations until the time is stable
    form_on_gpu: Optional[str] = None
    library: str = ""  # package of the layer, if it is not the framework
    by_hand: bool = False  # users can change the cell: it is lstmprof's own code
    era: str = ""  # old package versions to use if the packages are missing (interpreters.eras)
    since: str = ""  # oldest version of the framework
    runs_on: str = ""  # the framework, if its folder has another name

    @property
    def module(self) -> str:
        return "lstmprof.implementations." + self.file

    @property
    def family(self) -> str:
        """Return the file's folder, such as ``torch``."""
        return self.file.partition(".")[0]

    @property
    def framework(self) -> str:
        """Return the framework, such as ``jax``, which selects the training loop."""
        return self.runs_on or self.family

    def form_on(self, device: str) -> str:
        return self.form_on_gpu if self.form_on_gpu and device == "cuda" else self.form

    def lacks(self, version: Optional[str]) -> Optional[str]:
        """Return why a version of the framework is too old, or None."""
        numbers = version_numbers(version or "")
        if not numbers or numbers >= version_numbers(self.since):
            return None
        return "{} needs {} {} or newer, not {}".format(
            self.name, self.framework, self.since, version
        )

    def refusals(self) -> Dict[str, str]:
        """Return feature -> why the implementation does not support the feature."""
        unknown = {need: why for need, why in UNUSUAL.items() if need not in self.knows}
        return dict(unknown, **FRAMEWORKS[self.framework], **self.refuses)

"""What implementations cannot do, and why, in the words that a user is shown."""

from __future__ import annotations

from typing import Mapping

LATER = "not built yet"
ANOMALY = "anomaly mode is PyTorch's"

#: What a workload may ask for beyond an LSTM of features under a head trained by Adam; refused with
#: this reason by every row that does not say that it ``knows`` it.
UNUSUAL: Mapping[str, str] = {
    "gru": "written for LSTM cells",
    "rnn": "written for LSTM cells",
    **dict.fromkeys(("mean", "no head", "each step", "tokens", "sgd"), LATER),
    "variable length": "it runs over the padded length of every sequence",
}

#: What no engine can do that is given a graph to run it forward on a CPU.
_OF_ENGINES: Mapping[str, str] = {
    "train": "it computes no gradients: give --mode forward",
    "cuda": LATER,
    "ctc": "ONNX has no CTC loss",
    "cuda-graph": "CUDA graphs are a feature of NVIDIA GPUs",
    "xla": "XLA is TensorFlow's and JAX's compiler",
    "tf32": "TF32 is a mode of NVIDIA GPUs",
    "anomaly": ANOMALY,
}


def _of_theano(name: str, no_gpu: str) -> Mapping[str, str]:
    """What Theano and its heir cannot do, as ``name``."""
    return {
        **dict.fromkeys(("cuda", "cuda-graph"), no_gpu),
        "ctc": name + " has no CTC loss",
        "xla": "XLA is TensorFlow's and JAX's compiler",
        "tf32": "TF32 is a mode of NVIDIA GPUs",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), name + " has no automatic mixed precision"),
        "no-onednn": name + " uses no oneDNN",
        "anomaly": ANOMALY,
        "deterministic": name + " has no such mode",
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
        "anomaly": ANOMALY,
    },
    "tensorflow1": {
        "cuda-graph": "TensorFlow captures no CUDA graphs",
        "xla": LATER,
        "tf32": "TensorFlow 1 knows no TF32",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), LATER),
        "keep-denormals": "its own threads flush denormals whatever they are told",
        "no-onednn": "the switch came with TensorFlow 2.5",
        "anomaly": ANOMALY,
        "deterministic": "the switch came with TensorFlow 2.9",
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
        "anomaly": ANOMALY,
        "deterministic": "it is a flag of XLA: set XLA_FLAGS, which is recorded",
    },
    "pytensor": _of_theano("PyTensor", "PyTensor's compiled operators run on CPUs"),
    "theano": _of_theano("Theano", "for a GPU it needs libgpuarray, which its environment lacks"),
    "mxnet": {
        "cuda": LATER,
        "cuda-graph": "MXNet captures no CUDA graphs",
        "xla": "XLA is TensorFlow's and JAX's compiler",
        "tf32": "TF32 is a mode of NVIDIA GPUs",
        **dict.fromkeys(("amp-fp16", "amp-bf16", "no-onednn"), LATER),
        "anomaly": ANOMALY,
        "deterministic": "on a CPU MXNet has no such mode",
    },
    "chainer": {
        "cuda": LATER,
        "cuda-graph": "Chainer captures no CUDA graphs",
        "xla": "XLA is TensorFlow's and JAX's compiler",
        "tf32": "TF32 is a mode of NVIDIA GPUs",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), LATER),
        "no-onednn": "on a CPU Chainer computes with NumPy",
        "anomaly": ANOMALY,
        "deterministic": "on a CPU Chainer has no such mode",
    },
    "caffe2": {
        **dict.fromkeys(("cuda", "bidirectional", "ctc", "no-onednn"), LATER),
        "cuda-graph": "Caffe2 captures no CUDA graphs",
        "xla": "XLA is TensorFlow's and JAX's compiler",
        "tf32": "TF32 is a mode of NVIDIA GPUs",
        **dict.fromkeys(("amp-fp16", "amp-bf16"), "Caffe2 has no automatic mixed precision"),
        "anomaly": ANOMALY,
        "deterministic": "on a CPU Caffe2 has no such mode",
    },
    "onnxruntime": {
        **_OF_ENGINES,
        **dict.fromkeys(
            ("amp-fp16", "amp-bf16"), "ONNX Runtime's LSTM on a CPU has no kernel of 16 bits"
        ),
        "no-onednn": "its package for CPUs is built without oneDNN",
    },
    "openvino": {
        **_OF_ENGINES,
        "amp-fp16": "few CPUs have float16 for OpenVINO; give --precision amp-bf16",
        "no-onednn": "its kernels for CPUs are oneDNN's",
        "deterministic": "OpenVINO has no such mode",
    },
    "cudnn": {
        "head": "cuDNN's recurrent layers have no output layer",
        **dict.fromkeys(("ce", "ctc"), "it needs an output layer, and cuDNN's layers have none"),
        "tokens": "cuDNN has no embedding",
        "adam": "cuDNN has no optimizer: SGD is a scaled addition, Adam divides",
        "cuda-graph": LATER,
        "xla": "XLA is TensorFlow's and JAX's compiler",
        **dict.fromkeys(
            ("amp-fp16", "amp-bf16"), "cuDNN has no automatic mixed precision: its caller casts"
        ),
        **dict.fromkeys(("keep-denormals", "no-onednn"), "cuDNN computes on a GPU"),
        "anomaly": ANOMALY,
        "deterministic": LATER,
    },
}

#: Of torch.nn.LSTM.
NO_FLOAT16_ONEDNN = {
    "amp-fp16 on cpu": "oneDNN, which runs nn.LSTM there, has no float16 LSTM for most CPUs"
}

#: Rows of TensorFlow operators: no autocast, but a rewrite of the graph (Keras has its policy).
GRAPH_REWRITE = {
    "amp-fp16 on cpu": "TensorFlow rewrites graphs to float16 for NVIDIA GPUs alone",
    "amp-bf16 on cuda": "TensorFlow rewrites graphs to bfloat16 for CPUs alone",
    "xla of amp-fp16": "TensorFlow's rewrite to float16 leaves what XLA compiles as it is",
    "xla of amp-bf16": "TensorFlow's rewrite to bfloat16 leaves what XLA compiles as it is",
}

"""Recognise the framework of a profile by the names in it."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from lstmprof.events.table import EventTable

#: Framework → names of ops, ranges or frames that only it uses; then of its kernels.
_OPS = {
    "torch": re.compile(r"^(?:aten|c10d|autograd|torch)::|^Torch-Compiled|^ProfilerStep|^torch/"),
    "jax": re.compile(r"^PjitFunction|^jit_\w+[:(]|^trace_to_jaxpr|^jit\("),
    "tensorflow": re.compile(
        r"^[^:\s]*:[A-Z][A-Za-z0-9]+$|^tf\.function|^Eager(?:Local)?Execute|FunctionRun|^SessionRun"
    ),
    "pytensor": re.compile(r"^pytensor::"),
    "theano": re.compile(r"^theano::"),
    "chainer": re.compile(r"^chainer::"),
    "caffe2": re.compile(r"^caffe2::"),
    "mxnet": re.compile(r"^mxnet::"),
    "onnxruntime": re.compile(r"^onnxruntime::"),
    "openvino": re.compile(r"^openvino::"),
}
_KERNELS = {
    "torch": re.compile(r"\bat::|\bc10::|at_cuda_detail|THCTensor"),
    "tensorflow": re.compile(r"tensorflow::"),
}


def framework(events: EventTable) -> str | None:
    """Return the framework from the names of ops, ranges and frames, else from those of kernels."""
    for patterns, kinds in ((_OPS, ("op", "step", "range", "python")), (_KERNELS, ("kernel",))):
        codes, texts = events.texts("name")
        counts = np.bincount(codes[events.is_kind(*kinds)], minlength=len(texts) + 1)
        votes: Counter[str] = Counter()
        for count, text in zip(counts.tolist(), texts, strict=False):
            if count:
                votes.update({name: count for name, p in patterns.items() if p.search(text)})
        if votes:
            return votes.most_common(1)[0][0]
    return None

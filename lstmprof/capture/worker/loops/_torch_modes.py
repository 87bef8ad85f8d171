"""Settings of a PyTorch step: precision, and process-wide switches such as determinism.

TF32 exists since PyTorch 1.7, autocast on a CPU since 1.10.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, ContextManager

import torch

from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.profilers.torch import fp32_precision

#: Precision -> type for autocast; PyTorch 1.0 has no bfloat16.
AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": getattr(torch, "bfloat16", None)}
_ANOTHER = "choose another --precision"


def set_tf32(precision: str) -> None:
    """Allow TF32 on GPUs if the precision is ``tf32``, and forbid TF32 otherwise."""
    allowed = precision == "tf32"
    if hasattr(torch.backends.cuda, "matmul"):  # since PyTorch 1.7, the first version with TF32
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed
    elif allowed:
        raise _lacks("TF32", _ANOTHER)
    # also set PyTorch 2.9's new switches: PyTorch raises an error if old and new switches differ
    if fp32_precision("cuda", "matmul") is not None:
        backends = torch.backends
        for switch in (backends.cuda.matmul, backends.cudnn.rnn, backends.cudnn.conv):
            switch.fp32_precision = "tf32" if allowed else "ieee"
        # never allow oneDNN's short types
        for switch in (backends.mkldnn.matmul, backends.mkldnn.rnn, backends.mkldnn.conv):
            switch.fp32_precision = "ieee"


def autocast(precision: str, device_type: str) -> Callable[[], ContextManager[Any]]:
    """Return a function that creates the autocast context for forward pass and loss."""
    if precision not in AUTOCAST:
        return contextlib.nullcontext
    wanted = AUTOCAST[precision]
    if wanted is None or not hasattr(torch, "autocast"):
        raise _lacks("{} on {}".format(precision, device_type), _ANOTHER)
    context = functools.partial(torch.autocast, device_type, dtype=wanted)
    with context():  # an older torch only warns, and does not cast
        unit = torch.ones(1, 1, device=device_type)
        if (unit @ unit).dtype != wanted:
            raise _lacks("{} on {}".format(precision, device_type), _ANOTHER)
    return context


def _lacks(what: str, instead: str = "leave it out") -> CaptureError:
    fault = "torch {} has no {}".format(torch.__version__, what)
    return CaptureError(fault, "{}, or use a newer torch".format(instead))


def scaler(precision: str, device_type: str) -> Any:
    if precision != "amp-fp16":
        return None
    if hasattr(getattr(torch, "amp", None), "GradScaler"):
        return torch.amp.GradScaler(device_type)
    return torch.cuda.amp.GradScaler(enabled=device_type == "cuda")  # before torch 2.3


def set_switches(request: CaptureRequest) -> None:
    torch.set_flush_denormal(not request.keep_denormals)
    if not request.onednn:
        if not hasattr(getattr(torch.backends, "mkldnn", None), "set_flags"):
            raise _lacks("switch for oneDNN")
        torch.backends.mkldnn.set_flags(False)
    torch.autograd.set_detect_anomaly(request.anomaly)
    if request.deterministic:
        if not hasattr(torch, "use_deterministic_algorithms"):  # before PyTorch 1.8
            raise _lacks("switch for determinism")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True

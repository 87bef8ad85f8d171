"""What a step of PyTorch may be asked for beside its work: precision, and switches of the process.

A version that lacks one says so: TF32 came with PyTorch 1.7, autocast on a CPU with 1.10.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any, Callable, ContextManager

import torch

from lstmprof.capture.request import CaptureRequest
from lstmprof.errors import CaptureError

#: PyTorch 1.0 has no bfloat16
AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": getattr(torch, "bfloat16", None)}
_ANOTHER = "choose another --precision"


def set_tf32(precision: str) -> None:
    """Allow TF32 where ``precision`` is tf32; forbid it elsewhere.

    Raises:
        CaptureError: this torch does not know of it.
    """
    if hasattr(torch.backends.cuda, "matmul"):  # since 1.7, the first that rounds to TF32
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    elif precision == "tf32":
        raise _lacks("TF32", _ANOTHER)


def strict_cudnn() -> ContextManager[Any]:
    """cuDNN without TF32."""
    flags = torch.backends.cudnn.flags
    has_tf32 = "allow_tf32" in inspect.signature(flags).parameters  # since 1.7
    strict: ContextManager[Any] = flags(enabled=True, **({"allow_tf32": False} if has_tf32 else {}))
    return strict


def autocast(precision: str, device_type: str) -> Callable[[], ContextManager[Any]]:
    """The context of forward and loss.

    Raises:
        CaptureError: this torch does not cast to that type on that device.
    """
    if precision not in AUTOCAST:
        return contextlib.nullcontext
    wanted = AUTOCAST[precision]
    if wanted is None or not hasattr(torch, "autocast"):
        raise _lacks("{} on {}".format(precision, device_type), _ANOTHER)
    context = functools.partial(torch.autocast, device_type, dtype=wanted)
    with context():  # an older torch only warns, and casts nothing
        unit = torch.ones(1, 1, device=device_type)
        if (unit @ unit).dtype != wanted:
            raise _lacks("{} on {}".format(precision, device_type), _ANOTHER)
    return context


def _lacks(what: str, instead: str = "leave it out") -> CaptureError:
    fault = "torch {} has no {}".format(torch.__version__, what)
    return CaptureError(fault, "{}, or use a newer torch".format(instead))


def scaler(precision: str, device_type: str) -> Any:
    """The scaler of training's gradients; None where the precision needs none."""
    if precision != "amp-fp16":
        return None
    if hasattr(getattr(torch, "amp", None), "GradScaler"):
        return torch.amp.GradScaler(device_type)
    return torch.cuda.amp.GradScaler(enabled=device_type == "cuda")  # before torch 2.3


def set_switches(request: CaptureRequest) -> None:
    """What is asked for of denormals, oneDNN, anomaly mode and determinism.

    Raises:
        CaptureError: this torch has no such switch.
    """
    torch.set_flush_denormal(not request.keep_denormals)
    if not request.onednn:
        if not hasattr(getattr(torch.backends, "mkldnn", None), "set_flags"):
            raise _lacks("switch for oneDNN")
        torch.backends.mkldnn.set_flags(False)
    torch.autograd.set_detect_anomaly(request.anomaly)
    if request.deterministic:
        if not hasattr(torch, "use_deterministic_algorithms"):  # before 1.8
            raise _lacks("switch for determinism")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True

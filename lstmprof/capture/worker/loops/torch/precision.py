"""The precisions of the PyTorch loop; weights and optimizer state stay float32 in all of them.

``fp32`` is strict. ``tf32`` lets matrix products and cuDNN round their inputs to TF32. ``amp-*`` is
torch.autocast around forward and loss, for fp16 with torch's gradient scaler, whose first steps
may be skipped until its scale fits. Source: PyTorch's "Automatic Mixed Precision examples".
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, ContextManager

import torch

from lstmprof.errors import CaptureError

AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}


def set_tf32(precision: str) -> None:
    """Allow TF32 where ``precision`` is tf32; forbid it elsewhere."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def autocast(precision: str, device_type: str) -> Callable[[], ContextManager[Any]]:
    """The context of forward and loss.

    Raises:
        CaptureError: this torch does not cast to that type on that device.
    """
    if precision not in AUTOCAST:
        return contextlib.nullcontext
    wanted = AUTOCAST[precision]
    context = functools.partial(torch.autocast, device_type, dtype=wanted)
    with context():  # an older torch only warns, and casts nothing
        one = torch.ones(1, 1, device=device_type)
        if (one @ one).dtype != wanted:
            raise CaptureError(
                "torch {} has no {} on {}".format(torch.__version__, precision, device_type),
                "give another --precision or a newer torch",
            )
    return context


def scaler(precision: str, device_type: str) -> Any:
    """The scaler of training's gradients; None where the precision needs none."""
    if precision != "amp-fp16":
        return None
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device_type)
    return torch.cuda.amp.GradScaler(enabled=device_type == "cuda")  # before torch 2.3

"""The shared weights in and out of a torch module: torch keeps the layout of ``workloads``.

Gates i f g o, ``weight_ih`` (4·hidden, inputs), ``weight_hh`` (4·hidden, hidden): only the names
differ. ``names`` maps a parameter's own name to the shared one, or to None where the framework has
a second bias, which holds zeros and whose gradient equals the first one's.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import torch

Names = Mapping[str, Optional[str]]


def parameters(module: torch.nn.Module) -> Dict[str, Any]:
    """Own name -> parameter, in the module's order."""
    return dict(module.named_parameters())


def load(module: torch.nn.Module, weights: Mapping[str, Any], names: Names) -> None:
    """Set every parameter to the shared weight that ``names`` gives it, or to zero."""
    with torch.no_grad():
        for own, parameter in module.named_parameters():
            shared = names[own]
            if shared is None:
                parameter.zero_()
            else:
                parameter.copy_(torch.from_numpy(weights[shared]))


def canonical(arrays: Mapping[str, Any], names: Names) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own name, under the shared names."""
    return {shared: arrays[own] for own, shared in names.items() if shared is not None}

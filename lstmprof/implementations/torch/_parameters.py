"""The shared weights in and out of a torch module: torch keeps the layout of ``workloads``.

Gates i f g o, ``weight_ih`` (4·hidden, inputs), ``weight_hh`` (4·hidden, hidden): only the names
differ. ``names`` maps a parameter's own name to the shared one, or to None where the framework has
a second bias, which holds zeros and whose gradient equals the first one's.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import torch

from lstmprof.workloads import Workload

Names = Mapping[str, Optional[str]]


def parameters(module: torch.nn.Module) -> Dict[str, Any]:
    """Own name -> parameter, in the module's order."""
    return dict(module.named_parameters())


def embedding(workload: Workload) -> torch.nn.Module:
    """Tokens to features; for features themselves nothing."""
    if not workload.vocabulary:
        return torch.nn.Identity()
    return torch.nn.Embedding(workload.vocabulary, workload.features)


def head(workload: Workload) -> torch.nn.Module:
    """The output layer, without bias; for a workload without one nothing."""
    if not workload.head:
        return torch.nn.Identity()
    width = workload.directions * workload.hidden
    return torch.nn.Linear(width, workload.classes, bias=False)


def last(outputs: torch.Tensor, lengths: Optional[torch.Tensor]) -> torch.Tensor:
    """Each sequence's last of ``outputs`` (time, batch, width)."""
    if lengths is None:
        return outputs[-1]
    return outputs[lengths.to(outputs.device) - 1, torch.arange(outputs.shape[1])]


def end_names(module: torch.nn.Module) -> Dict[str, Optional[str]]:
    """Own name -> shared name of ``embedding`` and ``head``, where the module has them."""
    names = {"embedding.weight": "embedding", "head.weight": "head"}
    return {own: names[own] for own, _ in module.named_parameters() if own in names}


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

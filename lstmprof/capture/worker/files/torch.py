"""A file of the user's that builds a ``torch.nn.Module``."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from lstmprof.capture.worker.files import SEED, Arrays, Step, UsersFile
from lstmprof.capture.worker.loops._torch_modes import set_tf32
from lstmprof.capture.worker.loops.torch import loss_of
from lstmprof.workloads import Workload


class File(UsersFile):
    """Parameters by their own names."""

    def seed(self) -> None:
        """Of torch's generators, on every device."""
        torch.manual_seed(SEED)

    def fault(self, network: Any) -> Optional[str]:
        """Where it is no module."""
        if isinstance(network, torch.nn.Module):
            return None
        return "a {}, not a torch.nn.Module".format(type(network).__name__)

    def parameters(self, network: Any) -> Dict[str, Any]:
        """Own name -> parameter that is trained, in the module's order."""
        return {name: p for name, p in network.named_parameters() if p.requires_grad}

    def values(self, network: Any) -> Arrays:
        """Own name -> NumPy array of each parameter."""
        return {n: p.detach().cpu().numpy() for n, p in self.parameters(network).items()}

    def first_step(self, network: Any, workload: Workload, batch: Any, device: str) -> Step:
        """Strict float32, whatever the request's precision is."""
        network = network.to(device).train()
        lengths = torch.from_numpy(batch.lengths)
        told = (lengths,) if workload.variable_length else ()
        set_tf32("fp32")
        outputs = network(torch.from_numpy(batch.inputs).to(device), *told)
        self.refuse_unless_shaped(workload, outputs)
        targets = torch.from_numpy(batch.targets).to(device)
        loss = loss_of(workload, outputs, targets, lengths, self.TIME_MAJOR)
        loss.backward()
        gradients = {
            name: (torch.zeros_like(p) if p.grad is None else p.grad).cpu().numpy()
            for name, p in self.parameters(network).items()
        }
        if workload.every_step and not self.TIME_MAJOR:
            outputs = outputs.transpose(0, 1)
        return loss.item(), outputs.detach().cpu().numpy(), gradients

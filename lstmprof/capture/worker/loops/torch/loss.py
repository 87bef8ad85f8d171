"""The losses of the PyTorch loop."""

from __future__ import annotations

import torch

from lstmprof.workloads import Workload


def loss_of(
    workload: Workload,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    lengths: torch.Tensor,
    time_major: bool,
) -> torch.Tensor:
    """The mean loss over the batch; outputs (batch, classes), or one a time step.

    ``targets`` of every time step have time in front whatever the layout of the outputs.
    CTC: blank 0, mean over sequences of the negative log-likelihood, not divided by target lengths
    (torch's own ``reduction="mean"`` does). ``lengths`` stay on the host, or torch synchronises.
    """
    if workload.each_step and not time_major:
        targets = targets.transpose(0, 1)
    if workload.loss == "ce":
        return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    if workload.loss == "mean":
        return outputs.mean()
    if workload.loss == "mse":
        return torch.nn.functional.mse_loss(outputs, targets)
    spelled = torch.full((len(lengths),), targets.shape[1], dtype=torch.int64)
    scores = (outputs if time_major else outputs.transpose(0, 1)).log_softmax(2)
    each = torch.nn.functional.ctc_loss(scores, targets, lengths, spelled, reduction="none")
    return each.mean()

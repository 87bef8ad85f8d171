"""The optimizers of the PyTensor loop, whose steps are updates of shared variables."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

import numpy as np
import pytensor
import pytensor.tensor as pt

from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload

#: Adam's decay of the mean and of the square, and its epsilon: the defaults of torch.optim.Adam
MEAN_DECAY, SQUARE_DECAY, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)

Updates = List[Tuple[Any, Any]]  # (shared variable, its next value)


class Sgd:
    """Plain SGD, without momentum."""

    def __init__(self, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters

    def updates(self, loss: Any) -> Updates:
        """One step, as torch.optim.SGD computes it."""
        parameters = list(self.parameters.values())
        gradients = pytensor.grad(loss, parameters)
        return [(p, p - self.rate * gradient) for p, gradient in zip(parameters, gradients)]


class Adam:
    """Adam and its state: D. Kingma, J. Ba, "Adam" (2014), algorithm 1."""

    def __init__(self, workload: Workload, parameters: Dict[str, Any]) -> None:
        self.rate, self.parameters = np.float32(workload.learning_rate), parameters
        self.count = pytensor.shared(np.float32(0))
        zeros = {name: np.zeros_like(p.get_value()) for name, p in parameters.items()}
        self.means = {name: pytensor.shared(array) for name, array in zeros.items()}
        self.squares = {name: pytensor.shared(array) for name, array in zeros.items()}

    def updates(self, loss: Any) -> Updates:
        """One step, as torch.optim.Adam computes it."""
        count = self.count + np.float32(1)
        updates = [(self.count, count)]
        gradients = pytensor.grad(loss, list(self.parameters.values()))
        for (name, parameter), gradient in zip(self.parameters.items(), gradients):
            mean = MEAN_DECAY * self.means[name] + (1 - MEAN_DECAY) * gradient
            square = SQUARE_DECAY * self.squares[name] + (1 - SQUARE_DECAY) * pt.sqr(gradient)
            root = pt.sqrt(square / (1 - SQUARE_DECAY**count))
            change = self.rate * mean / (1 - MEAN_DECAY**count) / (root + EPSILON)
            updates += [(self.means[name], mean), (self.squares[name], square)]
            updates.append((parameter, parameter - change))
        return updates


def optimizer_of(workload: Workload, parameters: Dict[str, Any]) -> Union[Adam, Sgd]:
    """The workload's optimizer over ``parameters``.

    Raises:
        CaptureError: the optimizer is neither Adam nor SGD.
    """
    if workload.optimizer == "sgd":
        return Sgd(workload, parameters)
    if workload.optimizer != "adam":
        raise CaptureError("unknown optimizer '{}'".format(workload.optimizer), "use adam or sgd")
    return Adam(workload, parameters)

"""pytensor-scan: the LSTM written by hand under pytensor.scan.

``pytensor._scan`` defines the network. pytensor-scan can replace Lasagne's LSTMLayer if no
installed Python is old enough for Theano. Source: the documentation of pytensor.scan.
"""

from __future__ import annotations

from typing import Any

import pytensor
import pytensor.tensor as pt

from lstmprof.implementations.pytensor._scan import (
    Library,
    Network,
    apply,
    canonical,
    load,
    parameters,
)
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("Scan{", "separate PyTensor operators in a Scan"),)


def build(workload: Workload) -> Network:
    return Network(workload, Library(pt, pytensor.shared, pt.sigmoid, _scan))


def _scan(cell: Any, **options: Any) -> Any:
    outputs, _ = pytensor.scan(cell, return_updates=False, **options)
    return outputs

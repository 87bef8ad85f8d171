"""pytensor-scan: the LSTM written by hand under pytensor.scan.

The network is the same as in ``pytensor._scan``: equations, gate order (i f g o, one bias)
and layout; time-major. PyTensor is the successor of Theano, which needs an old Python. If there is
no such Python, this implementation can replace Lasagne's LSTMLayer; it has neither peepholes nor a
learned initial state, and it has all gates in one matrix. Source: the documentation of
pytensor.scan.
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

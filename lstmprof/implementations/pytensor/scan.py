"""pytensor-scan: the LSTM written by hand under pytensor.scan.

Equations, gate order (i f g o, one bias) and layout are those of ``implementations._scan``, whose
network this is; time-major. PyTensor is the heir of Theano; where no Python is old enough for that,
this stands in for Lasagne's LSTMLayer, without its peepholes and learned first state, and with its
gates in one matrix. Source: the documentation of pytensor.scan.
"""

from __future__ import annotations

from typing import Any

import pytensor
import pytensor.tensor as pt

from lstmprof.implementations._scan import (
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
    """Return the network of ``workload`` without its weights."""
    return Network(workload, Library(pt, pytensor.shared, pt.sigmoid, _scan))


def _scan(cell: Any, **options: Any) -> Any:
    outputs, _ = pytensor.scan(cell, return_updates=False, **options)
    return outputs

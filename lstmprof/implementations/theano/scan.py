"""theano-scan: the LSTM written by hand under theano.scan.

Equations, gate order (i f g o, one bias) and layout are those of ``implementations._scan``, whose
network this is; time-major. Of what no time step waits for Theano moves operators on elements out
of a Scan, not the product of the inputs. Source: the documentation of theano.scan 1.0;
theano/scan_module/scan_opt.py (PushOutSeqScan).
"""

from __future__ import annotations

from typing import Any

import theano
import theano.tensor as tt

from lstmprof.implementations._scan import (
    Library,
    Network,
    apply,
    canonical,
    load,
    parameters,
)
from lstmprof.implementations.theano import KERNELS
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True


def build(workload: Workload) -> Network:
    """Return the network of ``workload`` without its weights."""
    return Network(workload, Library(tt, theano.shared, tt.nnet.sigmoid, _scan))


def _scan(cell: Any, **options: Any) -> Any:
    (outputs, _), _ = theano.scan(cell, **options)
    return outputs

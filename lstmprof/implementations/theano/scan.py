"""theano-scan: the LSTM written by hand under theano.scan.

The network is the same as in ``pytensor._scan``: equations, gate order (i f g o, one bias)
and layout; time-major. Theano moves elementwise operators that do not depend on earlier time steps
out of a Scan, but not the matmul with the inputs. Source: the documentation of theano.scan 1.0;
theano/scan_module/scan_opt.py (PushOutSeqScan).
"""

from __future__ import annotations

from typing import Any

import theano
import theano.tensor as tt

from lstmprof.implementations.pytensor._scan import (
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
    return Network(workload, Library(tt, theano.shared, tt.nnet.sigmoid, _scan))


def _scan(cell: Any, **options: Any) -> Any:
    (outputs, _), _ = theano.scan(cell, **options)
    return outputs

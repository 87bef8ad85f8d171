"""The implementations of the LSTM, one per file, and what each file must define.

Each implementation's file has

``build(workload)``
    returns the framework's own module with all parameters. Calling the module with inputs in the
    framework's native layout, and with lengths (batch,) if sequences differ in length, returns the
    outputs of the head (output layer): for the last time step, or for every time step
    (``Workload.every_step``)
``load(module, weights)``
    sets the parameters from NumPy weights with framework-independent names and layout, which
    ``workloads.parameter_shapes`` defines
``parameters(module)``
    returns the trainable variables, keyed by the framework's names, in the module's order
``canonical(module, arrays)``
    is the inverse of ``load``: converts NumPy arrays, keyed by the framework's names, to the
    framework-independent names and layout
``TIME_MAJOR``
    True if inputs (and outputs of every time step) are (time, batch, …); False for (batch, time, …)
``KERNELS``
    pairs (operator, description): the first operator that a profile contains shows which kernels
    ran

Some frameworks need more:

``apply(module, arrays, inputs)``, for JAX, whose modules are not called
    returns the outputs as a pure function of ``arrays``, keyed like ``parameters``; an optional
    last argument is the lengths
``apply(module, inputs, mode)``, for PyTensor and Theano, whose modules are not called
    returns the symbolic outputs
``apply(module, inputs)``, for MXNet's Module, whose networks are not Blocks
    returns the symbol of the outputs
``build(workload, training, tf32)``, for cuDNN, whose modules are not called
    returns a module whose ``forward()`` and ``backward()`` read and write its device buffers
``build(workload)``, for TensorFlow 1, whose layers take their scope from their first call
    returns a module that creates its parameters when it is called with placeholders; it is called
    only once
``mixed_precision(precision)``, for TensorFlow
    is called before ``build`` if the precision is ``amp-fp16`` or ``amp-bf16``
``forward(module, graph)``, for ONNX, whose engines need the whole graph
    adds the network's nodes to ``graph`` and returns the name of the outputs

The loss, training loop, timing, device and CLI are in ``capture``, once per framework. The
``__init__`` of a folder has the common code of its files. Files whose names begin with an
underscore are not implementations.

This file uses only the standard library and Python 3.7. Only the worker process that runs an
implementation imports its file.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from typing import Mapping, Tuple

from lstmprof.base.errors import UsageError, unknown_name
from lstmprof.implementations._row import (
    CELL_OP,
    FORMS,
    FRAMEWORKS,
    LAYER_OP,
    LOOP,
    UNUSUAL,
    Implementation,
)
from lstmprof.implementations._table import TABLE

__all__ = [
    "CELL_OP",
    "FAMILIES",
    "FORMS",
    "FRAMEWORKS",
    "LAYER_OP",
    "LOOP",
    "NOT_RUN",
    "ROWS",
    "TABLE",
    "UNUSUAL",
    "Implementation",
    "System",
    "find",
    "unknown",
]


@dataclasses.dataclass(frozen=True)
class System:
    """A framework of published studies that lstmprof cannot run, and the reason."""

    name: str
    why: str
    needs: str


#: Frameworks that lstmprof cannot run; the reasons describe PyPI and Debian 12 in 2026-11.
NOT_RUN: Tuple[System, ...] = (
    System(
        "CNTK 2.7",
        "PyPI has no wheels for Python 3.7 or later, which lstmprof needs; CNTK's profiler records "
        "no operators",
        "a version of lstmprof for Python 3.6, and the libraries of OpenMPI 3 (libmpi.so.12, "
        "libmpi_cxx.so.1)",
    ),
    System(
        "PyTorch 0.1 to 0.4",
        "the oldest PyTorch on PyPI is 1.0.0",
        "wheels from another source, and support for their older APIs",
    ),
    System(
        "TensorFlow 1.0 to 1.12",
        "PyPI has no wheels for Python 3.7 or later, which lstmprof needs; TensorFlow 1.13 to 1.15 "
        "have the same LSTM cells",
        "a version of lstmprof for Python 3.6",
    ),
    System(
        "Lasagne 0.2",
        "it was never released; PyPI has 0.1, whose peephole equations differ",
        "its source code from another place",
    ),
    System(
        "Keras and TensorFlow in R",
        "CRAN has the R packages keras and tensorflow, but Debian does not; these packages call "
        "Keras in Python, so keras-lstm runs the same kernels",
        "an R with both packages, and a worker that runs R",
    ),
    System(
        "MXNet in R",
        "MXNet's repository had the R package, but Debian and PyPI do not have this package; "
        "mxnet-module-lstm runs the same operators",
        "an R with the package, and a worker that runs R",
    ),
    System(
        "Knet (Julia)",
        "Debian 12 has no Julia, and the PyPI package downloads Julia from another site",
        "a Julia with Knet, and a worker written in Julia",
    ),
    System(
        "Torch7 (Lua)",
        "Debian has LuaJIT but no Torch, and the PyPI package needs an installed Torch",
        "a Torch7 built from source, and a worker written in Lua",
    ),
)

#: Name or alias -> row of the table.
ROWS: Mapping[str, Implementation] = {
    name: row for row in TABLE for name in (row.name, *row.aliases)
}
#: One folder per framework.
FAMILIES = tuple(dict.fromkeys(row.family for row in TABLE))
#: Name of a framework that users may type -> prefix of the names of its implementations.
_SPELLINGS = {"pytorch": "torch", "tensorflow": "tf", "tensorflow1": "tf1"}


def find(name: str) -> Implementation:
    if name not in ROWS:
        raise unknown(name)
    return ROWS[name]


def unknown(name: str) -> UsageError:
    """Return an error that suggests the nearest name or pattern, such as ``torch-*``."""
    family, _, rest = name.lower().partition("-")
    pattern = "{}-{}".format(_SPELLINGS.get(family, family), rest or "*")
    if fnmatch.filter(ROWS, pattern):
        hint = "did you mean '{}'?".format(pattern)
    else:
        near = unknown_name("implementation", pattern.rstrip("-*"), [row.name for row in TABLE])
        hint = near.next_step
    return UsageError("unknown implementation '{}'".format(name), hint)

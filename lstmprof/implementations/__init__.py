"""The implementations of the LSTM, one per file, in the order in which they are shown.

A file of the table has

``build(workload)``
    returns the framework's own module with all parameters. It is called with inputs in the
    framework's
    native layout, and with the lengths (batch,) for a workload of variable length. It returns the
    head's
    outputs, of the last time step or of every one (``Workload.every_step``)
``load(module, weights)``
    sets the shared NumPy weights (names and layout of ``workloads.parameter_shapes``)
``parameters(module)``
    returns own name -> trainable variable, in the module's order
``canonical(module, arrays)``
    converts NumPy arrays by own name, one per parameter, to the shared names and layout
``apply(module, arrays, inputs)``, for JAX, whose modules are not called
    returns the outputs as a pure function of ``arrays``, one per parameter by own name; lengths as
    above
``apply(module, inputs, mode)``, for PyTensor and Theano, whose modules are not called either
    returns the symbolic outputs
``apply(module, inputs)``, for MXNet's Module, whose networks are not Blocks
    returns the symbol of the outputs
``build(workload, training, tf32)``, for cuDNN, whose modules are not called either
    has ``forward()`` and ``backward()`` between the module's buffers on the device
``build(workload)``, for TensorFlow 1, whose layers are created in the scope of their call
    returns a module that creates its parameters when it is called, once, with placeholders
``TIME_MAJOR``
    whether inputs (and outputs of every step) are (time, batch, …) or (batch, time, …)
``mixed_precision(precision)``
    only TensorFlow's rows: called before ``build`` for ``amp-fp16`` and ``amp-bf16``
``forward(module, graph)``, for ONNX, whose engines need the whole graph
    adds the network's nodes to ``graph``; returns the name of the outputs
``KERNELS``
    (operator, words): the first operator found in a profile shows which kernels ran

There is no loss, loop, timing, device or CLI, because ``capture`` has them once per framework. The
``__init__`` of a folder has what its files share; names with an underscore are not in the table.

Keeps to the standard library and Python 3.7; only the worker that runs an implementation imports
its file.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from typing import Mapping, Tuple

from lstmprof.errors import UsageError, unknown_name
from lstmprof.implementations._row import (
    CELL_OP,
    FORMS,
    FRAMEWORKS,
    LAYER_OP,
    LOOP,
    UNUSUAL,
    Implementation,
    version_numbers,
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
    "version_numbers",
]


@dataclasses.dataclass(frozen=True)
class System:
    """A system of the studies that lstmprof does not run; users are shown ``why`` and ``needs``."""

    name: str
    why: str
    needs: str


#: Looked for on PyPI and in Debian 12 in 2026-11, on x86-64; CNTK was installed and trained.
NOT_RUN: Tuple[System, ...] = (
    System(
        "CNTK 2.7",
        "its last wheels are for Python 3.6, and lstmprof needs 3.7; its profiler records three "
        "ranges per minibatch and no operators",
        "support for Python 3.6, and the libraries of OpenMPI 3 (libmpi.so.12, libmpi_cxx.so.1)",
    ),
    System(
        "PyTorch 0.1 to 0.4",
        "the oldest PyTorch on PyPI is 1.0.0",
        "wheels from another source, and support for their older APIs",
    ),
    System(
        "TensorFlow 1.0 to 1.12",
        "its last wheels are for Python 3.6, and lstmprof needs 3.7; 1.13 to 1.15 have the "
        "same cells",
        "support for Python 3.6",
    ),
    System(
        "Lasagne 0.2",
        "it was never released; PyPI has 0.1, whose peephole equations differ",
        "its source code from another place",
    ),
    System(
        "Keras and TensorFlow in R",
        "their packages are on CRAN but not in Debian; they call Keras in Python, so "
        "keras-lstm runs "
        "the same kernels",
        "an R with both packages, and a worker that runs R",
    ),
    System(
        "MXNet in R",
        "its package was in MXNet's own repository, and is neither in Debian nor on PyPI; "
        "mxnet-module-lstm runs the same operators",
        "an R with the package, and a worker that runs R",
    ),
    System(
        "Knet (Julia)",
        "Debian 12 has no Julia, and the PyPI package downloads it from another place",
        "a Julia with Knet, and a worker written in Julia",
    ),
    System(
        "Torch7 (Lua)",
        "Debian has LuaJIT but no Torch, and the PyPI package needs an installed Torch",
        "a Torch7 built from source, and a worker written in Lua",
    ),
)

#: Name or alias → row.
ROWS: Mapping[str, Implementation] = {
    name: row for row in TABLE for name in (row.name, *row.aliases)
}
#: The families of rows, in the order of the table.
FAMILIES = tuple(dict.fromkeys(row.family for row in TABLE))
#: Other spelling of a family -> prefix of the names of its rows.
_SPELLINGS = {"pytorch": "torch", "tensorflow": "tf", "tensorflow1": "tf1"}


def find(name: str) -> Implementation:
    """Return the row called ``name``, or with this alias.

    Raises:
        UsageError: no implementation has this name; the message suggests the nearest one.
    """
    if name not in ROWS:
        raise unknown(name)
    return ROWS[name]


def unknown(name: str) -> UsageError:
    """Return the error for a name or pattern that matches no row; it suggests the nearest name."""
    family, _, rest = name.lower().partition("-")
    meant = "{}-{}".format(_SPELLINGS.get(family, family), rest or "*")
    if fnmatch.filter(ROWS, meant):
        hint = "did you mean '{}'?".format(meant)
    else:
        near = unknown_name("implementation", meant.rstrip("-*"), [row.name for row in TABLE])
        hint = near.next_step
    return UsageError("unknown implementation '{}'".format(name), hint)

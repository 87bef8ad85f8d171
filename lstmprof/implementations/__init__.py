"""The implementations of the LSTM, one per file, in the order in which they are shown.

A file of the table has

``build(workload)``
    the framework's own module with every parameter made; called with inputs in the framework's
    native layout, and for a workload of variable length with the lengths (batch,), it returns the
    head's outputs: of the last time step, or of every one (``Workload.every_step``)
``load(module, weights)``
    sets the shared NumPy weights (names and layout of ``workloads.parameter_shapes``)
``parameters(module)``
    own name -> trainable variable, in the module's order
``canonical(module, arrays)``
    the way back: NumPy arrays by own name, one per parameter, in the shared names and layout
``apply(module, arrays, inputs)``, of JAX, where modules are not called
    the outputs as a pure function of ``arrays``, one per parameter by own name; lengths as above
``apply(module, inputs, mode)``, of PyTensor and Theano, where modules are not called either
    the symbolic outputs
``apply(module, inputs)``, of MXNet's Module, whose networks are no Blocks
    the symbol of the outputs
``build(workload, training, tf32)``, of cuDNN, whose modules are called neither
    ``forward()`` and ``backward()`` between the module's buffers on the device
``build(workload)``, of TensorFlow 1, whose layers are made in the scope where they are called
    a module that makes its parameters when it is called, once, with placeholders
``TIME_MAJOR``
    whether inputs (and outputs of every step) are (time, batch, …) or (batch, time, …)
``mixed_precision(precision)``
    TensorFlow's rows alone: to be called before ``build`` for ``amp-fp16`` and ``amp-bf16``
``forward(module, graph)``, of ONNX, where an engine is given the whole graph
    the network's nodes, added to ``graph``; the name of the outputs
``KERNELS``
    (operator, words): the first operator found in a profile says which kernels really ran

No loss, loop, timing, device or CLI: those exist once a framework, in ``capture``. What the files
of a folder share is in its ``__init__``; a name that starts with an underscore is no row's.

Keeps to the standard library and Python 3.7; an implementation's file is imported only by the
worker that runs it.
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
#: What rows are listed by, in the order of the table.
FAMILIES = tuple(dict.fromkeys(row.family for row in TABLE))
#: How else a family is called -> how names of its rows begin.
_SPELLINGS = {"pytorch": "torch", "tensorflow": "tf", "tensorflow1": "tf1"}


def find(name: str) -> Implementation:
    """The row called ``name``, or by one of its aliases.

    Raises:
        UsageError: no such implementation; says which name is nearest.
    """
    if name not in ROWS:
        raise unknown(name)
    return ROWS[name]


def unknown(name: str) -> UsageError:
    """The error for a name or a pattern that means no row, with the nearest that means one."""
    family, _, rest = name.lower().partition("-")
    meant = "{}-{}".format(_SPELLINGS.get(family, family), rest or "*")
    if fnmatch.filter(ROWS, meant):
        hint = "did you mean '{}'?".format(meant)
    else:
        near = unknown_name("implementation", meant.rstrip("-*"), [row.name for row in TABLE])
        hint = near.next_step
    return UsageError("unknown implementation '{}'".format(name), hint)

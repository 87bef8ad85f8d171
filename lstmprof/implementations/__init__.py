"""The implementations of the LSTM, one a file, in the order in which they are shown.

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
    the way back: NumPy arrays by own name, one a parameter, in the shared names and layout
``apply(module, arrays, inputs)``, of JAX, where modules are not called
    the outputs as a pure function of ``arrays``, one a parameter by own name; lengths as above
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

import fnmatch
from typing import Mapping

from lstmprof.errors import UsageError, unknown_name
from lstmprof.implementations._refusals import FRAMEWORKS, UNUSUAL
from lstmprof.implementations._row import (
    CELL_OP,
    FORMS,
    LAYER_OP,
    LOOP,
    Implementation,
    version_numbers,
)
from lstmprof.implementations._systems import NOT_RUN, System
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

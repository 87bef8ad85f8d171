"""The implementations of the LSTM, one a file, in the order in which they are shown.

A file of the table has

``build(workload)``
    the framework's own module with every parameter made; called with inputs in the framework's
    native layout it returns the head's outputs: of the last time step, for CTC of every one
``load(module, weights)``
    sets the shared NumPy weights (names and layout of ``workloads.parameter_shapes``)
``parameters(module)``
    own name -> trainable variable, in the module's order
``canonical(module, arrays)``
    the way back: NumPy arrays by own name, one a parameter, in the shared names and layout
``TIME_MAJOR``
    whether inputs (and CTC's outputs) are (time, batch, …) or (batch, time, …)
``KERNELS``
    (operator, words): the first operator found in a profile says which kernels really ran

No loss, loop, timing, device or CLI: those exist once a framework, in ``capture``. A file whose
name starts with an underscore is no implementation but what several of them share.

Keeps to the standard library and Python 3.7; an implementation's file is imported only by the
worker that runs it.
"""

from __future__ import annotations

import dataclasses
from typing import Tuple

from lstmprof.errors import unknown_name


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One row of the table."""

    name: str
    framework: str  # "torch" or "tensorflow": which loop in capture/ runs it
    summary: str

    @property
    def module(self) -> str:
        """The importable name of its file."""
        return "lstmprof.implementations." + self.name.replace("-", "_")


TABLE: Tuple[Implementation, ...] = (
    Implementation(
        "torch-lstmcell-basic", "torch", "cell written by hand, Python loop over time steps"
    ),
    Implementation(
        "torch-lstmcell-fused", "torch", "torch.nn.LSTMCell, Python loop over time steps"
    ),
    Implementation(
        "torch-cudnn", "torch", "torch.nn.LSTM: cuDNN on a GPU; oneDNN or ATen kernels on a CPU"
    ),
    Implementation("tf-lstmcell", "tensorflow", "cell written by hand under tf.while_loop"),
    Implementation("keras-lstm", "tensorflow", "keras.layers.LSTM as it comes: cuDNN on a GPU"),
)


def find(name: str) -> Implementation:
    """The row called ``name``.

    Raises:
        UsageError: no such implementation; says which name is nearest.
    """
    for implementation in TABLE:
        if implementation.name == name:
            return implementation
    raise unknown_name("implementation", name, [i.name for i in TABLE])

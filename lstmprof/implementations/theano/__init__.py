"""Common parts of Theano's rows: masks, outputs of the last time step, and words of a profile.

Theano's layers are batch-major, as its users expect, except the cell written by hand.
"""

from __future__ import annotations

from typing import Any

import theano.tensor as tt

#: A Scan of Theano is called ``for{cpu,l0}`` by its name, in place ``forall_inplace,cpu,l0}``
KERNELS = (
    ("theano::for", "separate Theano operators in a Scan"),
    ("theano::do_while", "separate Theano operators in a Scan"),
)


def mask_of(inputs: Any, lengths: Any) -> Any:
    """Return (batch, time) float32: 1 before the end of each sequence of ``inputs`` (batch,
    time, …).
    """
    return (tt.arange(inputs.shape[1])[None, :] < lengths[:, None]).astype("float32")


def last(outputs: Any, lengths: Any = None) -> Any:
    """Return each sequence's last of ``outputs`` (batch, time, width)."""
    if lengths is None:
        return outputs[:, -1]
    return outputs[tt.arange(outputs.shape[0]), lengths - 1]

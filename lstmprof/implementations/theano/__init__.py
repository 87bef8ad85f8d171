"""Parts that Theano's implementations share: masks, last outputs, op names.

Lasagne's and Keras's layers on Theano are batch-major; theano-scan is time-major.
"""

from __future__ import annotations

from typing import Any

import theano.tensor as tt

#: Pairs (op, description). The op of a loop (Scan) ``l0`` in a profile is ``for{cpu,l0}`` or
#: ``forall_inplace,cpu,l0}``.
KERNELS = (
    ("theano::for", "separate Theano operators in a Scan"),
    ("theano::do_while", "separate Theano operators in a Scan"),
)


def mask_of(inputs: Any, lengths: Any) -> Any:
    """Return a float32 mask (batch, time): 0 after the end of a sequence."""
    return (tt.arange(inputs.shape[1])[None, :] < lengths[:, None]).astype("float32")


def last(outputs: Any, lengths: Any = None) -> Any:
    """Return the last output of each sequence: (batch, time, width) -> (batch, width)."""
    if lengths is None:
        return outputs[:, -1]
    return outputs[tt.arange(outputs.shape[0]), lengths - 1]

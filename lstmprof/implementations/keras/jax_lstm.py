"""keras-jax-lstm: keras.layers.LSTM with its default options, on JAX.

The network is the same as in keras-lstm: equations, gate order (i f c̃ o, one bias) and layout;
batch-major. Keras runs a layer as jax.lax.scan over the time steps; on a GPU it runs an LSTM
without a mask with cuDNN. The environment variable ``KERAS_BACKEND=jax`` selects the backend when
keras is first imported, so a process has one backend. ``apply`` calls the network as a pure
function of its parameters (``stateless_call``).
Source: the documentation of keras.layers.LSTM; keras/src/backend/jax/rnn.py 3.15.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from lstmprof.implementations.keras.lstm import Network, build, canonical, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (("cudnn_rnn", "cuDNN"), ("while", "XLA's fused operators in a while loop"))


def apply(
    module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Optional[Any] = None
) -> Any:
    """Return outputs (batch, [time,] classes) of inputs (batch, time, features), or tokens."""
    trained = [arrays[variable.path] for variable in module.trainable_variables]
    others = [variable.value for variable in module.non_trainable_variables]
    return module.stateless_call(trained, others, inputs, lengths)[0]

"""keras-jax-lstm: keras.layers.LSTM with its default options, on JAX.

The network is that of keras-lstm. Keras runs a layer as jax.lax.scan; on a GPU it runs an LSTM
without a mask with cuDNN. ``KERAS_BACKEND=jax`` selects the backend when keras is first imported.
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
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    trained = [arrays[variable.path] for variable in module.trainable_variables]
    others = [variable.value for variable in module.non_trainable_variables]
    return module.stateless_call(trained, others, inputs, lengths)[0]

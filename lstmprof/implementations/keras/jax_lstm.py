"""keras-jax-lstm: keras.layers.LSTM as it comes, on JAX.

Equations, gate order (i f c̃ o, one bias) and layout are those of ``keras_lstm``, whose network this
is; batch-major. Keras runs it as jax.lax.scan over the time steps, on a GPU an LSTM without a mask
by cuDNN. The backend is the environment's ``KERAS_BACKEND=jax``, read when keras is first imported:
one backend a process. Here the network is a function of its parameters, by ``stateless_call``.
Source: the documentation of keras.layers.LSTM; keras/src/backend/jax/rnn.py 3.15.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from lstmprof.implementations.keras.lstm import Network, build, canonical, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (
    ("cudnn_rnn", "cuDNN"),
    ("while", "XLA's fused operators in a while loop"),
)


def apply(
    module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Optional[Any] = None
) -> Any:
    """Return outputs (batch, classes), or one per step, for (batch, time, …) or tokens."""
    trained = [arrays[variable.path] for variable in module.trainable_variables]
    others = [variable.value for variable in module.non_trainable_variables]
    return module.stateless_call(trained, others, inputs, lengths)[0]

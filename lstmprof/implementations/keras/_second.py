"""Parts of a network that differ between Keras 2 and Keras 3: the versions for Keras 2.

Keras 2.1 does not support subclasses of ``keras.Model``. Older versions of Keras have other
defaults than TensorFlow 2, so ``recurrent_activation="sigmoid"`` and (for GRU) ``reset_after=True``
are set explicitly. ``implementation`` (1: one matmul per gate; 2: one matmul for all gates) is set
by ``RNN(LSTMCell(implementation=…))``, because layers that cuDNN can compute ignore this option.
With a mask, Keras repeats the last output after the end of a sequence; ``ended_at_0`` replaces the
repetitions by 0. Source: keras/layers/recurrent.py 2.1.6; keras/layers/recurrent_v2.py 2.8.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from lstmprof.implementations.keras._installed import keras
from lstmprof.workloads import Workload

backend = keras.backend


class Model:
    """Replaces ``keras.Model``, because code cannot subclass Keras 2.1's ``Model``."""

    embedding: Any
    head: Any
    lstms: List[Any]

    def __call__(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Return the network's outputs; the first call creates the parameters."""
        return self.call(inputs, lengths)

    def call(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        raise NotImplementedError

    @property
    def trainable_variables(self) -> List[Any]:
        layers = [self.embedding, *self.lstms, self.head]
        return [v for each in layers if each is not None for v in each.trainable_weights]


def layer(workload: Workload, options: Mapping[str, Any]) -> Any:
    """Return a layer for one direction; options except ``implementation`` are ignored."""
    if workload.cell == "rnn":
        return keras.layers.SimpleRNN(workload.hidden, return_sequences=True)
    arguments: Dict[str, Any] = {"recurrent_activation": "sigmoid"}
    if workload.cell == "gru":
        arguments["reset_after"] = True
    name = workload.cell.upper()
    if "implementation" not in options:
        return getattr(keras.layers, name)(workload.hidden, return_sequences=True, **arguments)
    arguments["implementation"] = options["implementation"]
    cell = getattr(keras.layers, name + "Cell")(workload.hidden, **arguments)
    return keras.layers.RNN(cell, return_sequences=True)


def masked(lengths: Any, steps: int) -> Tuple[Any, Any]:
    """Return int32 lengths, and a mask (batch, time): True before a sequence's end."""
    lengths = backend.cast(lengths, "int32")
    places = backend.expand_dims(backend.arange(steps), 0)
    return lengths, backend.less(places, backend.expand_dims(lengths, 1))


def ended_at_0(outputs: Any, mask: Optional[Any]) -> Any:
    """Set outputs (batch, time, width) to 0 after the end of each sequence."""
    if mask is None:
        return outputs
    return outputs * backend.expand_dims(backend.cast(mask, backend.dtype(outputs)), -1)


def last(outputs: Any, lengths: Any, workload: Workload) -> Any:
    """Return the last output of each sequence: (batch, time, width) -> (batch, width)."""
    batch, steps = workload.batch, workload.time_steps
    flat = backend.reshape(outputs, (batch * steps, workload.directions * workload.hidden))
    return backend.gather(flat, backend.arange(batch) * steps + lengths - 1)


def make(module: Any, inputs: Any) -> None:
    """Call an eager network once, so that Keras creates the parameters."""
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.executing_eagerly():
            module(tf.constant(inputs))


def own_name(variable: Any) -> str:
    return str(variable.name).split(":")[0]


def values(variables: List[Any]) -> Dict[str, Any]:
    return {own_name(variable): variable for variable in variables}


def assign(variable: Any, value: Any) -> None:
    # TensorFlow 1 assigns the value in its default session
    backend.set_value(variable, value)

"""What Keras 2 has otherwise than Keras 3: its backend's own tensors, and networks without a model.

Layers are called on tensors of the backend, outside of any ``keras.Model``, of which Keras 2.1 can
have no subclass. LSTM and GRU are given ``recurrent_activation="sigmoid"``: before TensorFlow 2
Keras's default was ``hard_sigmoid``, another network. GRU is given ``reset_after=True``, the
default since TensorFlow 2. A product for each gate, or one for all, is asked for by
``RNN(LSTMCell(implementation=…))``: a layer that cuDNN could compute does not mind the argument. A
layer that is told nothing takes implementation 1 in Keras before TensorFlow 2, and 2 since. With a
mask Keras repeats the last output beyond the end of a sequence; here it becomes 0.
Source: keras/layers/recurrent.py 2.1.6; keras/layers/recurrent_v2.py 2.8.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from lstmprof.implementations.keras._installed import keras
from lstmprof.workloads import Workload

backend = keras.backend


class Model:
    """The parts of keras.Model that a network needs."""

    embedding: Any
    head: Any
    lstms: List[Any]

    def __call__(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Return the outputs; the first call creates the parameters."""
        return self.call(inputs, lengths)

    def call(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Return the outputs."""
        raise NotImplementedError

    @property
    def trainable_variables(self) -> List[Any]:
        """Return the variables of the layers, in order."""
        layers = [self.embedding, *self.lstms, self.head]
        return [v for each in layers if each is not None for v in each.trainable_weights]


def layer(workload: Workload, options: Mapping[str, Any]) -> Any:
    """Return one layer in one direction; of Keras 3's ``options`` it supports
    ``implementation``.
    """
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
    """Return the lengths as int32, and a mask (batch, time) that is True before the end."""
    lengths = backend.cast(lengths, "int32")
    places = backend.expand_dims(backend.arange(steps), 0)
    return lengths, backend.less(places, backend.expand_dims(lengths, 1))


def ended_at_0(outputs: Any, mask: Optional[Any]) -> Any:
    """Return ``outputs`` (batch, time, width) with 0 after the end of each sequence."""
    if mask is None:
        return outputs
    return outputs * backend.expand_dims(backend.cast(mask, backend.dtype(outputs)), -1)


def last(outputs: Any, lengths: Any, workload: Workload) -> Any:
    """Return each sequence's last of ``outputs`` (batch, time, width)."""
    batch, steps = workload.batch, workload.time_steps
    flat = backend.reshape(outputs, (batch * steps, workload.directions * workload.hidden))
    return backend.gather(flat, backend.arange(batch) * steps + lengths - 1)


def make(module: Any, inputs: Any) -> None:
    """Make every parameter of ``module``; in a graph its call with placeholders does."""
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.executing_eagerly():
            module(tf.constant(inputs))


def own_name(variable: Any) -> str:
    """Return ``lstm_1/kernel`` for ``lstm_1/kernel:0``."""
    return str(variable.name).split(":")[0]


def values(variables: List[Any]) -> Dict[str, Any]:
    """Return own name -> the backend's variable."""
    return {own_name(variable): variable for variable in variables}


def assign(variable: Any, value: Any) -> None:
    """Set a variable; with TensorFlow 1 in the default session."""
    backend.set_value(variable, value)

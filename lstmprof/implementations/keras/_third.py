"""Parts of a network that differ between Keras 2 and Keras 3: the versions for Keras 3."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from lstmprof.implementations.keras._installed import keras
from lstmprof.workloads import Workload

Model = keras.Model
LAYERS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn": keras.layers.SimpleRNN}


def layer(workload: Workload, options: Mapping[str, Any]) -> Any:
    return LAYERS[workload.cell](
        workload.hidden, return_sequences=True, zero_output_for_mask=True, **options
    )


def masked(lengths: Any, steps: int) -> Tuple[Any, Any]:
    """Return int32 lengths, and a mask (batch, time): True before a sequence's end."""
    lengths = keras.ops.cast(lengths, "int32")
    return lengths, keras.ops.arange(steps)[None] < lengths[:, None]


def ended_at_0(outputs: Any, mask: Optional[Any]) -> Any:
    # Keras 3's layers have already set the outputs to 0 after the end of a sequence
    return outputs


def last(outputs: Any, lengths: Any, workload: Workload) -> Any:
    """Return the last output of each sequence: (batch, time, width) -> (batch, width)."""
    batch, steps, width = outputs.shape
    places = keras.ops.arange(batch) * steps + lengths - 1
    return keras.ops.take(keras.ops.reshape(outputs, (batch * steps, width)), places, axis=0)


def make(module: Any, inputs: Any) -> None:
    """Call the module once, so that Keras creates the parameters."""
    module(inputs)


def own_name(variable: Any) -> str:
    return str(variable.path)


def values(variables: List[Any]) -> Dict[str, Any]:
    return {variable.path: variable.value for variable in variables}


def assign(variable: Any, value: Any) -> None:
    variable.assign(value)

"""Differences of Keras 3 from Keras 2."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from lstmprof.implementations.keras._installed import keras
from lstmprof.workloads import Workload

Model = keras.Model
LAYERS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn": keras.layers.SimpleRNN}


def layer(workload: Workload, options: Mapping[str, Any]) -> Any:
    """Return one layer in one direction."""
    return LAYERS[workload.cell](
        workload.hidden, return_sequences=True, zero_output_for_mask=True, **options
    )


def masked(lengths: Any, steps: int) -> Tuple[Any, Any]:
    """Return the lengths as int32, and a mask (batch, time) that is True before the end."""
    lengths = keras.ops.cast(lengths, "int32")
    return lengths, keras.ops.arange(steps)[None] < lengths[:, None]


def ended_at_0(outputs: Any, mask: Optional[Any]) -> Any:
    """Return ``outputs``, which the layers have already set to 0 after the end of each sequence."""
    return outputs


def last(outputs: Any, lengths: Any, workload: Workload) -> Any:
    """Return each sequence's last of ``outputs`` (batch, time, width)."""
    batch, steps, width = outputs.shape
    places = keras.ops.arange(batch) * steps + lengths - 1
    return keras.ops.take(keras.ops.reshape(outputs, (batch * steps, width)), places, axis=0)


def make(module: Any, inputs: Any) -> None:
    """Make every parameter of ``module``, which takes such ``inputs``."""
    module(inputs)


def own_name(variable: Any) -> str:
    """Return the path of a variable."""
    return str(variable.path)


def values(variables: List[Any]) -> Dict[str, Any]:
    """Return own path -> the backend's variable."""
    return {variable.path: variable.value for variable in variables}


def assign(variable: Any, value: Any) -> None:
    """Set a variable."""
    variable.assign(value)

"""The ways in which a profile shows recurrent layers, by the events alone: never by run.json.

So a stranger's profile tells as much as a capture of lstmprof's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from lstmprof.breakdown.recurrent.call import Call
from lstmprof.breakdown.recurrent.profiles.kernels import kernel_calls
from lstmprof.breakdown.recurrent.profiles.pytensor import pytensor_calls
from lstmprof.breakdown.recurrent.profiles.tensorflow import tensorflow_calls
from lstmprof.breakdown.recurrent.profiles.torch_layers import layer_calls
from lstmprof.breakdown.recurrent.profiles.torch_loops import loop_calls
from lstmprof.breakdown.recurrent.profiles.xla import xla_calls
from lstmprof.events.table import EventTable

#: How recurrent layers are told in a profile, each by events that no other takes.
RECOGNISERS: tuple[Callable[[EventTable], Iterator[Call]], ...] = (
    layer_calls,
    loop_calls,
    tensorflow_calls,
    xla_calls,
    pytensor_calls,
    kernel_calls,
)
#: What is in a name of every layer or loop that is told: most profiles have no such name.
_HINT = re.compile(r"lstm|gru|rnn|sigmoid|while|scan\{|compiled", re.IGNORECASE)


def recurrent_calls(events: EventTable) -> list[Call]:
    """Every run of a recurrent layer or loop of cells in annotated ``events``."""
    texts = (events.column(name).unique().to_pylist() for name in ("name", "op_name"))
    if not any(_HINT.search(text) for listed in texts for text in listed if text):
        return []
    return [call for calls in RECOGNISERS for call in calls(events)]

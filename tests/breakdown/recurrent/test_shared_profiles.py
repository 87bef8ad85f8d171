"""What the layer table says of the real profiles beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
import shared_traces

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate.steps import windows

pytestmark = shared_traces.needed

#: Those of one LSTM of 20 time steps, batches of 8, 13 inputs and 16 units: (form, op, T, cells).
TOLD = {
    "torch-1.0.0": ("layer op", "aten::lstm", None, 20),
    "torch-1.4.0": ("layer op", "aten::lstm", None, 20),
    "torch-1.8.1": ("layer op", "aten::lstm", None, 20),
    "tf-1.8.0-basic": ("loop", "1 product, 3 sigmoid, 2 tanh", 20, 20),
    "tf-1.15.5-basic": ("loop", "1 product, 3 sigmoid, 2 tanh", 20, 20),
    "tf-1.15.5-lstmblock": ("layer op", "BlockLSTM", None, None),
    "chainer-7.8.1": ("cell op", "chainer::LSTM", None, 20),
    "mxnet-1.9.1": ("layer op", "mxnet::RNN", None, None),
}


@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_a_profile_has_the_recurrent_layers_that_ran_and_no_others(path: Path) -> None:
    events = shared_traces.annotated_events(path)
    layers = TABLES["layers"].of(events, windows(events, captured=False)).to_pylist()
    told = next((facts for name, facts in TOLD.items() if path.name.startswith(name)), None)
    found = [tuple(la[name] for name in ("form", "op", "time_steps", "cells")) for la in layers]
    assert found == ([] if told is None else [told])
    cell = None if path.name.startswith("mxnet") else "lstm"  # an op of all cells
    assert all(layer["cell"] == cell for layer in layers)

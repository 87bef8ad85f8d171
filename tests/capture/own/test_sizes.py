"""Sizes of recurrent layers by the calls of their modules: the layer table is as with shapes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import lstmprof as lp
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.breakdown.recurrent.profiles import recurrent_calls
from lstmprof.capture.op_inputs import with_inputs
from lstmprof.capture.own import passes, sizes as sizes_of_layers
from lstmprof.capture.own.sizes import ModuleSizes
from lstmprof.capture.worker.shapes import written
from lstmprof.events.annotate import annotated
from lstmprof.formats import read

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have compiled models; then there would be no hook."""
    monkeypatch.setattr(sizes_of_layers, "has_compiled", lambda: False)


def packed(*lengths: int) -> Any:
    series = [torch.ones(length, 5) for length in lengths]
    return torch.nn.utils.rnn.pack_sequence(series, enforce_sorted=False)


def networks(
    folder: Path, steps: list[Any], sizes: ModuleSizes | None, shapes: bool = False
) -> list[Network]:
    """The networks that the profile of these steps shows, by recorded shapes or by ``sizes``."""
    path = folder / "profile.pt.trace.json"
    with torch.profiler.profile(record_shapes=shapes or sizes is None) as profile:
        for step in steps:
            if sizes is not None:
                sizes.step_begins(True)
            with torch.profiler.record_function("step"):
                step()
            if sizes is not None:
                sizes.step_ends()
    if sizes is not None:
        sizes.close()
    profile.export_chrome_trace(str(path))
    events = annotated(read(path).events, captured=True)
    if sizes is not None:
        inputs = sizes.inputs(len(steps), 0)
        events = with_inputs(events, Path(str(written(inputs, str(folder / "shapes.json")))))
    return [call.network for call in recurrent_calls(events)]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (torch.nn.LSTM(5, 7), [torch.ones(4, 3, 5), torch.ones(6, 2, 5)]),
        (torch.nn.LSTM(5, 7, 2, bidirectional=True, batch_first=True), [torch.ones(3, 4, 5)]),
        (torch.nn.LSTM(5, 7, proj_size=2), [torch.ones(4, 3, 5)]),
        (torch.nn.LSTM(5, 7), [torch.ones(4, 5)]),
        (torch.nn.LSTM(5, 7).double(), [torch.ones(4, 3, 5).double()]),
        (torch.nn.GRU(5, 7, batch_first=True), [packed(4, 2, 3), packed(6, 6)]),
        (torch.nn.RNN(5, 7), [torch.ones(4, 3, 5)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_has_the_sizes_that_recorded_shapes_show(
    module: Any, inputs: list[Any], tmp_path: Path
) -> None:
    steps = [functools.partial(module, each) for each in inputs]
    expected = networks(tmp_path, steps, None)
    seen = networks(tmp_path, steps, ModuleSizes(torch))
    assert None not in (seen[0].time_steps, seen[0].batch, seen[0].hidden, seen[0].packed)
    assert seen == expected


def test_a_call_of_forward_itself_has_sizes(tmp_path: Path) -> None:
    module, forward, x = torch.nn.LSTM(5, 7), torch.nn.LSTM.forward, torch.ones(4, 3, 5)
    for call in (lambda: module.forward(x), lambda: module.forward(input=x)):
        (seen,) = networks(tmp_path, [call], ModuleSizes(torch))
        assert (seen.time_steps, seen.batch, seen.inputs, seen.hidden) == (4, 3, 5, 7)
    assert torch.nn.LSTM.forward is forward


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize(("layers", "directions"), [(2, 1), (1, 2)])
def test_two_layers_and_two_directions_differ_even_if_all_weights_are_alike(
    layers: int, directions: int, shapes: bool, tmp_path: Path
) -> None:
    module = torch.nn.LSTM(5, 5, layers, bidirectional=directions == 2)
    step = functools.partial(module, packed(4, 2, 3))
    (seen,) = networks(tmp_path, [step], ModuleSizes(torch), shapes)
    assert (seen.layers, seen.directions, seen.packed) == (layers, directions, True)
    assert seen.cells == 4 * 2


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_a_loop_of_cells_has_the_sizes_that_recorded_shapes_show(cell: Any, tmp_path: Path) -> None:
    module = cell(5, 7)

    def step() -> None:
        state = None
        for _ in range(4):
            state = module(torch.ones(3, 5), state)

    expected = networks(tmp_path, [step], None)
    seen = networks(tmp_path, [step], ModuleSizes(torch))
    assert (seen[0].time_steps, seen[0].batch, seen[0].inputs, seen[0].hidden) == (4, 3, 5, 7)
    assert seen == expected


def test_a_look_up_has_the_sizes_of_its_table_and_of_its_rows() -> None:
    sizes = ModuleSizes(torch)
    sizes.step_begins(True)
    torch.nn.Embedding(20, 3)(torch.zeros(4, 2, dtype=torch.long))
    sizes.step_ends()
    sizes.close()
    look_up = ("aten::embedding", [[20, 3], [4, 2]], ["float32", "int64"], 0)
    assert list(sizes.inputs(1, 0)) == [look_up]


def test_a_profile_of_ones_own_loop_has_sizes_though_shapes_are_expensive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MOST_FOR_SHAPES", -2)
    model, x = torch.nn.LSTM(5, 7), torch.ones(4, 3, 5)
    with lp.profile(tmp_path / "run", framework="torch", quiet=True) as profile:
        for _ in range(400):  # so many that the last session is whole on any machine
            model(x)
            profile.step()
    layers = lp.read(tmp_path / "run").table("layers").to_pandas()
    columns = ["time_steps", "batch", "inputs", "hidden"]
    assert layers[columns].to_numpy().tolist() == [[4, 3, 5, 7]]
    assert not hasattr(torch.nn.LSTM.forward, "__wrapped__")

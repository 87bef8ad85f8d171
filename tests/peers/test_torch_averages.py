"""torch's own ``key_averages`` of a session against the trace that the session exports.

Equal in self time to the nanosecond: torch keeps integers of nanoseconds, shows them as float
microseconds, and exports them with three decimals. Counts differ in one way. Before it averages,
torch folds an op into the op around it that has the same name and no other child
(``EventList._remove_dup_nodes``); lstmprof counts both, since both ran.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from peers import accounts

from lstmprof import formats
from lstmprof.breakdown.tables import TABLES
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import profiling
from lstmprof.events.annotate import annotated
from lstmprof.events.groups import own_time
from lstmprof.workloads import Workload

kernels = TABLES["kernels"].of

torch = accounts.peer("torch", "'lstmprof[torch]'")

#: What torch says by name, and lstmprof's events of the same session.
Both = tuple[dict[str, Any], pa.Table]
SMALL = Workload("small-ce", 1, 6, False, 3, 5, 4, 3, "ce")


class HandWritten(torch.nn.Module):  # type: ignore[name-defined,misc]
    """An LSTM of eager ops: tensors (time, batch, features)."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.of_input = torch.nn.Linear(features, 4 * hidden)
        self.of_state = torch.nn.Linear(hidden, 4 * hidden)
        self.hidden = hidden

    def forward(self, inputs: Any) -> tuple[Any, Any]:
        state = cell = inputs.new_zeros(inputs.shape[1], self.hidden)
        outputs = []
        for one in inputs:
            gates = self.of_input(one) + self.of_state(state)
            enter, forget, new, out = gates.chunk(4, 1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            state = out.sigmoid() * cell.tanh()
            outputs.append(state)
        return torch.stack(outputs), state


def trained(module: Any, path: Path) -> Any:
    """The profiler session of two training steps, its trace at ``path``."""
    optimizer = torch.optim.Adam(module.parameters())
    inputs = torch.ones(5, 3, 4)

    def step() -> None:
        module(inputs)[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as session:
        for _ in range(2):
            with torch.profiler.record_function("step"):
                step()
    session.export_chrome_trace(str(path))
    return session


def captured(_: Any, path: Path) -> Any:
    """The session of lstmprof's own loop, run in this process, its trace at ``path``."""
    from lstmprof.capture.worker.loops import torch as worker_torch

    sessions = []

    class Kept(torch.profiler.profile):  # type: ignore[name-defined,misc]
        def __enter__(self) -> Any:
            sessions.append(self)
            return super().__enter__()

    request = CaptureRequest("torch-lstmcell-fused", SMALL, device="cpu")
    trainer = worker_torch.Trainer(request, "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.profiler, "profile", Kept)
        # its step would be a session of its own, the last one
        patch.setattr(trainer, "shapes", lambda folder: ())
        (profile,) = trainer.profile(profiling.no_ranges, 2, str(path.parent)).files
    Path(profile).rename(path)
    return sessions[-1]


MAKERS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "nn.LSTM": (trained, lambda: torch.nn.LSTM(4, 6)),
    "hand-written": (trained, lambda: HandWritten(4, 6)),
    "captured": (captured, lambda: None),
}


@pytest.fixture(scope="module", params=MAKERS)
def both(request: Any, tmp_path_factory: Any) -> Iterator[Both]:
    make, module = MAKERS[request.param]
    path = tmp_path_factory.mktemp("torch") / "trace.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = make(module(), path)
        averages = {row.key: row for row in session.key_averages()}
    yield averages, annotated(formats.read(path).events, captured=True)
    torch.set_flush_denormal(False)


def self_times(events: pa.Table) -> Counter[str]:
    spent: Counter[str] = Counter()
    for name, ns in zip(events["name"].to_pylist(), own_time(events).tolist(), strict=True):
        spent[name] += ns
    return spent


def folded(events: pa.Table) -> Counter[str]:
    """By name, the events that are the only child of an event of their own name."""
    children = Counter(events["parent_id"].drop_null().to_pylist())
    names = dict(zip(*(events[c].to_pylist() for c in ("event_id", "name")), strict=True))
    return Counter(
        name
        for name, parent in zip(
            *(events[c].to_pylist() for c in ("name", "parent_id")), strict=True
        )
        if parent is not None and children[parent] == 1 and names[parent] == name
    )


def test_self_time_is_equal_to_the_nanosecond(both: Both) -> None:
    averages, events = both
    theirs = {name: round(row.self_cpu_time_total * 1000) for name, row in averages.items()}
    assert theirs == dict(self_times(events))
    microseconds = np.array([row.self_cpu_time_total for row in averages.values()])
    assert np.abs(microseconds * 1000 - np.round(microseconds * 1000)).max() < 1e-5


def test_counts_are_equal_but_for_what_torch_folds(both: Both) -> None:
    averages, events = both
    theirs = Counter({name: row.count for name, row in averages.items()})
    assert theirs + folded(events) == Counter(events["name"].to_pylist())
    if "aten::mean" in averages:  # it calls itself: the difference is there to be explained
        assert folded(events)["aten::mean"] > 0


def test_the_kernel_table_of_a_cpu_run_has_the_self_times_of_torch(both: Both) -> None:
    averages, events = both
    found: Counter[str] = Counter()
    for row in kernels(events, []).to_pylist():
        found[row["name"]] += row["total_ns"]
    assert len(found) > 10
    assert found == {name: round(averages[name].self_cpu_time_total * 1000) for name in found}

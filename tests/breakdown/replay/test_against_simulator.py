"""A replayed profile of a simulated program equals the program run without the cause."""

from __future__ import annotations

import pytest
from breakdown.replay import removed_causes as truly
from events.rows import table
from hypothesis import given, settings, strategies as st
from simulator import drawn_programs as drawn
from simulator.drawn_programs import Body
from simulator.gpu_programs import (
    BlockingCopy,
    Instruction,
    Launch,
    Machine,
    Record,
    Stream,
    Sync,
    Within,
    Work,
)
from simulator.gpu_simulator import Simulation, simulated as run

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.replay import changes
from lstmprof.breakdown.replay.graph import step_graph
from lstmprof.breakdown.replay.what_if import predictions, replayed
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

MAIN, WORKER, LOADER = 1, 2, 3
DEVICES = sorted({device for device, _ in drawn.STREAMS})
REMOVALS = {
    "launch": (changes.without_launch, truly.without_launch),
    "casts": (changes.without_casts, truly.without_casts),
    "syncs": (changes.without_syncs, truly.without_syncs),
    "copies": (changes.without_copies, truly.without_copies),
    "python": (changes.without_python, truly.without_python),
    "dispatch": (changes.without_dispatch, truly.without_dispatch),
    "gemms": (changes.faster_gemms(3), truly.faster_gemms(3)),
}


def shown(device: int) -> Body:
    """A stretch from which the machine's latencies and costs can be read off.

    A launch on an idle stream and one behind it; each kind of sync that waits, and one that does
    not; a copy on an idle stream.
    """
    stream = next(s for s in drawn.STREAMS if s[0] == device)
    long = Launch(stream, Work("kernel", "vectorized_elementwise_kernel", "pointwise", 60), 1)
    copy = Work("memcpy", "Memcpy DtoH (Device -> Pinned)", "transfer", 3)
    gemm = Launch(stream, Work("kernel", "ampere_sgemm_128x64_nn", "gemm", 60), 1)
    found: list[Instruction] = [long, long]
    for sync in (Sync("device", device, 3), Sync("stream", stream, 2), Sync("event", -device, 2)):
        found += [gemm, Record(stream, -device, 1), sync, sync]
    return (*found, BlockingCopy(stream, copy))


def asked(before: int, stream: Stream, enter: int, leave: int) -> Body:
    """A value as PyTorch asks for it: ops around a copy that blocks, after some Python."""
    copy = BlockingCopy(stream, Work("memcpy", "Memcpy DtoH (Device -> Pinned)", "transfer", 3))
    inner = Within("op", "aten::_local_scalar_dense", enter, (copy,), leave)
    item = Within("op", "aten::item", enter, (inner,), leave)
    return (Within("range", "loss", before, (item,), leave),)


body = drawn.bodies(drawn.STREAMS)
values = st.builds(asked, drawn.some, st.sampled_from(drawn.STREAMS), drawn.some, drawn.short)
parts = st.lists(
    st.one_of(body, values, drawn.casts(drawn.STREAMS), drawn.handed_over(body, WORKER)),
    min_size=2,
    max_size=5,
)
#: An op of the host alone, in which the devices finish: what the host does then is not hidden.
BREATH = Within("op", "aten::empty", 1_000, (), 0)
#: A step whose machine shows itself and that ends with its devices synchronised.
steps = st.builds(
    lambda inner, leave: (
        Within(
            "step",
            "step",
            1,
            (
                *sum((shown(device) for device in DEVICES), ()),
                BREATH,
                *sum(inner, ()),
                *(Sync("device", device, 3) for device in DEVICES),
            ),
            leave,
        ),
    ),
    parts,
    drawn.short,
)


def length(simulation: Simulation) -> int:
    ((start, end),) = simulation.steps
    return end - start


@pytest.mark.parametrize("name", REMOVALS)
def test_a_removed_cause_is_predicted_to_the_nanosecond(name: str) -> None:
    change, truth = REMOVALS[name]

    @settings(max_examples=70, deadline=None)
    @given(steps, drawn.machines)
    def holds(body: Body, machine: Machine) -> None:
        assert predicted(run([(MAIN, body)], machine), change) == length(removed(body, machine))

    def removed(body: Body, machine: Machine) -> Simulation:
        body, machine = truth(body, machine)
        return run([(MAIN, body)], machine)

    holds()


def predicted(simulation: Simulation, change: changes.Change) -> int:
    events = annotated(table(simulation.rows), captured=True)
    (window,) = windows(events, captured=True)
    return replayed(step_graph(events, window), change).length_ns


def accounted(found: object) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in found.to_pylist())  # type: ignore[attr-defined]


@settings(max_examples=70, deadline=None)
@given(parts, body, drawn.throttled, st.booleans())
def test_unchanged_every_program_gives_its_times_back(
    inner: list[Body], other: Body, machine: Machine, captured: bool
) -> None:
    step = Within("step", "step", 1, sum(inner, ()), 0)
    simulation = run([(MAIN, (step, *inner[0], step)), (LOADER, other)], machine)
    events = annotated(table(simulation.rows), captured=captured)
    for window in windows(events, captured=captured):
        (found,) = predictions(events, window, [changes.unchanged_times])
        assert found.observed_ns == found.replayed_ns == found.predicted_ns
        assert accounted(found.ledger) == accounted(ledger(events, [window]))


@settings(max_examples=60, deadline=None)
@given(steps, drawn.machines, st.sampled_from(sorted(REMOVALS)))
def test_the_account_of_a_prediction_sums_to_its_length(
    body: Body, machine: Machine, name: str
) -> None:
    simulation = run([(MAIN, body)], machine)
    events = annotated(table(simulation.rows), captured=True)
    (window,) = windows(events, captured=True)
    (found,) = predictions(events, window, [REMOVALS[name][0]])
    for device in DEVICES:
        parts = [r["ns"] for r in found.ledger.to_pylist() if r["device"] == device]
        assert sum(parts) == found.predicted_ns
    assert found.saved_ns >= 0

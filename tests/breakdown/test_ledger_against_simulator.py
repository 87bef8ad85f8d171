"""The ledger of simulated programs equals what the simulator knows, to the nanosecond."""

from __future__ import annotations

from typing import Any

from events.rows import table
from hypothesis import given, settings, strategies as st
from simulator import drawn_programs as drawn
from simulator.gpu_programs import Gap, Launch, Machine, Within, Work
from simulator.gpu_simulator import Account, Simulation, simulated as run

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

MAIN, WORKER, LOADER = 1, 2, 3
body = drawn.bodies(drawn.STREAMS)
with_backward = st.one_of(body, drawn.handed_over(body, WORKER)).flatmap(
    lambda first: body.map(lambda second: first + second)
)
step = st.builds(
    lambda inner, enter, leave: Within("step", "step", enter, inner, leave),
    with_backward,
    drawn.some,
    drawn.short,
)
#: Steps with time between them in which the host records nothing.
stepping = st.lists(st.tuples(step, drawn.short.map(Gap)), min_size=1, max_size=3).map(
    lambda pairs: tuple(instruction for pair in pairs for instruction in pair)
)


def accounts(simulation: Simulation, *, captured: bool) -> list[dict[int | None, Account]]:
    """For each window device -> (state, part) -> ns, by the whole pipeline."""
    events = annotated(table(simulation.rows), captured=captured)
    found: list[dict[int | None, Account]] = []
    for window in windows(events, captured=captured):
        parts: dict[int | None, Account] = {}
        for r in ledger(events, [window]).to_pylist():
            parts.setdefault(r["device"], {})[r["state"], r["part"]] = r["ns"]
        found.append(parts)
    return found


def truth(simulation: Simulation, *, captured: bool) -> list[dict[int | None, Account]]:
    devices = sorted({r.stream[0] for r in simulation.ran})
    spans = simulation.windows(captured)
    if not devices:
        return [{None: simulation.host_account(a, b)} for a, b in spans]
    return [{d: simulation.device_account(d, a, b, MAIN) for d in devices} for a, b in spans]


def test_the_simulator_runs_a_launch_as_drawn() -> None:
    # ns    0    2    4    6    8    10   12
    # host  [step-)[launch-)----------)
    # device               ~~~~[gemm-------)     latency 4, ends after its step
    kernel = Work("kernel", "ampere_sgemm_128x64_nn", "gemm", 7)
    program = (Within("step", "step", 3, (Launch((0, 7), kernel, 2),), 4),)
    simulation = run([(MAIN, program)], Machine(latency_ns=4))
    (ran,) = simulation.ran
    assert (ran.call_start_ns, ran.call_end_ns, ran.start_ns, ran.end_ns) == (3, 5, 9, 16)
    assert simulation.steps == [(0, 9)]
    parts = {("idle", "python"): 3, ("idle", "launch call"): 2, ("idle", "launch latency"): 4}
    assert truth(simulation, captured=False) == [{0: {**parts, ("busy", "gemm"): 7}}]
    assert accounts(simulation, captured=False) == truth(simulation, captured=False)


@settings(max_examples=150, deadline=None)
@given(stepping, drawn.throttled, st.booleans())
def test_the_account_of_one_thread_is_the_truth(
    program: drawn.Body, machine: Machine, captured: bool
) -> None:
    simulation = run([(MAIN, program)], machine)
    assert accounts(simulation, captured=captured) == truth(simulation, captured=captured)


@settings(max_examples=100, deadline=None)
@given(stepping, body, drawn.throttled, st.booleans())
def test_threads_that_run_at_once_are_told_apart(
    program: drawn.Body, other: drawn.Body, machine: Machine, captured: bool
) -> None:
    simulation = run([(MAIN, program), (LOADER, other)], machine)
    assert accounts(simulation, captured=captured) == truth(simulation, captured=captured)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        drawn.joined(st.one_of(drawn.gaps, drawn.scopes(drawn.joined(drawn.gaps, 3))), 5),
        min_size=2,
        max_size=3,
    )
)
def test_the_account_of_host_threads_is_the_truth(programs: list[drawn.Body]) -> None:
    main: Any = (Within("step", "step", 1, programs[0], 2),)
    simulation = run([(MAIN, main), *enumerate(programs[1:], WORKER)])
    assert accounts(simulation, captured=True) == truth(simulation, captured=True)

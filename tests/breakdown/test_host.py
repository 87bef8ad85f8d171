"""The innermost events of all threads at once are those of each thread alone."""

from __future__ import annotations

import numpy as np
import pytest
from breakdown.random_programs import cpu_programs
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from lstmprof.breakdown.attribution import host
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events.annotate import CAPTURED
from lstmprof.events.annotate.steps import Window
from lstmprof.events.threads import innermost, thread_ids
from lstmprof.runs.metadata import RunInfo


@settings(deadline=None)
@given(rows=cpu_programs, most_ns=st.sampled_from([0, 2**62]))
def test_innermost_events_of_each_thread(rows: list[Row], most_ns: int) -> None:
    events = table(rows)
    thread = thread_ids(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "_MOST_NS", most_ns)
        found = host.innermost_of_each(events, np.arange(len(events)), thread)
    alone = [innermost(events, np.flatnonzero(thread == one)) for one in np.unique(thread)]
    for column in ("start_ns", "end_ns", "owner"):
        expected = np.concatenate([getattr(lane, column) for lane in alone])
        assert getattr(found, column).tolist() == expected.tolist()


def _spent(rows: list[Row]) -> dict[str, int]:
    window = Window(None, 0, 0, 1000, None, framework_ranges=("step",))
    return {r["part"]: r["ns"] for r in ledger(table(rows), [window]).to_pylist()}


def _xla_step(*, resumes_ns: int) -> list[Row]:
    """A step whose large copy goes on in threads without events until XLA resumes.

    ::

        ns       0    10      100          resumes     900  1000
        main     [step                                         ]
        pool     [Execute      ]           [Execute      ]
                      [copy.1 ]            [dot.1        ]
    """
    main, pool = {"tid": 1}, {"tid": 2}
    return [
        row("step", "step", 0, 1000, **main),
        row("op", "ThunkExecutor::Execute", 0, 100, **pool),
        row("op", "copy.1", 10, 100, category="layout", **pool),
        row("op", "ThunkExecutor::Execute", resumes_ns, 900, **pool),
        row("op", "dot.1", 500, 900, category="gemm", **pool),
    ]


@pytest.mark.parametrize("framework", ["pytensor", "theano"])
def test_a_step_that_is_one_call_of_a_compiled_function_is_the_frameworks(framework: str) -> None:
    info = RunInfo(source=CAPTURED, framework=framework)
    assert host.framework_ranges(info) == ("step",)
    assert host.framework_ranges(RunInfo(source="kineto", framework=framework)) == ()


def test_time_until_xla_resumes_is_the_copy_that_it_waits_for() -> None:
    assert _spent(_xla_step(resumes_ns=500)) == {"layout": 490, "gemm": 400, "dispatch": 110}


def test_time_in_which_xla_runs_its_instructions_is_no_copy() -> None:
    assert _spent(_xla_step(resumes_ns=100)) == {"layout": 90, "gemm": 400, "dispatch": 510}

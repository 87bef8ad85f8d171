"""The innermost events of all threads at once are those of each thread alone."""

from __future__ import annotations

import numpy as np
import pytest
from breakdown.test_ledger_properties import cpu_programs
from events.rows import Row, table
from hypothesis import given, settings, strategies as st

from lstmprof.breakdown import host
from lstmprof.events.threads import innermost, thread_ids


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

"""For how long each profiled step had no CPU, and when: of a user's code nobody knows beforehand
which thread works, and whether a step that waits waits for a CPU.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from lstmprof.capture.worker import threads
from lstmprof.capture.worker.switches import Stretch, Switches


class StepWaits:
    """What ``reading`` found in each of the steps that it enclosed."""

    def __init__(self) -> None:
        own = threads.this_thread()
        self._switches = None if own is None else Switches(own)
        self._waiting: list[threads.Waiting] = []
        self._off_cpu: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read what befalls one step."""
        if self._switches:
            self._switches.taken()  # of what came before
        before = threads.waits()
        begin_ns = time.perf_counter_ns()
        yield
        end_ns = time.perf_counter_ns()
        after = threads.waits(ends=True)
        own, others = self._switches.taken() if self._switches else (None, [])
        self._waiting.append(threads.waiting_between(before, after))
        own_ns = None if own is None else _within(own, begin_ns, end_ns)
        step = {"begin_ns": begin_ns, "end_ns": end_ns, "own_ns": own_ns}
        step["others_ns"] = _within(others, begin_ns, end_ns)
        self._off_cpu.append(step)

    def facts(self) -> dict[str, Any]:
        """What run.json says of the steps; the stretches by this process's clock."""
        columns = {
            f"profiled_{name}": [getattr(waiting, name) for waiting in self._waiting]
            for name in threads.Waiting._fields
        }
        facts = {name: None if None in column else column for name, column in columns.items()}
        told = all(step["own_ns"] is not None for step in self._off_cpu)
        return {**facts, "profiled_off_cpu": self._off_cpu if told else None}

    def close(self) -> None:
        """Ask the kernel for no more."""
        if self._switches:
            self._switches.close()


def _within(stretches: list[Stretch], begin_ns: int, end_ns: int) -> list[Stretch]:
    """``stretches``, as far as they are of a step."""
    clipped = [(max(begin, begin_ns), min(end, end_ns)) for begin, end in stretches]
    return [(begin, end) for begin, end in clipped if begin < end]

"""A clock around PyTensor's operators, and its readings as a trace.

PyTensor has sums per operator (``profile=True``) and no timeline. Its virtual machine calls one
thunk an operator, within a Scan too; here each is read before and after. That needs the machine
written in Python where PyTensor's own is C (``use_cloop=False``), so that the compiled function is
another one than the timed: the inflation of the profile pass says what both cost. The trace has
the form of torch.profiler's, which every reader of lstmprof and Perfetto knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Iterator, List, Tuple

from pytensor.link.vm import VMLinker

#: (category in the trace, name, start, end), of time.perf_counter_ns
Reading = Tuple[str, str, int, int]


class Readings(List[Reading]):
    """What was read, in the order in which it ended."""

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A range of this name."""
        start_ns = time.perf_counter_ns()
        yield
        self.append(("user_annotation", name, start_ns, time.perf_counter_ns()))

    def write(self, path: str) -> None:
        """The trace as JSON, dated."""
        base_ns = min(reading[2] for reading in self)
        since_epoch_ns = time.time_ns() - time.perf_counter_ns()
        events = [
            dict(
                *({"ph": "X", "cat": category, "name": name},),
                pid=os.getpid(),
                tid=os.getpid(),
                ts=(start_ns - base_ns) / 1000,
                dur=(end_ns - start_ns) / 1000,
            )
            for category, name, start_ns, end_ns in self
        ]
        header = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns + since_epoch_ns}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(header, traceEvents=events), file)


class ClockedLinker(VMLinker):  # type: ignore[misc]
    """A machine in Python whose thunks leave ``readings``."""

    def __init__(self, readings: Readings, **options: Any) -> None:
        super().__init__(**dict(options, use_cloop=False))
        self.readings = readings

    def clone(self, allow_gc: Any = None) -> "ClockedLinker":
        """Another with the same readings: PyTensor clones the linker of a Scan's mode."""
        return ClockedLinker(self.readings, allow_gc=allow_gc)

    def make_vm(self, nodes: Any, thunks: Any, *rest: Any, **more: Any) -> Any:
        """The machine, around thunks that are read."""
        clocked = [_clocked(node, thunk, self.readings) for node, thunk in zip(nodes, thunks)]
        return super().make_vm(nodes, clocked, *rest, **more)


def _clocked(node: Any, thunk: Any, readings: Readings) -> Any:
    name = "pytensor::{}".format(node.op)
    clock, keep = time.perf_counter_ns, readings.append

    def run() -> Any:
        start_ns = clock()
        answer = thunk()
        keep(("cpu_op", name, start_ns, clock()))
        return answer

    run.__dict__.update(thunk.__dict__)
    return run

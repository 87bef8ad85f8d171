"""What loops share whose framework computes on a CPU alone, where NumPy's rates are the peaks.

Its threads are told before it is imported, by the environment, or with each session or model.
``Readings`` is a trace for frameworks that have no timeline of their own: a clock is read around
their operators. It has the form of torch.profiler's, which every reader of lstmprof and Perfetto
knows.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.host import cpu_facts
from lstmprof.capture.worker.peaks import numpy_copy, numpy_product
from lstmprof.capture.worker.profiling import Ranges

product, copy = numpy_product, numpy_copy


def device_of(requested: str) -> str:
    """``cpu``, the only device; ``cuda`` is refused before."""
    return "cpu"


def set_threads(threads: int) -> None:
    """Nothing: the environment was set, or a session is told."""


#: (category in the trace, name, start, end, arguments), of time.perf_counter_ns
Reading = Tuple[str, str, int, int, Optional[Dict[str, Any]]]


class Readings(List[Reading]):
    """What was read, in the order in which it ended."""

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A range of this name."""
        start_ns = time.perf_counter_ns()
        yield
        self.append(("user_annotation", name, start_ns, time.perf_counter_ns(), None))

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
                **({} if args is None else {"args": args}),
            )
            for category, name, start_ns, end_ns, args in self
        ]
        header = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns + since_epoch_ns}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(header, traceEvents=events), file)


class ClockedTrainer(loops.Trainer):
    """A trainer whose profile pass reads a clock around operators: ``recording`` fills readings."""

    def __init__(self, request: CaptureRequest) -> None:
        super().__init__(request)
        self.readings = Readings()

    def annotated(self, number: int) -> Ranges:
        """Ranges among the readings."""
        return self.readings.range

    def written(self, session: Readings, folder: str) -> Tuple[str, str]:
        """The readings as a trace."""
        raw = os.path.join(folder, "trace.json")
        session.write(raw)
        return raw, self.row.framework + ".trace.json"

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the framework and the device; a loop's own adds ``backend``."""
        versions = {self.row.framework: self.version(), "cuda": None}
        return dict(cpu_facts(), versions=versions)

    def version(self) -> str:
        """The framework's."""
        raise NotImplementedError


def linker_flags(packages: str) -> Optional[str]:
    """What links to the OpenBLAS of the NumPy in the folder ``packages``; None where none can.

    The library is the one that NumPy has loaded, so that both share its threads. Since 1.22 its
    functions have other names (``sgemm_64_``) and 64-bit sizes, which no other code expects.
    """
    place = os.path.join(packages, "numpy.libs")
    if set(" ,") & set(place):  # such a flag is cut in two there
        return None
    for path in sorted(glob.glob(os.path.join(glob.escape(place), "libopenblas*.so"))):
        name = os.path.basename(path)[len("lib") : -len(".so")]
        if not name.startswith("openblas64"):
            return "-L{} -l{}".format(place, name)
    return None

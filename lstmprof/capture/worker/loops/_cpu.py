"""Common code of the step loops of frameworks that compute only on a CPU.

If a framework records no timeline, a clock around each operator gives one. Such a timeline has
torch.profiler's format, which lstmprof and Perfetto read.
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
from lstmprof.capture.worker.machine.host import cpu_facts
from lstmprof.capture.worker.machine.peaks import numpy_copy, numpy_product
from lstmprof.capture.worker.profiling import Ranges

product, copy = numpy_product, numpy_copy


def device_of(requested: str) -> str:
    # return only the CPU, because ``refusal`` has already rejected ``cuda``
    return "cpu"


def set_threads(threads: int) -> None:
    """Do nothing, because environment variables or sessions set the thread count."""


#: A timed operator: category in the trace, name, start ns, end ns, arguments.
Reading = Tuple[str, str, int, int, Optional[Dict[str, Any]]]


class Readings(List[Reading]):
    """A timeline of operators and ranges, ordered by end time."""

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        start_ns = time.perf_counter_ns()
        yield
        self.append(("user_annotation", name, start_ns, time.perf_counter_ns(), None))

    def write(self, path: str) -> None:
        """Write the timeline as torch.profiler's JSON."""
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
    """A trainer that profiles by reading a clock around each operator."""

    def __init__(self, request: CaptureRequest) -> None:
        super().__init__(request)
        self.readings = Readings()

    def annotated(self, number: int) -> Ranges:
        return self.readings.range

    def written(self, session: Readings, folder: str) -> Tuple[str, str]:
        raw = os.path.join(folder, "trace.json")
        session.write(raw)
        return raw, self.row.framework + ".trace.json"

    def facts(self) -> Dict[str, Any]:
        versions = {self.row.framework: self.version(), "cuda": None}
        return dict(cpu_facts(), versions=versions)

    def version(self) -> str:
        raise NotImplementedError


def linker_flags(packages: str) -> Optional[str]:
    """Return the flags that link to the OpenBLAS in NumPy's wheel."""
    # link to the OpenBLAS that NumPy loads, so that both share one pool of threads
    place = os.path.join(packages, "numpy.libs")
    if set(" ,") & set(place):  # the framework would split such a flag
        return None
    for path in sorted(glob.glob(os.path.join(glob.escape(place), "libopenblas*.so"))):
        name = os.path.basename(path)[len("lib") : -len(".so")]
        # skip the OpenBLAS of NumPy 1.22 and later, which names sgemm ``sgemm_64_``
        if not name.startswith("openblas64"):
            return "-L{} -l{}".format(place, name)
    return None

"""Common parts of trainers with planted causes, of all frameworks: numbers of calls, and a log.

A unit is one call of what is planted; a plant is a cause with its number of units per step. The log
of a worker, ``<label>.<n>.log`` beside its plan, is JSON: the number of units of each plant, and
for each step whether a profiler recorded it, its wall and CPU time, and the times of each plant. So
the size of what was planted is known without lstmprof.
"""

from __future__ import annotations

import atexit
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lstmprof.capture.worker.profiling import Ranges

Unit = Callable[..., Any]
SPIN_NS = 20_000
SLEEP_S = 0.0002
#: Calls per loop and number of loops with which a call is timed; the fastest loop counts.
CALLS, TIMES = 20, 5
#: Number of units in a compiled program that measures the time of a unit. The time of an empty
#: program is subtracted.
UNITS = 20
#: Rows and columns of the matrices in planted ops; fewer in matmuls. In ops on smaller matrices (of
#: 7 µs), the call would take a third of the time, and that is a different cause.
SIZE, PRODUCT_SIZE = 256, 128
#: Label of the first capture, without plants, which measures the clean step for the others.
SIZING = "sizing"
#: Number of first steps of a worker that the log leaves out.
FIRST = 3


@dataclass(frozen=True)
class Cause:
    """A cause that can be planted in a compiled program, or in the Python code around it.

    In a program (``size`` > 0), ``unit`` maps a (size, size) tensor to the next one. In Python,
    ``unit()`` returns a function that runs one unit. ``in_input``: the cause belongs to the input
    phase.
    """

    name: str
    unit: Callable[..., Any]
    size: int = 0
    in_input: bool = False

    @property
    def in_program(self) -> bool:
        """Return whether the cause is planted in the compiled program."""
        return self.size > 0


@dataclass(frozen=True)
class Plant:
    """The cause ``name`` with ``count`` units per step."""

    name: str
    unit: Unit
    count: int
    in_input: bool = False
    in_program: bool = False


@dataclass
class Spent:
    """Wall and CPU time of planted calls, on the thread that runs them."""

    wall_ns: int = 0
    cpu_ns: int = 0

    def add(self, units: int, unit: Unit) -> None:
        """Call ``unit`` ``units`` times, and add the time of these calls."""
        wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        for _ in range(units):
            unit()
        self.cpu_ns += time.thread_time_ns() - cpu_ns
        self.wall_ns += time.perf_counter_ns() - wall_ns


@dataclass
class Step:
    """One step in the log; ``plants`` maps names to (wall, CPU) ns."""

    recorded: bool
    wall_ns: int
    cpu_ns: int
    plants: dict[str, tuple[int, int]]


@dataclass
class Log:
    """The log of one worker, which is written when the worker ends."""

    folder: Path
    label: str
    counts: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def write(self) -> None:
        """Write the log to a new file beside the logs of earlier rounds."""
        number = len(list(self.folder.glob(f"{self.label}.*.log")))
        rows = [[s.recorded, s.wall_ns, s.cpu_ns, s.plants] for s in self.steps[FIRST:]]
        path = self.folder / f"{self.label}.{number}.log"
        path.write_text(json.dumps({"counts": self.counts, "steps": rows}))


def clean_ns(folder: Path) -> float:
    """Return the CPU time in ns of a clean step, from the log of the first capture."""
    log = json.loads((folder / f"{SIZING}.0.log").read_text())
    return statistics.median(cpu_ns for recorded, _, cpu_ns, _ in log["steps"] if not recorded)


def counted_before(folder: Path, label: str) -> dict[str, int] | None:
    """Return the numbers of units in the first round, by plant; None in the first round itself."""
    path = folder / f"{label}.0.log"
    counts: dict[str, int] | None = (
        json.loads(path.read_text())["counts"] if path.exists() else None
    )
    return counts


class Planted:
    """A mixin for a Trainer: its steps also run what is planted, and are logged.

    Subclasses define the causes, and where the units run.
    """

    plan: dict[str, Any]

    def __init__(self, *given: Any) -> None:
        self.folder = Path(os.environ["PLANTED"])
        self.log = Log(self.folder, self.plan["label"])
        self.plants: Sequence[Plant] = ()
        self.spent: dict[str, Spent] = {}
        self.in_session = False
        atexit.register(self.log.write)
        super().__init__(*given)

    def plant(self) -> None:
        """Plant what the plan says, from the next step on, with the counts of earlier rounds."""
        before = counted_before(self.folder, self.plan["label"])
        self.plants = [self.planted(n, share, before) for n, share in self.plan["causes"]]
        self.log.counts = {plant.name: plant.count for plant in self.plants}

    def planted(self, name: str, share: float, before: dict[str, int] | None) -> Plant:
        """Return a plant with as many units as take ``share`` of a clean step, at least one.

        ``before`` has the counts of an earlier round, which are used if it is not None.
        """
        cause = self.cause(name)
        unit = self.unit(cause)
        if before is not None:
            count = before[name]
        else:
            count = max(1, round(share * clean_ns(self.folder) / self.unit_ns(cause, unit)))
        return Plant(name, unit, count, cause.in_input, cause.in_program)

    def cause(self, name: str) -> Any:
        """Return the cause called ``name``."""
        raise NotImplementedError

    def unit(self, cause: Any) -> Unit:
        """Return a function that runs one unit of ``cause``.

        The function has no parameters; in a compiled program, its parameter is a tensor.
        """
        return cause.unit if cause.in_program else cause.unit()  # type: ignore[no-any-return]

    def unit_ns(self, cause: Any, unit: Unit) -> float:
        """Return the time in ns of ``unit``, one call of what is planted."""
        return fastest_ns(unit)

    def step(self, ranges: Ranges) -> Any:
        """Run a step with what is planted, and log its times."""
        self.spent = {plant.name: Spent() for plant in self.plants if not plant.in_program}
        wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        outcome = super().step(ranges)  # type: ignore[misc]
        cpu_ns, wall_ns = time.process_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
        spent = {name: (each.wall_ns, each.cpu_ns) for name, each in self.spent.items()}
        self.log.steps.append(Step(self.in_session, wall_ns, cpu_ns, spent))
        return outcome

    @contextmanager
    def recording(self, folder: str) -> Iterator[Any]:
        """Run the profiler within the context; the log marks the steps in it as recorded."""
        self.in_session = True
        with super().recording(folder) as session:  # type: ignore[misc]
            yield session
        self.in_session = False


class PlantedPrograms(Planted):
    """A mixin for trainers whose step is one compiled program (JAX, TensorFlow).

    Planted Python code runs in the input phase, or between this phase and the call of the program.
    The subclass plants causes in the program that it compiles.
    """

    def step(self, ranges: Ranges) -> Any:
        return super().step(lambda name: self._planted_range(ranges, name))

    @contextmanager
    def _planted_range(self, ranges: Ranges, name: str) -> Iterator[None]:
        with ranges(name):
            if name == "input":
                self._run_python(in_input=True)
            yield
        if name == "input":
            self._run_python(in_input=False)

    def _run_python(self, *, in_input: bool) -> None:
        for plant in self.plants:
            if plant.in_input == in_input and not plant.in_program:
                self.spent[plant.name].add(plant.count, plant.unit)


def spin() -> None:
    """Keep Python busy for ``SPIN_NS``."""
    end_ns = time.perf_counter_ns() + SPIN_NS
    while time.perf_counter_ns() < end_ns:
        pass


def sleep() -> None:
    """Sleep for ``SLEEP_S``."""
    time.sleep(SLEEP_S)


def thread_wait() -> Unit:
    """Return a unit that waits for another thread, which sleeps for ``SLEEP_S``."""
    pool = ThreadPoolExecutor(1)
    return lambda: pool.submit(time.sleep, SLEEP_S).result()


def input_work() -> Unit:
    """Return a unit that computes on inputs with NumPy."""
    raw = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    return lambda: np.sort(raw, axis=0)


def fastest_ns(call: Callable[[], Any], calls: int = CALLS) -> float:
    """Return the time of ``call`` in ns: the fastest of several loops."""
    call()
    times_ns = []
    for _ in range(TIMES):
        start_ns = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times_ns.append((time.perf_counter_ns() - start_ns) / calls)
    return min(times_ns)

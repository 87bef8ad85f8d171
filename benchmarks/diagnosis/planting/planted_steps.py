"""What planted trainers of all frameworks share: plants, how many units of each, and a log.

The log of a worker is a JSON file beside its plan, ``<label>.<n>.log``: the count of each plant and
for every step whether a profiler recorded it, its wall and CPU time, and the same of each plant by
a clock around its units: what was planted is known without lstmprof.
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
#: A call is timed in so many rows of so many, and the fastest row counts.
CALLS, TIMES = 20, 5
#: Units in a program whose time, less that of an empty one, says what a unit takes.
UNITS = 20
#: Rows and columns of what is computed with; of a product, which costs more an element, fewer. Of
#: an op on less, of 7 µs, a third is calling it, which is another cause.
SIZE, PRODUCT_SIZE = 256, 128
#: The label of the capture in which nothing is planted; its steps tell how long shares are.
#: Label of the capture that is over before the others begin, and tells them what a step takes.
SIZING = "sizing"
#: First steps of a worker, which count for nothing.
FIRST = 3


@dataclass(frozen=True)
class Cause:
    """What a program or the Python around it can be given of.

    ``unit`` makes a call of Python; in a program it maps a (size, size) tensor to the next.
    """

    name: str
    unit: Callable[..., Any]
    size: int = 0
    in_input: bool = False

    @property
    def in_program(self) -> bool:
        """Whether it is of the program."""
        return self.size > 0


@dataclass(frozen=True)
class Plant:
    """``count`` units a step of the cause ``name``."""

    name: str
    unit: Unit
    count: int
    in_input: bool = False
    in_program: bool = False


@dataclass
class Spent:
    """Wall and CPU time of the thread that ran it."""

    wall_ns: int = 0
    cpu_ns: int = 0

    def add(self, units: int, unit: Unit) -> None:
        """Run so many, and add what they take."""
        wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        for _ in range(units):
            unit()
        self.cpu_ns += time.thread_time_ns() - cpu_ns
        self.wall_ns += time.perf_counter_ns() - wall_ns


@dataclass
class Step:
    """One step as the log has it."""

    recorded: bool
    wall_ns: int
    cpu_ns: int
    plants: dict[str, tuple[int, int]]


@dataclass
class Log:
    """Of one worker; written when it ends."""

    folder: Path
    label: str
    counts: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def write(self) -> None:
        """Beside those of earlier rounds."""
        number = len(list(self.folder.glob(f"{self.label}.*.log")))
        rows = [[s.recorded, s.wall_ns, s.cpu_ns, s.plants] for s in self.steps[FIRST:]]
        path = self.folder / f"{self.label}.{number}.log"
        path.write_text(json.dumps({"counts": self.counts, "steps": rows}))


def clean_ns(folder: Path) -> float:
    """CPU time of a clean step, by the log of the capture before the others."""
    log = json.loads((folder / f"{SIZING}.0.log").read_text())
    return statistics.median(cpu_ns for recorded, _, cpu_ns, _ in log["steps"] if not recorded)


def counted_before(folder: Path, label: str) -> dict[str, int] | None:
    """The counts of the plants of an earlier round; None in the first."""
    path = folder / f"{label}.0.log"
    counts: dict[str, int] | None = (
        json.loads(path.read_text())["counts"] if path.exists() else None
    )
    return counts


class Planted:
    """A mixin before a loop's Trainer, whose steps do what is planted besides, and are logged.

    Its subclass says what a unit takes and where the units run.
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
        """From here on steps do what is planned: as much as in the rounds before."""
        before = counted_before(self.folder, self.plan["label"])
        self.plants = [self.planted(n, share, before) for n, share in self.plan["causes"]]
        self.log.counts = {plant.name: plant.count for plant in self.plants}

    def planted(self, name: str, share: float, before: dict[str, int] | None) -> Plant:
        """As many units of the cause as take ``share`` of a clean step, and at least one."""
        cause = self.cause(name)
        unit = self.unit(cause)
        if before is not None:
            count = before[name]
        else:
            count = max(1, round(share * clean_ns(self.folder) / self.unit_ns(cause, unit)))
        return Plant(name, unit, count, cause.in_input, cause.in_program)

    def cause(self, name: str) -> Any:
        """The cause of this name."""
        raise NotImplementedError

    def unit(self, cause: Any) -> Unit:
        """One unit of it; of a program what maps a tensor to the next."""
        return cause.unit if cause.in_program else cause.unit()  # type: ignore[no-any-return]

    def unit_ns(self, cause: Any, unit: Unit) -> float:
        """What a unit takes."""
        return fastest_ns(unit)

    def step(self, ranges: Ranges) -> Any:
        """A step with its plants, logged."""
        self.spent = {plant.name: Spent() for plant in self.plants if not plant.in_program}
        wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        outcome = super().step(ranges)  # type: ignore[misc]
        cpu_ns, wall_ns = time.process_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
        spent = {name: (each.wall_ns, each.cpu_ns) for name, each in self.spent.items()}
        self.log.steps.append(Step(self.in_session, wall_ns, cpu_ns, spent))
        return outcome

    @contextmanager
    def recording(self, folder: str) -> Iterator[Any]:
        """The profiler, on; the log says so of its steps."""
        self.in_session = True
        with super().recording(folder) as session:  # type: ignore[misc]
            yield session
        self.in_session = False


class PlantedPrograms(Planted):
    """Of trainers whose step is a whole program.

    Python runs in the input phase, or between it and the call of the program; what is in the
    program is of that which the subclass compiles.
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
    """Waits for another thread, which sleeps for ``SLEEP_S``."""
    pool = ThreadPoolExecutor(1)
    return lambda: pool.submit(time.sleep, SLEEP_S).result()


def input_work() -> Unit:
    """One piece of NumPy's work on an input."""
    raw = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    return lambda: np.sort(raw, axis=0)


def fastest_ns(call: Callable[[], Any], calls: int = CALLS) -> float:
    """How long one call takes, at best."""
    call()
    times_ns = []
    for _ in range(TIMES):
        start_ns = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times_ns.append((time.perf_counter_ns() - start_ns) / calls)
    return min(times_ns)

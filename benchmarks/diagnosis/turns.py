"""What planted trainers of all frameworks share: plants, steps that take turns, preemptions."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstmprof.capture.worker.profiling import Ranges

Unit = Callable[..., Any]
SPIN_NS = 20_000
SLEEP_S = 0.0002
#: A call is timed in so many rows of so many, and the fastest row counts.
CALLS, TIMES = 20, 5
#: Steps wait by so much more or less; what the scheduler gives to another process is longer.
GRACE_NS = 50_000
#: Units in a program whose time, less that of an empty one, says what a unit takes.
UNITS = 20
#: Rows and columns of a program's tensors; of a product's, which costs more an element, fewer.
SIZE, PRODUCT_SIZE = 256, 128


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


def preemptions(who: int) -> int:
    """How often ``who`` lost the CPU against its will (getrusage(2), ru_nivcsw)."""
    return resource.getrusage(who).ru_nivcsw


class Turns:
    """Steps of a trainer of whole programs, each with the plants of its turn.

    ``turns`` are the plants of one step after the other, again and again; a profile begins with
    the first. A plant of Python runs in the input phase, or between it and the call of the program;
    one in the program is of that which ``_program`` compiles.
    """

    function: Any

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.turns: Sequence[Sequence[Plant]] = [()]
        self.turn = 0
        self.lost_ns: list[int] = []
        self.plants: Sequence[Plant] = ()
        self.programs: dict[tuple[tuple[str, int], ...], Any] = {}

    def warm(self) -> None:
        """Nothing of a step is to be learnt: its programs are whole."""

    def take_turns(self, turns: Sequence[Sequence[Plant]]) -> None:
        """Begin with the first of ``turns``; their programs are compiled before."""
        self.turns, self.turn = turns, 0
        for _ in turns:
            self.step(_silent)
        self.turn, self.lost_ns = 0, []

    def step(self, ranges: Ranges) -> Any:
        self.plants = self.turns[self.turn % len(self.turns)]
        self.turn += 1
        key = tuple((plant.name, plant.count) for plant in self.plants if plant.in_program)
        if key not in self.programs:
            self.programs[key] = self._program()
        self.function = self.programs[key]
        before_ns = time.perf_counter_ns() - time.process_time_ns()
        outcome = super().step(lambda name: self._planted_range(ranges, name))  # type: ignore[misc]
        self.lost_ns.append(time.perf_counter_ns() - time.process_time_ns() - before_ns)
        return outcome

    @property
    def preempted(self) -> list[int]:
        """For each step the ns without a CPU that another process took; 0 where it took none.

        What a quarter of its turn's steps are without a CPU is their own waiting. Preemptions tell
        nothing here: threads that share a CPU take it from each other.
        """
        turns = len(self.turns)
        own_ns = [sorted(self.lost_ns[i::turns]) for i in range(turns)]
        most_ns = [ns[len(ns) // 4] + GRACE_NS for ns in own_ns]
        return [ns if ns > most_ns[i % turns] else 0 for i, ns in enumerate(self.lost_ns)]

    def _program(self) -> Any:
        raise NotImplementedError

    def _session(self, *given: Any) -> Any:
        self.turn, self.lost_ns = 0, []
        return super()._session(*given)  # type: ignore[misc]

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
                for _ in range(plant.count):
                    plant.unit()


@contextmanager
def _silent(name: str) -> Iterator[None]:
    yield

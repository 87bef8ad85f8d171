"""The mean step: the ledger of a run's steps, averaged.

A part is a category of work or a cause of idle time. A part that a step does not have counts as 0.
``clean_step`` computes the step without disturbances.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lstmprof.breakdown.attribution import CALL, LATENCY, TAIL, UNATTRIBUTED
from lstmprof.events.threads import HOST

#: Causes for which a device waits for its host: an infinitely fast host would save this time.
WAITS_FOR_HOST = (CALL, LATENCY, "runtime", "alloc", "dispatch", "python", HOST)
#: Names that drivers give to GPUs, but not to TPUs, MTIA devices or NPUs.
_GPU = re.compile(
    r"NVIDIA|GeForce|Tesla|Quadro|TITAN|\bRTX\b|Radeon|Instinct|\bgfx\d|\b[PVTAHBL]\d{2,3}\b|GPU",
    re.I,
)


def waits_for_host_ns(parts: Iterable[tuple[str, int]]) -> int:
    """Return the total ns in which a device waits for its host, also after its last activity."""
    return sum(ns for part, ns in parts if part.removeprefix(TAIL) in WAITS_FOR_HOST)


def device_word(name: str) -> str:
    """Return ``GPU`` if the device's ``name`` shows that the device is a GPU, else ``device``."""
    return "GPU" if _GPU.search(name) else "device"


def lane_words(rank: int | None, device: int | None) -> str:
    """Return ``device 0 of rank 3`` or ``CPU of rank 3``; without "of" if ``rank`` is None."""
    where = "CPU" if device is None else f"device {device}"
    return where if rank is None else f"{where} of rank {rank}"


@dataclass(frozen=True)
class Recording:
    """Time that the profiler took in a mean step to record ``events`` events, ``event_ns`` each.

    ``ns`` is the time that lstmprof subtracts. It may be less than ``events`` × ``event_ns``,
    because lstmprof subtracts no more from a time interval than the interval's length. ``measured``
    is True if this capture measured the cost of an event.
    """

    events: float
    event_ns: float
    ns: int
    measured: bool


@dataclass(frozen=True)
class MeanStep:
    """The step of one device of a rank, or of the host if ``device`` is None.

    ``parts`` are tuples (state, part, ns), summed over ``steps`` steps; busy parts come first, and
    the largest part of each state first. The parts sum to ``total_ns``. ``clean`` is True for the
    clean step and False for the mean profiled step. ``recording`` is the time that recording the
    events took; it is None if another tool recorded the profile. ``rank`` is None if the profile
    has no ranks.
    """

    rank: int | None
    device: int | None
    steps: int
    total_ns: int
    parts: tuple[tuple[str, str, int], ...]
    recording: Recording | None = None
    clean: bool = False

    @property
    def mean_ns(self) -> float:
        """Return the length of the step in ns."""
        return self.total_ns / self.steps

    @property
    def mean_parts(self) -> list[tuple[str, str, int]]:
        """Return the parts of the mean step as (state, part, ns); they sum to the step."""
        means = mean_of([ns for _, _, ns in self.parts], self.steps)
        return [(state, part, ns) for (state, part, _), ns in zip(self.parts, means, strict=True)]

    @property
    def waits_for_host_share(self) -> float | None:
        """Return the share of the step in which the device waits for its host.

        The share is None for the host, and if nothing shows what the device waits for.
        """
        idle = [(part, ns) for state, part, ns in self.parts if state == "idle"]
        unknown = idle and all(part.removeprefix(TAIL) == UNATTRIBUTED for part, _ in idle)
        if self.device is None or unknown:
            return None
        return waits_for_host_ns(idle) / self.total_ns

    @property
    def busy_share(self) -> float:
        """Return the share of the step in which the device or host is busy, 0–1."""
        return sum(ns for state, _, ns in self.parts if state == "busy") / self.total_ns


def mean_steps(ledger: pa.Table) -> list[MeanStep]:
    """Return one mean step per rank and device of ``ledger``, in the order of its rows."""
    total: dict[tuple[int | None, int | None], Counter[tuple[str, str]]] = defaultdict(Counter)
    steps: dict[tuple[int | None, int | None], set[int | None]] = defaultdict(set)
    for row in ledger.to_pylist():
        lane = row["rank"], row["device"]
        total[lane][row["state"], row["part"]] += row["ns"]
        steps[lane].add(row["step"])
    return [
        MeanStep(*lane, len(steps[lane]), parts.total(), in_reading_order(parts))
        for lane, parts in total.items()
    ]


#: The order of the states in tables.
_STATES = ("busy", "idle")


def in_reading_order(
    parts: Mapping[tuple[str, str], int],
) -> tuple[tuple[str, str, int], ...]:
    """Return (state, part, ns), busy parts first; within a state, the largest part first."""

    def order(part: tuple[str, str, int]) -> tuple[int, int, str]:
        state, name, ns = part
        return (_STATES.index(state) if state in _STATES else len(_STATES), -ns, name)

    return tuple(sorted(((s, p, ns) for (s, p), ns in parts.items()), key=order))


def mean_of(totals: Sequence[int], steps: int) -> list[int]:
    """Return each of ``totals`` divided by ``steps``, as integers that sum to the rounded mean.

    Source: the largest remainder method.
    """
    floors = [total // steps for total in totals]
    missing = round(sum(totals) / steps) - sum(floors)
    by_remainder = sorted(range(len(totals)), key=lambda i: -(totals[i] % steps))
    for i in by_remainder[:missing]:
        floors[i] += 1
    return floors

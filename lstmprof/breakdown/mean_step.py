"""Average the steps of a run, by category of work and cause of idle time ("parts")."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lstmprof.breakdown.attribution import CALL, LATENCY, TAIL, UNATTRIBUTED
from lstmprof.events.threads import HOST

#: Causes of device idle time that an infinitely fast host would remove.
WAITS_FOR_HOST = (CALL, LATENCY, "runtime", "alloc", "dispatch", "python", HOST)
#: Pattern of the names of GPUs, but not of TPUs, MTIA devices or NPUs.
_GPU = re.compile(
    r"NVIDIA|GeForce|Tesla|Quadro|TITAN|\bRTX\b|Radeon|Instinct|\bgfx\d|\b[PVTAHBL]\d{2,3}\b|GPU",
    re.I,
)


def waits_for_host_ns(parts: Iterable[tuple[str, int]]) -> int:
    return sum(ns for part, ns in parts if part.removeprefix(TAIL) in WAITS_FOR_HOST)


def device_word(name: str) -> str:
    return "GPU" if _GPU.search(name) else "device"


def lane_words(rank: int | None, device: int | None) -> str:
    """Return ``device 0 of rank 3`` or ``CPU of rank 3``."""
    where = "CPU" if device is None else f"device {device}"
    return where if rank is None else f"{where} of rank {rank}"


@dataclass(frozen=True)
class Recording:
    """The profiler's overhead in a mean step, from the step's number of events."""

    events: float
    event_ns: float
    ns: int  # subtracted time; no interval becomes shorter than 0
    measured: bool  # whether this capture measured ``event_ns``


@dataclass(frozen=True)
class MeanStep:
    """The mean step of one device of a rank, or of the host."""

    rank: int | None
    device: int | None  # None: the host
    steps: int
    total_ns: int  # of all steps
    # sums over all steps: (state, part, ns), such as ("busy", "gemm", 2_000_000)
    parts: tuple[tuple[str, str, int], ...]
    recording: Recording | None = None
    clean: bool = False  # without disturbances and profiler overhead

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.steps

    @property
    def mean_parts(self) -> list[tuple[str, str, int]]:
        """Return the parts of the mean step in ns, such as ``("busy", "gemm", 400_000)``."""
        means = mean_of([ns for _, _, ns in self.parts], self.steps)
        return [(state, part, ns) for (state, part, _), ns in zip(self.parts, means, strict=True)]

    @property
    def waits_for_host_share(self) -> float | None:
        idle = [(part, ns) for state, part, ns in self.parts if state == "idle"]
        unknown = idle and all(part.removeprefix(TAIL) == UNATTRIBUTED for part, _ in idle)
        if self.device is None or unknown:
            return None
        return waits_for_host_ns(idle) / self.total_ns

    @property
    def busy_share(self) -> float:
        return sum(ns for state, _, ns in self.parts if state == "busy") / self.total_ns


def mean_steps(ledger: pa.Table) -> list[MeanStep]:
    """Return the mean step of each rank and device."""
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


_STATES = ("busy", "idle")


def in_reading_order(
    parts: Mapping[tuple[str, str], int],
) -> tuple[tuple[str, str, int], ...]:
    """Sort the parts of a step: busy before idle, then the longest first."""

    def order(part: tuple[str, str, int]) -> tuple[int, int, str]:
        state, name, ns = part
        return (_STATES.index(state) if state in _STATES else len(_STATES), -ns, name)

    return tuple(sorted(((s, p, ns) for (s, p), ns in parts.items()), key=order))


def mean_of(totals: Sequence[int], steps: int) -> list[int]:
    """Divide ``totals`` by ``steps`` into integers that sum to the rounded mean."""
    floors = [total // steps for total in totals]
    missing = round(sum(totals) / steps) - sum(floors)
    # round by the largest remainder method
    by_remainder = sorted(range(len(totals)), key=lambda i: -(totals[i] % steps))
    for i in by_remainder[:missing]:
        floors[i] += 1
    return floors

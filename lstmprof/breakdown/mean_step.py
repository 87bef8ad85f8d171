"""The mean step: the ledger of a run's steps, averaged for reading.

Reads the ledger; a part that a step does not have counts as 0 there, which it was.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lstmprof.breakdown.attribution import CALL, LATENCY, TAIL, UNATTRIBUTED
from lstmprof.events.threads import HOST

#: What a device waits for its host for: an infinitely fast one would have saved it that time.
WAITS_FOR_HOST = (CALL, LATENCY, "runtime", "alloc", "dispatch", "python", HOST)
#: Names that a driver gives GPUs, and no TPU, MTIA or NPU.
_GPU = re.compile(
    r"NVIDIA|GeForce|Tesla|Quadro|TITAN|\bRTX\b|Radeon|Instinct|\bgfx\d|\b[PVTAHBL]\d{2,3}\b|GPU",
    re.I,
)


def waits_for_host_ns(parts: Iterable[tuple[str, int]]) -> int:
    """Nanoseconds of (part, ns) in which a device waits for its host, tails included."""
    return sum(ns for part, ns in parts if part.removeprefix(TAIL) in WAITS_FOR_HOST)


def device_word(name: str) -> str:
    """``GPU`` where the ``name`` of a device says that it is one, else ``device``."""
    return "GPU" if _GPU.search(name) else "device"


def lane_words(rank: int | None, device: int | None) -> str:
    """What a person calls a lane: ``device 0 of rank 3``, ``CPU of rank 3``, ``device 0``."""
    where = "CPU" if device is None else f"device {device}"
    return where if rank is None else f"{where} of rank {rank}"


@dataclass(frozen=True)
class MeanStep:
    """One device (None: the host's CPU) of one rank over ``steps`` windows.

    ``parts`` are (state, part, total ns), busy before idle, the largest first; they sum to
    ``total_ns``, the length of all windows together.
    """

    rank: int | None
    device: int | None
    steps: int
    total_ns: int
    parts: tuple[tuple[str, str, int], ...]

    @property
    def mean_ns(self) -> float:
        """Length of the mean step."""
        return self.total_ns / self.steps

    @property
    def waits_for_host_share(self) -> float | None:
        """Share of the time in which the device waits for its host, 0–1.

        None where there is idle time and nothing says what for, and of a host itself.
        """
        idle = [(part, ns) for state, part, ns in self.parts if state == "idle"]
        unknown = idle and all(part.removeprefix(TAIL) == UNATTRIBUTED for part, _ in idle)
        if self.device is None or unknown:
            return None
        return waits_for_host_ns(idle) / self.total_ns

    @property
    def busy_share(self) -> float:
        """Share of the time in which the device had work, 0–1."""
        return sum(ns for state, _, ns in self.parts if state == "busy") / self.total_ns


def mean_steps(ledger: pa.Table) -> list[MeanStep]:
    """One for each rank and device of ``ledger``, in that order."""
    lanes: dict[tuple[int | None, int | None], list[dict[str, object]]] = defaultdict(list)
    for row in ledger.to_pylist():
        lanes[row["rank"], row["device"]].append(row)
    return [_mean_step(rank, device, rows) for (rank, device), rows in lanes.items()]


def _mean_step(rank: int | None, device: int | None, rows: list[dict[str, object]]) -> MeanStep:
    total: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        total[str(row["state"]), str(row["part"])] += int(str(row["ns"]))
    parts = sorted(((s, p, ns) for (s, p), ns in total.items()), key=_reading_order)
    steps = len({row["step"] for row in rows})
    return MeanStep(rank, device, steps, sum(total.values()), tuple(parts))


def _reading_order(part: tuple[str, str, int]) -> tuple[bool, int, str]:
    state, name, ns = part
    return (state != "busy", -ns, name)

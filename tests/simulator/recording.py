"""A simulated program as a profiler of its time saw it, and the truth about it, in nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from events.rows import Row
from simulator.gpu_simulator import Ran, Simulation

ACTIVITIES = ("kernel", "memcpy", "memset")


@dataclass(frozen=True)
class Recording:
    """``simulation`` with ticks of ``tick_ns``; its first step has the number ``first_step``."""

    simulation: Simulation
    tick_ns: int
    step_tid: int
    first_step: int = 0

    @cached_property
    def rows(self) -> list[Row]:
        """The events by start, outer ones first."""
        tick = self.tick_ns
        return [
            {**row, "start_ns": row["start_ns"] * tick, "dur_ns": row["dur_ns"] * tick}
            for row in self.simulation.rows
        ]

    @cached_property
    def op_ids(self) -> list[int | None]:
        """For each row the number of the op that it is, that encloses it, or that launched it."""
        ids: list[int | None] = []
        issuers: dict[int | None, int | None] = {}
        open_ops: dict[int | None, list[tuple[int, int]]] = {}
        count = 0
        for row in self.rows:
            ops = open_ops.setdefault(row["tid"], [])
            while ops and ops[-1][0] <= row["start_ns"]:
                ops.pop()
            if row["kind"] == "op":
                count += 1
                ops.append((row["start_ns"] + row["dur_ns"], count))
            own = ops[-1][1] if ops else None
            if row["kind"] == "runtime":
                issuers[row["correlation_id"]] = own
            ids.append(issuers.get(row["correlation_id"]) if row["tid"] is None else own)
        return ids

    def truth(self, call_names: dict[str, str] | None = None) -> dict[str, Any]:
        """What a reader of the file must find; ``call_names`` are other names of runtime calls."""
        return {
            "ledger": self._ledger(),
            "kernels": self._kernels(),
            "links": self._links(call_names or {}),
        }

    def _ledger(self) -> list[dict[str, Any]]:
        devices = sorted({ran.stream[0] for ran in self.simulation.ran})
        windows = enumerate(self.simulation.windows(captured=False), self.first_step)
        return [
            {
                **{"step": step, "device": device, "state": state, "part": part},
                "ns": ticks * self.tick_ns,
            }
            for step, (start, end) in windows
            for device in devices
            for (state, part), ticks in sorted(
                self.simulation.device_account(device, start, end, self.step_tid).items()
            )
        ]

    def _kernels(self) -> list[dict[str, Any]]:
        lengths: dict[tuple[int, str, str], list[int]] = {}
        for ran in self.simulation.ran:
            key = (ran.stream[0], ran.work.name, ran.category)
            lengths.setdefault(key, []).append(ran.work.ns * self.tick_ns)
        return [
            {
                **{"device": device, "name": name, "category": category, "count": len(ns)},
                **{"total_ns": sum(ns), "max_ns": max(ns)},
            }
            for (device, name, category), ns in sorted(lengths.items())
        ]

    def _links(self, call_names: dict[str, str]) -> list[dict[str, Any]]:
        calls = {r["correlation_id"]: r["name"] for r in self.rows if r["kind"] == "runtime"}
        names = {number: call_names.get(name, name) for number, name in calls.items()}
        by_start = sorted(self.simulation.ran, key=lambda ran: (ran.start_ns, ran.stream))
        return [self._link(ran, names[ran.correlation]) for ran in by_start]

    def _link(self, ran: Ran, call: str) -> dict[str, Any]:
        return {
            **{"activity": ran.work.name, "start_ns": ran.start_ns * self.tick_ns},
            **{"stream": ran.stream[1], "call": call},
            "call_start_ns": ran.call_start_ns * self.tick_ns,
        }

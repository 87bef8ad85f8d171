"""Runs on a machine that has two speeds and other work: drawn, as timings and yardsticks tell them.

::

    speed  ▔▔▔▔▔▔▁▁▁▁▁▁▁▁▁▁▁▔▔▔▔▔▔▔▔▔▔▁▁▁▁▁▁▁     full, or slow (up to 2.5 times as long)
    a round   | y | import | warm-up | iterations | profile | iterations | y |

A virtual machine whose two CPUs share a core has such speeds: it is slow while the other CPU works.
Stretches of a speed last from a tenth of a second to minutes. What is timed takes as long as the
speeds meanwhile make it; beside other work its CPU is taken as well, in slices of 4 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.iterations import iterations_of
from lstmprof.breakdown.timings import cpu_time, timings
from lstmprof.diagnose.step_profile import Contributor, StepProfile
from lstmprof.events.annotate import OWN_CODE
from lstmprof.runs.metadata import run_info

MOST_APART = 2.5
SLICE_S = 0.004
_BEGIN = datetime(2026, 11, 22, 10, tzinfo=UTC)


@dataclass
class Machine:
    """Its clock, the borders of its speeds, and what else it does.

    ``slow``: by how much longer work takes at the slow speed; ``load``: processes that want the
    worker's CPU.
    """

    generator: np.random.Generator
    slow: float
    stretch_s: float
    load: float
    now_s: float = 0.0
    is_slow: bool = False
    until_s: float = 0.0
    slice_s: float = 0.0

    @classmethod
    def drawn(cls, generator: np.random.Generator) -> Machine:
        """Of any two speeds up to ``MOST_APART``, changing now and then, with load or without."""
        slow = float(generator.uniform(1.0, MOST_APART))
        stretch_s = float(np.exp(generator.uniform(np.log(0.1), np.log(200))))
        load = float(generator.choice([0.0, 0.0, 1.0, 2.0]))
        begins_slow = bool(generator.integers(2))
        return cls(generator, slow, stretch_s, load, is_slow=begins_slow)

    def pass_by(self, seconds: float) -> None:
        """Let time go by."""
        self.now_s += seconds

    def work(self, full_s: float, feels: float = 1.0) -> tuple[float, float, int]:
        """(wall s, CPU s, preemptions) of work of ``full_s`` at full speed.

        ``feels``: how much of the speeds' distance it feels, in logarithms.
        """
        left_s, cpu_s, taken = full_s, 0.0, 0
        begin_s = self.now_s
        while left_s > 1e-12:
            while self.now_s >= self.until_s:
                self.until_s = max(self.until_s, 0.0) + self.generator.exponential(self.stretch_s)
                self.is_slow = not self.is_slow
            factor = self.slow**feels if self.is_slow else 1.0
            part_s = min(left_s, (self.until_s - self.now_s) / factor)
            left_s -= part_s
            spent_s = max(part_s * factor, 1e-9)
            cpu_s += spent_s
            self.slice_s += spent_s
            waits, self.slice_s = divmod(self.slice_s, SLICE_S)
            waits = int(waits) if self.load else 0
            taken += waits
            others = self.load * self.generator.uniform(0.5, 1.5)
            self.now_s += spent_s + waits * SLICE_S * others
        return self.now_s - begin_s, cpu_s, taken


def captured(
    machine: Machine,
    step_s: float,
    *,
    rounds: int = 3,
    iterations: int = 30,
    ops: float = 100.0,
    name: str = "run",
    own: bool = False,
) -> StepProfile:
    """A run of one thread, captured now, whose step takes so long on the machine at full speed.

    Half of it is products, half Python before its ``ops``; processes differ by 3 %. ``own``: it is
    a program of one's own.
    """
    draw = machine.generator
    facts: dict[str, Any] = {"rounds": [], "yardsticks": [], "profiled_wall_ns": []}
    rows: list[dict[str, Any]] = []
    profiled: list[float] = []
    feels = {"product": draw.uniform(0.6, 1), "python": 1.0, "copy": draw.uniform(0.3, 1)}
    of_step = float(draw.uniform(0.6, 1.0))
    share = [len(part) for part in np.array_split(np.arange(iterations), rounds)]
    before_load = machine.load
    for number in range(rounds):
        facts["rounds"].append((_BEGIN + timedelta(seconds=machine.now_s)).isoformat())
        process_s = step_s * float(np.exp(draw.normal(0, 0.03)))
        before = _yardstick(machine, feels)
        machine.pass_by(float(draw.uniform(2, 5)))
        for place in range(-2, share[number]):
            if place == share[number] // 2:
                profiled += [machine.work(1.1 * process_s, of_step)[0] for _ in range(3)]
            wall_s, cpu_s, taken = machine.work(
                process_s * float(np.exp(draw.normal(0, 0.01))), of_step
            )
            rows.append(_row(number, len(rows), place, share[number], wall_s, cpu_s, taken, own))
        after = _yardstick(machine, feels)
        facts["yardsticks"].append({"before": before, "after": after})
        machine.pass_by(1.0)
    facts |= {
        "name": name,
        "device": "cpu",
        "threads": 1,
        "affinity": [0],
        "load_average_before": [before_load, before_load, before_load],
        "hardware": {"cores": 2},
        "source": OWN_CODE if own else None,
        "iterations": iterations,
        "profiled_wall_ns": [round(1e9 * s) for s in profiled],
    }
    return _profile(run_info(facts), pa.Table.from_pylist(rows), profiled, ops)


def _yardstick(machine: Machine, feels: dict[str, float]) -> dict[str, int]:
    """Each the median of five."""
    sides: dict[str, int] = {}
    for sort, full_s in (("product", 0.0036), ("python", 0.0038), ("copy", 0.009)):
        took = [machine.work(full_s, feels[sort]) for _ in range(6)][1:]
        noise = float(np.exp(machine.generator.normal(0, 0.01)))
        sides[f"{sort}_ns"] = round(1e9 * float(np.median([wall for wall, _, _ in took])) * noise)
        sides[f"{sort}_cpu_ns"] = round(1e9 * float(np.median([c for _, c, _ in took])) * noise)
    return sides


def _row(
    round_: int,
    number: int,
    place: int,
    of: int,
    wall_s: float,
    cpu_s: float,
    taken: int,
    own: bool,
) -> dict[str, Any]:
    wall_ns, cpu_ns = round(1e9 * wall_s), round(1e9 * cpu_s)
    row: dict[str, Any] = {
        "round": round_,
        "iteration": number,
        "warmup": place < 0,
        "after_profile": place >= of // 2,
        "wall_ns": wall_ns,
        "cpu_ns": cpu_ns,
        "preemptions": taken,
        "voluntary_switches": 0,
    }
    if own:
        row |= {
            "thread_cpu_ns": cpu_ns,
            "waited_ns": max(wall_ns - cpu_ns, 0),
            "others_waited_ns": 0,
            "children_waited_ns": 0,
        }
    return row


def _profile(info: Any, table: pa.Table, profiled: list[float], ops: float) -> StepProfile:
    """What a diagnosis is given of the run; recording is not in its profile's times."""
    told, counted = timings(table, info), iterations_of(table, info)
    assert told is not None
    by_cpu = counted.measure == "CPU time"
    length_ns = told.cpu_step_ns if by_cpu and told.cpu_step_ns else told.step_ns
    half = round(1e9 * float(np.mean(profiled)) / 1.1 / 2)
    if by_cpu:
        half = round(length_ns / 2)
    ends = told.step_low_ns, told.step_high_ns
    tally = pa.table(
        {
            "noun": ["op", "product"],
            "count": [round(ops), round(ops / 2)],
            "total_ns": [half, half],
            "median_ns": [round(half / ops), round(2 * half / ops)],
            "longest_ns": [round(half / ops), round(2 * half / ops)],
        }
    )
    return StepProfile(
        name=info.name,
        info=info,
        step_ns=round(told.step_ns),
        interval_ns=None if ends[0] is None or ends[1] is None else (ends[0], ends[1]),
        steps=1,
        marked=True,
        rank=None,
        device=None,
        contributors=(
            Contributor("busy", "gemm", half, ops / 2, "aten::mm", "gemm"),
            Contributor("idle", "python", half, ops),
        ),
        tables={"tally": tally},
        doubts=told.warnings,
        rounds=counted.kept.rounds(),
        compared_by=told.compared_by,
        cpu=cpu_time(told, counted),
        cpu_share=counted.cpu_share,
    )

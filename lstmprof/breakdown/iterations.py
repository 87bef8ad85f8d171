"""The timed iterations that count, and their typical length.

Reads timings.parquet. A run is one process per round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.intervals import Ints
from lstmprof.runs.metadata import RunInfo

Bools = NDArray[np.bool_]

#: The quantile of the timed iterations, and of a slot's times, that counts as clean.
QUANTILE = 0.1


@dataclass(frozen=True)
class Iterations:
    """The iterations after warm-up, in order; arrays of one length.

    ``late``: timed after the round's profile.
    """

    round: Ints
    late: Bools
    wall_ns: Ints

    def __len__(self) -> int:
        return len(self.wall_ns)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the rounds, in order."""
        return [int(number) for number in np.unique(self.round)]

    @property
    def typical_ns(self) -> float:
        """The low percentile of all iterations: what one takes that little disturbs."""
        return float(np.quantile(self.wall_ns, QUANTILE))

    def before_and_after(self) -> list[tuple[Ints, Ints]]:
        """Return the wall times before and after the profile, for each round that has both."""
        some = [
            (self.wall_ns[mine & ~self.late], self.wall_ns[mine & self.late])
            for mine in (self.round == number for number in self.numbers)
        ]
        return [(before, after) for before, after in some if len(before) and len(after)]


def iterations_of(table: pa.Table) -> Iterations:
    """Return the iterations of ``timings.parquet`` that count."""
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns = known(counted, "wall_ns")
    assert wall_ns is not None
    rounds, late = known(counted, "round"), known(counted, "after_profile")
    return Iterations(
        np.zeros(len(wall_ns), np.int64) if rounds is None else rounds,
        np.zeros(len(wall_ns), bool) if late is None else late.astype(bool),
        wall_ns,
    )


def known(table: pa.Table, name: str) -> Ints | None:
    """Return a column as int64, None if the table lacks it or it has a null."""
    if name not in table.column_names or table.column(name).null_count:
        return None
    values: Ints = table.column(name).to_numpy().astype(np.int64)
    return values


def one_thread(info: RunInfo) -> bool:
    """Return whether one thread of a CPU did all the work, so that CPU time is the step's time.

    Own code is left out: it may wait for data, and have threads of its own.
    """
    alone = info.threads == 1 and len(info.affinity or (0,)) == 1
    return info.device == "cpu" and alone and info.source != OWN_CODE


def cpu_share(table: pa.Table, info: RunInfo) -> float | None:
    """Return the share of the timed iterations in which their thread did not wait for a CPU."""
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns = known(counted, "wall_ns")
    if wall_ns is None or not wall_ns.sum():
        return None
    if one_thread(info):
        cpu_ns = known(counted, "cpu_ns")
        return None if cpu_ns is None else min(float(cpu_ns.sum() / wall_ns.sum()), 1.0)
    waited_ns, ran_ns = known(counted, "waited_ns"), known(counted, "thread_cpu_ns")
    if waited_ns is None or ran_ns is None:
        return None
    # A wait between the end of an iteration and the reading of the wait belongs to none.
    within_ns = np.minimum(waited_ns, np.maximum(wall_ns - ran_ns, 0))
    return 1 - float(within_ns.sum() / wall_ns.sum())


def timed_ns(
    timings: pa.Table | None,
    quantile: float = QUANTILE,
    of_some_steps_ns: float = 0.0,
) -> float | None:
    """Return this quantile of the timed iterations.

    ``of_some_steps_ns`` is the mean time of what only some profiled steps do. It is added as far as
    the mean iteration exceeds the quantile, because some timed iterations did it as well.
    """
    if timings is None:
        return None
    counted = timings.filter(pc.invert(timings.column("warmup")))
    if not len(counted):
        return None
    times = counted.column("wall_ns").to_numpy()
    usual = float(np.quantile(times, quantile))
    return usual + min(of_some_steps_ns, max(float(times.mean()) - usual, 0.0))

"""The timed iterations that count, and their typical length.

Reads timings.parquet. A run is one process per round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstmprof.breakdown.clean_step import QUANTILE, known
from lstmprof.events.intervals import Ints

Bools = NDArray[np.bool_]


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

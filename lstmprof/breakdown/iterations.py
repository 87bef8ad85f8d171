"""The iterations that count, which of them lost their CPU, and by what a run can be compared.

Reads timings.parquet and run.json. A process of one thread on a CPU has that CPU for as long as its
step takes, but for its own waiting (a sleep, a disk); what a step waits beyond the run's own usual
is time in which another process ran there. The usual is of iterations whose switches were all
voluntary. A wake-up of a thread that had gone to sleep may push the one that woke it off their CPU:
where the run's yardstick, a loop that never waits, had its CPU all the time, as many involuntary
switches as voluntary ones are the process's own. With several threads, or a device that works
meanwhile, CPU time over wall time says nothing, and the number of involuntary switches alone is
left.

In the order of what is closest to the step of a quiet machine, a run is compared by the wall time
of undisturbed iterations, where each round has enough of them; by the CPU time of all, where one
thread did all; or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstmprof.breakdown import yardsticks
from lstmprof.breakdown.disturbed import one_thread
from lstmprof.breakdown.off_cpu import ALONE_SHARE, lost_of_iterations
from lstmprof.breakdown.rounds import LEAST_FOR_INTERVAL, Round, midmean, round_of
from lstmprof.events.intervals import Ints
from lstmprof.runs.metadata import RunInfo

Measure = Literal["wall time", "CPU time"]
#: Of own code a length is known where no more of it is unsure.
UNSURE_SHARE = 0.05
Bools = NDArray[np.bool_]

#: Undisturbed iterations that each round must have: a median of fewer is one iteration, or a mean.
LEAST_OF_ROUND = 3
#: A step may wait longer than usual by so much of itself, the difference below which two steps are
#: taken for equal, or by half of what it usually waits.
LOST_SHARE, OWN_SHARE = 0.02, 0.5


@dataclass(frozen=True)
class Iterations:
    """Those after warm-up, in order; arrays of one length.

    Which are undisturbed is by what a step waits, not by its length: no selection of short ones.
    ``late``: timed after the round's profile. ``turn``: its number in the round, None where the run
    took no turns. ``cpu_ns`` is None where it is unknown, or not that
    of one thread on a CPU; ``disturbed``, which lost their CPU, where nothing tells.
    """

    round: Ints
    late: Bools
    wall_ns: Ints
    cpu_ns: Ints | None = None
    disturbed: Bools | None = None
    turn: Ints | None = None

    def __len__(self) -> int:
        return len(self.wall_ns)

    @property
    def numbers(self) -> list[int]:
        """Of the rounds, in order."""
        return [int(number) for number in np.unique(self.round)]

    @property
    def kept(self) -> Iterations:
        """Those of which the step's wall time is: the undisturbed, where there are enough."""
        return self.of(~self.disturbed) if self.disturbed is not None and self._enough() else self

    @property
    def measure(self) -> Measure | None:
        """By what this run can be compared; None where its iterations were disturbed otherwise."""
        if self.disturbed is None or self._enough():
            return "wall time"
        return None if self.cpu_ns is None else "CPU time"

    @property
    def cpu_share(self) -> float | None:
        """CPU time over wall time, where one thread did it all; None unknown."""
        wall_ns = int(self.wall_ns.sum())
        if self.cpu_ns is None or not wall_ns:
            return None
        return min(int(self.cpu_ns.sum()) / wall_ns, 1.0)

    def _enough(self) -> bool:
        if self.disturbed is None:
            return False
        kept = self.round[~self.disturbed]
        of_round = [int((kept == number).sum()) for number in self.numbers]
        short = len(self) < LEAST_FOR_INTERVAL
        return min(of_round) >= LEAST_OF_ROUND and (short or len(kept) >= LEAST_FOR_INTERVAL)

    def of(self, mask: Bools) -> Iterations:
        """Those of ``mask``."""
        return Iterations(
            self.round[mask],
            self.late[mask],
            self.wall_ns[mask],
            None if self.cpu_ns is None else self.cpu_ns[mask],
            None if self.disturbed is None else self.disturbed[mask],
            None if self.turn is None else self.turn[mask],
        )

    def lengths_ns(self, measure: Measure) -> Ints:
        """Of each by this measure, which is known."""
        return self.wall_ns if measure == "wall time" or self.cpu_ns is None else self.cpu_ns

    def rounds(self, measure: Measure = "wall time") -> tuple[Round, ...]:
        """The rounds by this measure, in order."""
        return tuple(self._round(number, measure) for number in self.numbers)

    def _round(self, number: int, measure: Measure) -> Round:
        mask = self.round == number
        lengths_ns = self.lengths_ns(measure)[mask]
        if self.turn is None:
            return round_of(lengths_ns)
        of_turn = self.turn[mask]
        turns = np.unique(of_turn).tolist()
        return round_of([float(np.median(lengths_ns[of_turn == n])) for n in turns], turns)

    def length_ns(self, measure: Measure = "wall time") -> float:
        """Of a step: the interquartile mean of all iterations, of turns where it took them."""
        if self.turn is None:
            return midmean(self.lengths_ns(measure))
        return midmean([ns for some in self.rounds(measure) for _, ns in some.turns])

    def timings(self, measure: Measure = "wall time") -> list[tuple[Ints, Ints]]:
        """(before, after) its profile, of each round that has both: the lengths of iterations."""
        lengths_ns = self.lengths_ns(measure)
        some = [
            (
                lengths_ns[(self.round == number) & ~self.late],
                lengths_ns[(self.round == number) & self.late],
            )
            for number in self.numbers
        ]
        return [(before, after) for before, after in some if len(before) and len(after)]


def iterations_of(table: pa.Table, info: RunInfo) -> Iterations:
    """The iterations of ``timings.parquet`` that count."""
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns = _known(counted, "wall_ns")
    late = _known(counted, "after_profile")
    none = np.zeros(counted.num_rows, bool)
    preemptions, waits = _known(counted, "preemptions"), _known(counted, "voluntary_switches")
    cpu_ns = _known(counted, "cpu_ns") if one_thread(info) else None
    assert wall_ns is not None
    disturbed = None
    lost = lost_of_iterations(counted, info) if len(wall_ns) else None
    if lost is not None:
        cpu_ns, disturbed = _of_own_code(wall_ns, *lost, info)
    elif cpu_ns is not None and preemptions is not None and len(wall_ns):
        alone = (yardsticks.cpu_share(info) or 0.0) >= ALONE_SHARE
        own = preemptions <= (waits if alone and waits is not None else 0)
        disturbed = _lost_cpu(wall_ns, cpu_ns, own)
    elif preemptions is not None and len(wall_ns):
        disturbed = _often_preempted(preemptions)
    rounds = _known(counted, "round")
    return Iterations(
        np.zeros(len(wall_ns), np.int64) if rounds is None else rounds,
        none if late is None else late.astype(bool),
        wall_ns,
        cpu_ns,
        disturbed,
        _known(counted, "turn"),
    )


def _of_own_code(
    wall_ns: Ints, lost_ns: Ints, unsure_ns: Ints, info: RunInfo
) -> tuple[Ints | None, Bools]:
    """(time with a CPU, None where that is not known; which lost theirs) of own code.

    Its time with a CPU is all but what it waited for one: a step that sleeps does so anywhere.
    """
    on_cpu_ns = wall_ns - lost_ns
    disturbed: Bools = lost_ns + unsure_ns > LOST_SHARE * np.median(on_cpu_ns)
    unsure = unsure_ns.sum() > UNSURE_SHARE * on_cpu_ns.sum()
    return None if unsure or info.device != "cpu" else on_cpu_ns, disturbed


def _known(table: pa.Table, name: str) -> Ints | None:
    """A column; None where the table has it not, or a null in it."""
    if name not in table.column_names or table.column(name).null_count:
        return None
    values: Ints = table.column(name).to_numpy().astype(np.int64)
    return values


def _lost_cpu(wall_ns: Ints, cpu_ns: Ints, own: Bools) -> Bools:
    """Which iterations of one thread waited longer than is usual of those whose waiting is ``own``.

    Where none is, no waiting is usual.
    """
    waiting_ns = np.maximum(wall_ns - cpu_ns, 0)
    usual_ns = float(np.percentile(waiting_ns[own], 25)) if own.any() else 0.0
    more_ns = max(LOST_SHARE * float(np.median(cpu_ns)), OWN_SHARE * usual_ns)
    lost: Bools = waiting_ns > usual_ns + more_ns
    return lost


def _often_preempted(preemptions: Ints) -> Bools:
    """Which lost a CPU more than twice as often as is usual: its own threads may take it too."""
    often: Bools = preemptions > 2 * np.percentile(preemptions, 25)
    return often

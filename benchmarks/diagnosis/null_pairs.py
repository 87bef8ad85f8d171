"""Measure how often ``diagnose`` finds a false cause for identical code, and check the intervals.

A pair is two captures of the same code: ``lstmprof capture --label A``, then ``B``, then ``lstmprof
diagnose`` of both. Any cause is false. A third of the pairs is captured back to back, a third
minutes apart with other captures between, and a third while a busy process runs on each core. The
limit: at most 2 % of the pairs in each third get a cause.

The table also shows how far the clean steps (steps without disturbances) of a pair differ, how much
longer the median timed step is than the clean step, and how many 95 % intervals contain the median
clean step of the other captures of the same implementation and condition. Shares have their own
95 % interval (E. Wilson, JASA 22, 1927).

Captures that exist in ``--keep`` are not repeated. So an interrupted benchmark can continue, and
two versions of lstmprof can be compared on the same captures.

Example: ``python benchmarks/diagnosis/null_pairs.py --pairs 51 --keep /tmp/null-pairs``
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lstmprof.base.errors import LstmprofError
from lstmprof.breakdown import break_down
from lstmprof.breakdown.clean.timings import Timings
from lstmprof.runs.run import Run, open_run

#: Options for the network. It is so small that importing the framework takes most of a capture.
NETWORK = ("--layers", "1", "--hidden", "64", "--batch", "32", "--time-steps", "20")
#: Implementations of each framework; only one of TensorFlow, which takes longest to import.
IMPLEMENTATIONS = ("torch-lstmcell-fused", "jax-scan", "torch-nn-lstm", "tf-lstmcell", "flax-lstm")
LSTMPROF = (sys.executable, "-m", "lstmprof")
BACK_TO_BACK, APART, SPINNING = "back to back", "minutes apart", "a process spins on each core"
CONDITIONS = (BACK_TO_BACK, APART, SPINNING)
#: Number of blocks of captures between the two captures of a pair that is captured minutes apart.
BLOCKS_APART = 5
#: File that is written beside a run when its capture is complete.
NOTED = "load.json"


@dataclass(frozen=True)
class Pair:
    """Two captures of ``implementation``, with the same code, under ``condition``."""

    number: int
    implementation: str
    condition: str


@dataclass(frozen=True)
class Capture:
    """One of the two captures of a pair; its label is A or B."""

    pair: Pair
    label: str

    def place(self, folder: Path) -> Path:
        """Return the folder that contains only the run of this capture."""
        return folder / f"{self.pair.number:03}-{self.label}"


@dataclass(frozen=True)
class Verdict:
    """The diagnosis of a pair: whether a cause was found, the ratio of steps, the sentence."""

    pair: Pair
    state: str
    ratio: float
    sentence: str


def planned(pairs: int, implementations: Sequence[str]) -> list[Pair]:
    """Return ``pairs`` pairs, alternating between conditions and implementations."""
    return [
        Pair(n, implementations[n // len(CONDITIONS) % len(implementations)], CONDITIONS[n % 3])
        for n in range(pairs)
    ]


def schedule(pairs: Sequence[Pair]) -> list[Capture]:
    """Return all captures in the order in which they run: those on a quiet machine first.

    If the two captures of a pair must be minutes apart, captures of other pairs lie between them,
    so no time is spent waiting.
    """
    near, apart, busy = ([p for p in pairs if p.condition == c] for c in CONDITIONS)
    captures: list[Capture] = []
    for block in range(max(len(near), len(apart) + BLOCKS_APART)):
        captures += [Capture(pair, "A") for pair in apart[block : block + 1]]
        captures += [Capture(pair, label) for pair in near[block : block + 1] for label in "AB"]
        before = block - BLOCKS_APART
        captures += [Capture(pair, "B") for pair in apart[before : before + 1] if before >= 0]
    return captures + [Capture(pair, label) for pair in busy for label in "AB"]


@contextmanager
def spinning(number: int) -> Iterator[None]:
    """Within the context, run ``number`` busy processes."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def capture(wanted: Capture, folder: Path, options: Sequence[str]) -> None:
    """Run the capture ``wanted`` into ``folder``, unless it exists."""
    place = wanted.place(folder)
    if (place / NOTED).exists():
        return
    load = os.getloadavg()[0]
    busy = wanted.pair.condition == SPINNING
    asked = ("--impl", wanted.pair.implementation, "--device", "cpu", "--no-peaks", *NETWORK)
    command = [*LSTMPROF, "capture", *asked, *options, "--label", wanted.label]
    with spinning((os.cpu_count() or 1) if busy else 0):
        subprocess.run([*command, "--out", str(place)], check=True, capture_output=True)
    (place / NOTED).write_text(json.dumps({"load": load}))


def run_of(wanted: Capture, folder: Path) -> Run:
    """Return the run of the capture ``wanted``."""
    (record,) = wanted.place(folder).glob("*/run.json")
    return open_run(record.parent)


def load_of(wanted: Capture, folder: Path) -> float:
    """Return the load average of the minute before the capture ``wanted``."""
    return float(json.loads((wanted.place(folder) / NOTED).read_text())["load"])


def verdict(pair: Pair, folder: Path) -> Verdict:
    """Diagnose the two captures of ``pair``."""
    paths = [str(run_of(Capture(pair, label), folder).path) for label in "AB"]
    command = [*LSTMPROF, "diagnose", *paths, "--format", "json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (said,) = json.loads(text)
    return Verdict(
        pair, said["state"], said["verdict"]["ratio"]["value"], said["verdict"]["sentence"]
    )


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, estimated as ``hits`` out of ``of``."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, hits / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    whole = 1 + z * z / of
    return max((middle - half) / whole, 0.0), min((middle + half) / whole, 1.0)


def shown(hits: int, of: int) -> str:
    """Return the number of hits with the interval of their share, such as ``2 (0–7 %)``."""
    low, high = wilson(hits, of)
    return f"{hits} ({100 * low:.0f}–{100 * high:.0f} %)"


def timings_of(runs: Sequence[Run]) -> list[Timings]:
    """Return the timings (clean step and interval) of each of ``runs``, without untimed runs."""
    found = (break_down(run, None, ("ledger",)).timings for run in runs)
    return [each for each in found if each is not None]


def held(some: Sequence[Timings]) -> list[bool]:
    """Return for each run with an interval whether it contains the median of the others' steps."""
    hits = []
    for number, each in enumerate(some):
        others = [t.step_ns for other, t in enumerate(some) if other != number]
        if others and each.step_low_ns is not None and each.step_high_ns is not None:
            hits.append(each.step_low_ns <= statistics.median(others) <= each.step_high_ns)
    return hits


def lost(some: Sequence[Timings]) -> str:
    """Return by what share of itself a median timed step exceeds the clean step, over all runs.

    The text has the median of the runs and, in brackets, the maximum.
    """
    shares = [(each.lost_ns or 0.0) / each.median_ns for each in some]
    return f"{100 * statistics.median(shares):.0f} % ({100 * max(shares):.0f})" if shares else "–"


def apart(told: Sequence[Verdict]) -> str:
    """Return the ratio of the longer to the shorter step of a pair, over all pairs.

    The text has the median of the pairs and, in brackets, the maximum.
    """
    ratios = [each.ratio for each in told]
    return f"{statistics.median(ratios):.2f}× ({max(ratios):.2f})"


def table(told: Sequence[Verdict], folder: Path) -> str:
    """Return a table in Markdown with one line per condition."""
    lines = [
        "| captured | pairs | false causes (95 %) | no difference | cannot be told "
        "| clean steps apart, median (most) | intervals that hold | of captures | load "
        "| lost by timed steps, median (most) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|---:|",
    ]
    for condition in CONDITIONS:
        some = [v for v in told if v.pair.condition == condition]
        if not some:
            continue
        captures = [Capture(v.pair, label) for v in some for label in "AB"]
        groups: dict[str, list[Run]] = {}
        for wanted in captures:
            group = groups.setdefault(wanted.pair.implementation, [])
            group.append(run_of(wanted, folder))
        timed = [timings_of(group) for group in groups.values()]
        hits = [hit for group in timed for hit in held(group)]
        states, loads = [v.state for v in some], [load_of(c, folder) for c in captures]
        low, high = wilson(sum(hits), len(hits))
        share = f"{100 * statistics.fmean(hits):.0f} % ({100 * low:.0f}–{100 * high:.0f})"
        cells = (
            condition,
            len(some),
            shown(states.count("found"), len(some)),
            states.count("none"),
            states.count("unknown"),
            apart(some),
            share,
            len(hits),
            f"{min(loads):.1f}–{max(loads):.1f}",
            lost([each for group in timed for each in group]),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def measured(pairs: Sequence[Pair], folder: Path, options: Sequence[str]) -> list[Verdict]:
    """Run missing captures, then diagnose each pair; print both as they are done."""
    wanted = schedule(pairs)
    for number, one in enumerate(wanted, 1):
        try:
            capture(one, folder, options)
        except subprocess.CalledProcessError as failure:
            print(f"{one.place(folder).name}: {failure.stderr.decode()[-500:]}", flush=True)
        else:
            print(f"{number} of {len(wanted)}: {one.place(folder).name}", flush=True)
    told = []
    for pair in pairs:
        try:
            said = verdict(pair, folder)
        except (LstmprofError, ValueError, subprocess.CalledProcessError) as failure:
            print(f"{pair.number:03}: {failure}", flush=True)
            continue
        told.append(said)
        name = f"{pair.number:03} {pair.implementation}, {pair.condition}"
        print(f"{name}: {said.state} {said.ratio:.2f}× {said.sentence}", flush=True)
    return told


def main() -> None:
    """Print each diagnosis when it is done, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--impl", action="append", help="implementation; repeat for more")
    parser.add_argument("--pairs", type=int, default=51, help="of all conditions together")
    parser.add_argument("--rounds", type=int, help="as lstmprof capture has it by default")
    parser.add_argument("--iterations", type=int, help="of a run; likewise")
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in, or to go on in")
    asked = parser.parse_args()
    pairs = planned(asked.pairs, asked.impl or IMPLEMENTATIONS)
    numbers = {"--rounds": asked.rounds, "--iterations": asked.iterations}
    options = [word for name, n in numbers.items() if n for word in (name, str(n))]
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        print(f"\n{table(measured(pairs, folder, options), folder)}")


if __name__ == "__main__":
    main()

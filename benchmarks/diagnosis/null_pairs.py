"""How often identical code gets a cause, and how often an interval holds what it is of.

A pair is what a user does twice with nothing changed: ``lstmprof capture --label A``, then ``B``,
then ``lstmprof diagnose`` of both. Any cause is false. A third of the pairs is captured back to
back, a third minutes apart, with captures of other pairs between, and a third while another process
spins on each core. The promise: at most 2 % of the pairs get a cause, in each third.

Beside it: how far the clean steps of a pair differ, what the timed steps lost, and how many 95 %
intervals of captures hold the median clean step of the other captures of that implementation and
condition. Shares come with their own 95 % interval (E. Wilson, JASA 22, 1927).

What lies in ``--keep`` is not captured again, so that a run that was interrupted goes on, and two
versions of lstmprof can be held against each other on the same captures.

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

from lstmprof.breakdown import break_down
from lstmprof.breakdown.timings import Timings
from lstmprof.errors import LstmprofError
from lstmprof.runs.run import Run, open_run

#: Small, so that most of a capture is the import of a framework; a step is no single op.
NETWORK = ("--layers", "1", "--hidden", "64", "--batch", "32", "--time-steps", "20")
#: Of each framework; TensorFlow, which takes longest to import, once.
IMPLEMENTATIONS = ("torch-lstmcell-fused", "jax-scan", "torch-nn-lstm", "tf-lstmcell", "flax-lstm")
LSTMPROF = (sys.executable, "-m", "lstmprof")
BACK_TO_BACK, APART, SPINNING = "back to back", "minutes apart", "a process spins on each core"
CONDITIONS = (BACK_TO_BACK, APART, SPINNING)
#: So many blocks of captures lie between both captures of a pair that is captured apart.
BLOCKS_APART = 5
#: Written beside a run when it is there.
NOTED = "load.json"


@dataclass(frozen=True)
class Pair:
    """Two captures of ``implementation`` with nothing changed between them."""

    number: int
    implementation: str
    condition: str


@dataclass(frozen=True)
class Capture:
    """One of both captures of a pair, by its label."""

    pair: Pair
    label: str

    def place(self, folder: Path) -> Path:
        """Where its run lies, alone."""
        return folder / f"{self.pair.number:03}-{self.label}"


@dataclass(frozen=True)
class Verdict:
    """What ``lstmprof diagnose`` says of a pair."""

    pair: Pair
    state: str
    ratio: float
    sentence: str


def planned(pairs: int, implementations: Sequence[str]) -> list[Pair]:
    """So many pairs, each condition with each implementation in turn."""
    return [
        Pair(n, implementations[n // len(CONDITIONS) % len(implementations)], CONDITIONS[n % 3])
        for n in range(pairs)
    ]


def schedule(pairs: Sequence[Pair]) -> list[Capture]:
    """All captures, the quiet ones first; nobody waits for those that lie apart."""
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
    """So many processes that do nothing but take CPUs."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def capture(wanted: Capture, folder: Path, options: Sequence[str]) -> None:
    """Capture it into ``folder``, where it is not there yet, as a user would."""
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
    """The run that was captured."""
    (record,) = wanted.place(folder).glob("*/run.json")
    return open_run(record.parent)


def load_of(wanted: Capture, folder: Path) -> float:
    """The load average of the minute before it."""
    return float(json.loads((wanted.place(folder) / NOTED).read_text())["load"])


def verdict(pair: Pair, folder: Path) -> Verdict:
    """What is said of both captures."""
    paths = [str(run_of(Capture(pair, label), folder).path) for label in "AB"]
    command = [*LSTMPROF, "diagnose", *paths, "--format", "json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (said,) = json.loads(text)
    return Verdict(
        pair, said["state"], said["verdict"]["ratio"]["value"], said["verdict"]["sentence"]
    )


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % interval of the share of which ``hits`` of so many are a sample."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, hits / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    whole = 1 + z * z / of
    return max((middle - half) / whole, 0.0), min((middle + half) / whole, 1.0)


def shown(hits: int, of: int) -> str:
    """``2 (0–7 %)``."""
    low, high = wilson(hits, of)
    return f"{hits} ({100 * low:.0f}–{100 * high:.0f} %)"


def timings_of(runs: Sequence[Run]) -> list[Timings]:
    """Return the clean steps of ``runs``, with their intervals."""
    found = (break_down(run, None, ("ledger",)).timings for run in runs)
    return [each for each in found if each is not None]


def held(some: Sequence[Timings]) -> list[bool]:
    """Return, for each run, whether its interval holds the median of the other runs' steps."""
    hits = []
    for number, each in enumerate(some):
        others = [t.step_ns for other, t in enumerate(some) if other != number]
        if others and each.step_low_ns is not None and each.step_high_ns is not None:
            hits.append(each.step_low_ns <= statistics.median(others) <= each.step_high_ns)
    return hits


def lost(some: Sequence[Timings]) -> str:
    """Return the share that the median timed step lost, median and most of ``some``."""
    shares = [(each.lost_ns or 0.0) / each.median_ns for each in some]
    return f"{100 * statistics.median(shares):.0f} % ({100 * max(shares):.0f})" if shares else "–"


def apart(told: Sequence[Verdict]) -> str:
    """Return how many times as long the longer step takes, median and most of ``told``."""
    ratios = [each.ratio for each in told]
    return f"{statistics.median(ratios):.2f}× ({max(ratios):.2f})"


def table(told: Sequence[Verdict], folder: Path) -> str:
    """A line for each condition, in Markdown."""
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
    """Capture what is not there, then say of each pair what is said of it."""
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
    """Print each verdict as it is there, then the table."""
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

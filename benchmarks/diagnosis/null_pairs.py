"""How often identical code gets a cause: pairs of captures of one implementation, diagnosed.

A pair is what a user does twice with nothing changed: ``lstmprof capture --label A``, then ``B``,
then ``lstmprof diagnose`` of both. Whatever it finds is false. Other processes may spin meanwhile,
and the captures of a pair may lie apart. The promise: at most 2 % of the pairs get a cause.

Pairs that lie in ``--keep`` already are diagnosed again and not captured, so that two versions of
lstmprof can be held against each other on the same captures.

Example: ``python benchmarks/diagnosis/null_pairs.py --pairs 6 --rounds 1 --rounds 3``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Small enough that a pair takes half a minute, and long enough that a step is no single op.
NETWORK = ("--layers", "1", "--hidden", "64", "--batch", "32", "--time-steps", "20")
LSTMPROF = (sys.executable, "-m", "lstmprof")
#: Written beside the runs of a pair when both are there.
NOTED = "pair.json"


@dataclass(frozen=True)
class Pair:
    """Two captures of ``implementation`` with nothing changed between them.

    ``loads`` are the machine's load averages of the last minute before each of them.
    """

    implementation: str
    rounds: int
    iterations: int
    apart_s: float
    spinning: int
    loads: tuple[float, ...] = ()

    @property
    def place(self) -> str:
        """Name of its folder, but for its number."""
        gap = f"-apart{self.apart_s:g}" if self.apart_s else ""
        load = f"-spinning{self.spinning}" if self.spinning else ""
        return f"{self.implementation}-{self.rounds}x{self.iterations}{gap}{load}"


@dataclass(frozen=True)
class Verdict:
    """What ``lstmprof diagnose`` says of a pair; ``cause`` is None where it names none."""

    pair: Pair
    state: str
    cause: str | None
    slower: float
    sentence: str


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


def capture(pair: Pair, folder: Path) -> None:
    """Capture both runs of ``pair`` into ``folder``, and note what the machine did meanwhile."""
    loads = []
    with spinning(pair.spinning):
        for label in ("A", "B"):
            if loads:
                time.sleep(pair.apart_s)
            loads.append(os.getloadavg()[0])
            asked = ("--impl", pair.implementation, "--device", "cpu", "--no-peaks", *NETWORK)
            numbers = ("--rounds", str(pair.rounds), "--iterations", str(pair.iterations))
            command = (*LSTMPROF, "capture", *asked, *numbers, "--label", label)
            subprocess.run([*command, "--out", str(folder)], check=True, capture_output=True)
    (folder / NOTED).write_text(json.dumps({**asdict(pair), "loads": loads}))


def verdict(folder: Path) -> Verdict:
    """What is said of the pair in ``folder``."""
    noted = json.loads((folder / NOTED).read_text())
    pair = Pair(**{**noted, "loads": tuple(noted["loads"])})
    command = [*LSTMPROF, "diagnose", str(folder), "--format", "json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (said,) = _diagnoses(json.loads(text))
    cause = said["cause"]
    state = said.get("state") or ("none" if cause is None else "found")
    return Verdict(pair, state, cause, said["slow_ns"] / said["fast_ns"], said["sentence"])


def _diagnoses(document: Any) -> list[dict[str, Any]]:
    return document if isinstance(document, list) else list(document["diagnoses"])


def verdicts(wanted: Sequence[Pair], pairs: int, folder: Path) -> Iterator[Verdict]:
    """Each of the ``wanted`` so many times, in turn; captured where it is not there yet."""
    for number in range(pairs):
        for pair in wanted:
            place = folder / f"{pair.place}-{number}"
            if not (place / NOTED).exists():
                capture(pair, place)
            yield verdict(place)


def table(told: Sequence[Verdict]) -> str:
    """A line for each kind of pair: what was said how often."""
    lines = [
        "| implementation | rounds × iterations | apart | spinning | pairs | false causes "
        "| cannot be told | load |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for place in dict.fromkeys(v.pair.place for v in told):
        some = [v for v in told if v.pair.place == place]
        pair, loads = some[0].pair, [load for v in some for load in v.pair.loads]
        states = [v.state for v in some]
        lines.append(
            f"| {pair.implementation} | {pair.rounds} × {pair.iterations // pair.rounds} "
            f"| {pair.apart_s:g} s | {pair.spinning} | {len(some)} | {states.count('found')} "
            f"| {states.count('unknown')} | {min(loads):.1f}–{max(loads):.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print each verdict as it is there, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--impl", action="append", help="implementation; repeat for more")
    parser.add_argument("--pairs", type=int, default=6, help="of each kind")
    parser.add_argument("--rounds", action="append", type=int, help="repeat for more")
    parser.add_argument("--iterations", type=int, default=30, help="of a round")
    parser.add_argument("--apart", type=float, default=0.0, help="seconds between two captures")
    parser.add_argument("--spinning", type=int, default=0, help="processes that take CPUs")
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in")
    asked = parser.parse_args()
    wanted = [
        Pair(name, rounds, rounds * asked.iterations, asked.apart, asked.spinning)
        for name in asked.impl or ["torch-lstmcell-fused"]
        for rounds in asked.rounds or [1, 3]
    ]
    told = []
    with tempfile.TemporaryDirectory() as scratch:
        for said in verdicts(wanted, asked.pairs, asked.keep or Path(scratch)):
            told.append(said)
            print(f"{said.pair.place}: {said.state} {said.slower:.2f}× {said.sentence}", flush=True)
    print(f"\n{table(told)}")


if __name__ == "__main__":
    main()

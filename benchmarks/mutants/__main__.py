"""Plant small faults in breakdown, diagnose, formats and runs: ``make mutants``, or
``python -m benchmarks.mutants [--number N] [--seed N] [--area AREA] [--again]``.

Results are stored in build/mutants/results.json. A mutant with a result is run again only if its
module has changed, or with ``--again`` if no test noticed it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants import running
from benchmarks.mutants.area import Area, Limits, Place
from benchmarks.mutants.drawing import Mutant, drawn

ROOT = Path(__file__).resolve().parents[2]
PLACE = Place(ROOT / "build" / "mutants")
#: Area of the code -> its folders. Its tests are in tests/AREA.
AREAS = {area: (f"lstmprof/{area}",) for area in ("breakdown", "diagnose", "formats", "runs")}
OUTCOMES = (running.KILLED, running.TIMEOUT, running.SURVIVED, running.UNTESTED)


@dataclass(frozen=True)
class Result:
    """The outcome of one mutant (killed, survived …), and the number of ``tests`` run on it."""

    area: str
    mutant: Mutant
    outcome: str
    tests: int

    @property
    def words(self) -> str:
        """Return the result as one line, with the changed line of code."""
        source = (PLACE.tree / self.mutant.path).read_text("utf-8")
        both = zip(source.splitlines(), self.mutant.code(source).splitlines(), strict=False)
        line, mutated = next((pair for pair in both if pair[0] != pair[1]), ("", ""))
        told = f"{self.outcome} ({self.tests} tests)  {self.mutant.path}:{self.mutant.line}"
        return f"{told}: {line.strip()} → {mutated.strip()}"


def main() -> None:
    """Draw mutants, run their tests, print a table and the mutants that no test noticed."""
    options = _options()
    _copy_tree()
    os.chdir(PLACE.tree)
    sys.path.insert(0, str(PLACE.tree))
    os.environ["PYTHONPATH"] = str(PLACE.tree)
    os.environ["LSTMPROF_CACHE"] = str(PLACE.build / "cache")
    os.environ["OMP_NUM_THREADS"] = "1"  # threads would not survive a fork
    running.preload()
    kept, limits = Kept(PLACE.build / "results.json"), Limits(options.dear, options.spend)
    stderr = os.dup(2)  # the process of an area redirects its own stderr
    results = []
    for name in options.area or AREAS:
        mutants = drawn(PLACE.tree, AREAS[name], options.number // len(AREAS), options.seed)
        if options.again:
            kept.forget(mutants, (running.SURVIVED, running.UNTESTED))

        def tell(mutant: Mutant, outcome: str, tests: int, name: str = name) -> None:
            kept.keep(mutant, outcome, tests)
            os.write(stderr, f"{Result(name, mutant, outcome, tests).words}\n".encode())

        Area(name, mutants, PLACE, limits).run(lambda mutant: kept.of(mutant) is None, tell)
        results += [Result(name, mutant, *(kept.of(mutant) or ("", 0))) for mutant in mutants]
    print(table(results))
    for result in results:
        if result.outcome in (running.SURVIVED, running.UNTESTED):
            print(result.words)


def table(results: list[Result]) -> str:
    """Return the number of each outcome per area, as a table in Markdown."""
    rows = ["| area | mutants | " + " | ".join(OUTCOMES) + " | killed or timeout |"]
    rows.append("|" + "---|" * (len(OUTCOMES) + 3))
    for area in (*dict.fromkeys(result.area for result in results), "all"):
        counts = Counter(r.outcome for r in results if area in (r.area, "all"))
        noticed = counts[running.KILLED] + counts[running.TIMEOUT]
        cells = [area, counts.total(), *(counts[o] for o in OUTCOMES)]
        rows.append(f"| {' | '.join(map(str, cells))} | {noticed / counts.total():.0%} |")
    return "\n".join(rows)


class Kept:
    """A file with the outcome and number of tests of each mutant, until its module changes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, mutant: Mutant) -> tuple[str, int] | None:
        """Return the stored (outcome, number of tests) of ``mutant``, or None."""
        outcome = self._outcomes.get(_key(mutant))
        return None if outcome is None else (outcome[0], outcome[1])

    def keep(self, mutant: Mutant, outcome: str, tests: int) -> None:
        """Store an outcome at once, because the user may stop the run at any mutant."""
        self._write({**self._outcomes, _key(mutant): (outcome, tests)})

    def forget(self, mutants: Sequence[Mutant], outcomes: Sequence[str]) -> None:
        """Delete the results of those ``mutants`` that have one of ``outcomes``."""
        gone = {_key(mutant) for mutant in mutants if (self.of(mutant) or ("",))[0] in outcomes}
        self._write({key: value for key, value in self._outcomes.items() if key not in gone})

    @property
    def _outcomes(self) -> dict[str, tuple[str, int]]:
        return json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}

    def _write(self, outcomes: dict[str, tuple[str, int]]) -> None:
        self._path.write_text(json.dumps(outcomes, indent=0), "utf-8")


def _key(mutant: Mutant) -> str:
    source = (PLACE.tree / mutant.path).read_bytes()
    digest = hashlib.sha256(source).hexdigest()[:12]
    return f"{mutant.path} {digest} {mutant.operator} {mutant.occurrence}"


def _copy_tree() -> None:
    """Update the copy of the checkout; faults are planted only in this copy."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0"):
        if not name or not (ROOT / name).is_file():
            continue
        content = (ROOT / name).read_bytes()
        copy = PLACE.tree / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--number", type=int, default=200, help="mutants in all (200)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument("--area", action="append", choices=AREAS, help="this area alone")
    parser.add_argument(
        "--dear", type=float, default=3, help="CPU seconds of a test too dear to run (3)"
    )
    parser.add_argument(
        "--spend", type=float, default=60, help="CPU seconds of tests for one mutant (60)"
    )
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    return parser.parse_args()


if __name__ == "__main__":
    main()

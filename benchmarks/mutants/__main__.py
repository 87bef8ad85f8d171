"""Plant small faults in breakdown, diagnose, formats and runs: ``make mutants``, or
``python -m benchmarks.mutants [--number N] [--seed N] [--area AREA] [--again]``.

Results stand in build/mutants/results.json: a mutant that was run is not run again unless its
module changed, or ``--again`` asks for the survivors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants import running
from benchmarks.mutants.choosing import Tests, recorded
from benchmarks.mutants.drawing import Mutant, drawn

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
TREE = BUILD / "tree"
#: The folders of an area, whose tests are those of tests/AREA.
AREAS = {area: (f"lstmprof/{area}",) for area in ("breakdown", "diagnose", "formats", "runs")}
OUTCOMES = (running.KILLED, running.TIMEOUT, running.SURVIVED, running.UNTESTED)


@dataclass(frozen=True)
class Area:
    """A folder of the code, its own tests and its mutants."""

    name: str
    tests: Tests
    mutants: list[Mutant]


@dataclass(frozen=True)
class Result:
    """What became of one mutant, and how it reads."""

    area: str
    place: str
    line: str
    mutated: str
    tests: int
    outcome: str


def main() -> None:
    """Draw, run and tell."""
    options = _options()
    _copy_tree()
    os.chdir(TREE)
    sys.path.insert(0, str(TREE))
    os.environ["PYTHONPATH"] = str(TREE)
    os.environ["LSTMPROF_CACHE"] = str(BUILD / "cache")
    running.preload()
    kept = Kept(BUILD / "results.json")
    areas = [
        Area(
            name,
            recorded(TREE, f"tests/{name}", BUILD / f"{name}.tests.json", options.dear),
            drawn(TREE, AREAS[name], options.number // len(AREAS), options.seed),
        )
        for name in options.area or AREAS
    ]
    for area in areas:
        _check(area.tests)
    results = [  # by turns: what is broken off has looked at all areas
        _result(area.name, mutant, area.tests, kept, again=options.again)
        for turn in zip(*(area.mutants for area in areas), strict=True)
        for area, mutant in zip(areas, turn, strict=True)
    ]
    print(table(results))
    for result in results:
        if result.outcome in (running.SURVIVED, running.UNTESTED):
            print(f"\n{result.place}: {result.outcome} ({result.tests} tests)")
            print(f"  - {result.line}\n  + {result.mutated}")


def _check(tests: Tests) -> None:
    """Run a few tests on the code as it is: what fails without a fault kills every mutant."""
    path = TREE / "lstmprof" / "__init__.py"
    cheapest = tests.cheapest(20)
    output = BUILD / "output.txt"
    if running.verdict(path, path.read_text("utf-8"), cheapest, 60, output) != running.SURVIVED:
        raise SystemExit(f"tests fail where no fault was planted: see {output}")


def table(results: list[Result]) -> str:
    """Outcomes by area, as Markdown."""
    rows = ["| area | mutants | " + " | ".join(OUTCOMES) + " | killed or timeout |"]
    rows.append("|" + "---|" * (len(OUTCOMES) + 3))
    for area in (*dict.fromkeys(result.area for result in results), "all"):
        counts = Counter(r.outcome for r in results if area in (r.area, "all"))
        noticed = counts[running.KILLED] + counts[running.TIMEOUT]
        cells = [area, counts.total(), *(counts[o] for o in OUTCOMES)]
        rows.append(f"| {' | '.join(map(str, cells))} | {noticed / counts.total():.0%} |")
    return "\n".join(rows)


class Kept:
    """The outcomes so far, by the fault, its module's text and the tests it was run against."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}

    def outcome(self, mutant: Mutant, source: str) -> str | None:
        """What became of it before."""
        return self._outcomes.get(_key(mutant, source))

    def keep(self, mutant: Mutant, source: str, outcome: str) -> None:
        """Write it down at once: the run may be ended at any mutant."""
        self._outcomes[_key(mutant, source)] = outcome
        self._path.write_text(json.dumps(self._outcomes, indent=0), "utf-8")


def _result(area: str, mutant: Mutant, tests: Tests, kept: Kept, *, again: bool) -> Result:
    path = TREE / mutant.path
    source = path.read_text("utf-8")
    code = mutant.code(source)
    chosen = tests.of(mutant, source)
    outcome = kept.outcome(mutant, source)
    if outcome is None or (again and outcome in (running.SURVIVED, running.UNTESTED)):
        limit_s = running.STARTING_S + 3 * tests.cost_s(chosen)
        outcome = running.verdict(path, code, chosen, limit_s, BUILD / "output.txt")
        kept.keep(mutant, source, outcome)
    lines = zip(source.splitlines(), code.splitlines(), strict=False)
    place = f"{mutant.path}:{mutant.line}"
    line, mutated = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
    print(f"{outcome}  {place}: {line.strip()} → {mutated.strip()}", file=sys.stderr, flush=True)
    return Result(area, place, line.strip(), mutated.strip(), len(chosen), outcome)


def _key(mutant: Mutant, source: str) -> str:
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return f"{mutant.path} {digest} {mutant.operator} {mutant.occurrence}"


def _copy_tree() -> None:
    """Bring the copy of the checkout up to date: faults are never planted in the checkout."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0"):
        if not name or not (ROOT / name).is_file():
            continue
        content = (ROOT / name).read_bytes()
        copy = TREE / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--number", type=int, default=200, help="mutants in all (200)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument("--area", action="append", choices=AREAS, help="this area alone")
    parser.add_argument(
        "--dear", type=float, default=5, help="CPU seconds of a test too dear to run (5)"
    )
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    return parser.parse_args()


if __name__ == "__main__":
    main()

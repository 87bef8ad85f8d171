"""Check that the fixes that lstmprof advises help: time a step with a mistake, and with its fix.

For each fix in the catalogue that applies on a CPU, ``programs/fixes_in_*.py`` has a training step
with the mistake and one with the fix. Both are timed alternately in one process; the 10th
percentile of the times counts. The forecast is the time that the fix may save, according to
``lstmprof diagnose``.

Example: ``python benchmarks/diagnosis/fixes.py --only torch``
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import lstmprof as lp
from lstmprof.capture.worker.machine.host import hardware

PROGRAMS = Path(__file__).with_name("programs")
FRAMEWORKS = ("torch", "tensorflow", "jax")
#: Number of timed steps of each form; number of steps in ``lp.profile``.
ROUNDS, PROFILED = 40, 160
QUANTILE = 0.1


@dataclass(frozen=True)
class Tried:
    """One fix: the step times before and after it, and the diagnosis of the step before it.

    ``advised`` is the place of the fix in the list of advised fixes, from 1; None if it is not
    there.
    """

    name: str
    before_ns: float
    after_ns: float
    advised: int | None
    forecast_ns: int | None
    cause: str

    @property
    def row(self) -> str:
        """Return the line of the table in Markdown."""
        gained = self.before_ns - self.after_ns
        place = "not advised" if self.advised is None else f"fix {self.advised}"
        forecast = "–" if self.forecast_ns is None else f"{self.forecast_ns / 1e6:.2f}"
        cells = (
            self.name,
            f"{self.before_ns / 1e6:.2f}",
            f"{self.after_ns / 1e6:.2f}",
            f"{self.before_ns / self.after_ns:.2f}×",
            f"{gained / 1e6:.2f}",
            forecast,
            place,
            self.cause,
        )
        return f"| {' | '.join(cells)} |"


def timed(forms: tuple[Callable[[], object], Callable[[], object]]) -> tuple[float, float]:
    """Return the 10th percentile of the step times in ns of each form, timed alternately."""
    for _ in range(4):
        for step in forms:
            step()
    took: tuple[list[int], list[int]] = ([], [])
    for _ in range(ROUNDS):
        for step, times in zip(forms, took, strict=True):
            began = time.perf_counter_ns()
            step()
            times.append(time.perf_counter_ns() - began)
    before, after = (float(np.quantile(times, QUANTILE)) for times in took)
    return before, after


def diagnosed(step: Callable[[], object], place: Path) -> Any:
    """Profile ``step`` with ``lp.profile`` into ``place``; return the verdict."""
    with lp.profile(place, force=True, quiet=True) as profile:
        for _ in range(PROFILED):
            step()
            profile.step()
    return lp.diagnose(lp.read(place)).verdict


def tried(name: str, pair: tuple[Callable[[], Any], Callable[[], Any]], folder: Path) -> Tried:
    """Time both forms of ``pair`` (mistake, fix), and diagnose the first."""
    slow, fixed = (build() for build in pair)
    before, after = timed((slow, fixed))
    verdict = diagnosed(slow, folder / "run")
    row = name.partition(" (")[0]
    places = [place for place, fix in enumerate(verdict.fixes, start=1) if fix.name == row]
    forecast = verdict.fixes[places[0] - 1].saves_ns if places else None
    return Tried(name, before, after, places[0] if places else None, forecast, verdict.cause)


def main() -> int:
    """Print a table with one line per fix; each framework runs in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FRAMEWORKS)
    asked = parser.parse_args()
    if asked.only is None:
        facts = hardware()
        print(f"{date.today().isoformat()}, {facts['cpu_model']}, {facts['cores']} cores\n")
        heads = "fix | before ms | after ms | faster | gained ms | forecast ms | advised | cause"
        print(f"| {heads} |\n|---|---:|---:|---:|---:|---:|---|---|", flush=True)
        for framework in FRAMEWORKS:
            subprocess.run([sys.executable, __file__, "--only", framework], check=True)
        return 0
    sys.path.insert(0, str(PROGRAMS))
    pairs = importlib.import_module(f"fixes_in_{asked.only}").PAIRS
    with tempfile.TemporaryDirectory() as scratch:
        for name, pair in pairs.items():
            print(tried(name, pair, Path(scratch)).row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

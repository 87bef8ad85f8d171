"""Whether a fix that is advised helps: each is done, and timed in turn with what it mends.

For each row of the catalogue that a CPU can try: a training step with the mistake, and one with the
fix (``programs/fixes_in_*.py``). Both are timed in one process, in turn; the 10th percentile of
each counts. ``lstmprof diagnose`` of the mistake says how much the fix may save: the forecast.

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
from lstmprof.capture.worker.host import hardware

PROGRAMS = Path(__file__).with_name("programs")
FRAMEWORKS = ("torch", "tensorflow", "jax")
#: Steps of each form that are timed, and steps under ``lp.profile``.
ROUNDS, PROFILED = 40, 160
QUANTILE = 0.1


@dataclass(frozen=True)
class Tried:
    """One fix: the step before and after, and what the diagnosis of the first one says."""

    name: str
    before_ns: float
    after_ns: float
    advised: int | None
    forecast_ns: int | None
    cause: str

    @property
    def row(self) -> str:
        """A line of the table."""
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
    """Return the 10th percentile of each form's steps, ns, timed in turn."""
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
    """Profile a step as a user would; return the verdict."""
    with lp.profile(place, force=True, quiet=True) as profile:
        for _ in range(PROFILED):
            step()
            profile.step()
    return lp.diagnose(lp.read(place)).verdict


def tried(name: str, pair: tuple[Callable[[], Any], Callable[[], Any]], folder: Path) -> Tried:
    """Time both forms and diagnose the first."""
    slow, fixed = (build() for build in pair)
    before, after = timed((slow, fixed))
    verdict = diagnosed(slow, folder / "run")
    row = name.partition(" (")[0]
    places = [place for place, fix in enumerate(verdict.fixes, start=1) if fix.name == row]
    forecast = verdict.fixes[places[0] - 1].saves_ns if places else None
    return Tried(name, before, after, places[0] if places else None, forecast, verdict.cause)


def main() -> int:
    """Print a table, one line per fix; each framework runs in a process of its own."""
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

"""Whether a step without one of its causes is as long as predicted: predicted against measured.

Two kinds of pairs. A cause is planted (``planted.py``): its profile without the cause is held
against the clean step. And the hand-written loop without the Python between its ops is held against
the same equations as TorchScript and under torch.compile, though those change more than that.

Predicted is the median undisturbed step, as ``lstmprof diagnose --without`` says it.

Example: ``python benchmarks/diagnosis/what_if.py``
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planted import CLEAN, RUNS, capture, sizes
from planted_cases import WORKLOAD, Case, sweeps

from lstmprof.breakdown import break_down
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.rounds import capture_rounds
from lstmprof.diagnose.diagnosis import Asked, diagnose
from lstmprof.errors import LstmprofError
from lstmprof.runs.run import Run, open_run

#: Planted cause → what is removed.
CHANGES = {"casts": "casts", "layout copies": "copies", "item()": "syncs"}
SHARE = 0.5
TORCH = ("torch-lstmcell-basic", "torch-lstmcell-fused", "torch-cudnn")
LOOP, REWRITTEN = "torch-lstmcell-basic", ("torch-script", "torch-compile")
ROUNDS, ITERATIONS, PROFILED = 4, 120, 12


@dataclass(frozen=True)
class Pair:
    """Medians of undisturbed steps in ns; ``predicted_ns`` of the slow one without ``change``."""

    slow: str
    fast: str
    change: str
    slow_ns: float
    predicted_ns: float
    measured_ns: float

    @property
    def error(self) -> float:
        """Of the predicted length."""
        return self.predicted_ns / self.measured_ns - 1


def undisturbed_ns(run: Run, change: str) -> int:
    """Length of the undisturbed step without ``change``."""
    asked = Asked(without=(change,))
    (found,) = diagnose(break_down(run), asked=asked).what_ifs
    predicted = found.prediction.undisturbed_ns
    assert predicted is not None
    return predicted


def planted_pairs(folder: Path) -> Iterator[Pair]:
    """Every cause planted in every implementation, and removed again."""
    chosen = [Case(name, ((cause, SHARE),)) for name in TORCH for cause in CHANGES]
    for sweep in sweeps(chosen):
        place = folder / sweep.name
        capture(sweep, place, 0)
        clean = sizes(place / "plans", CLEAN)["step"]
        for case in sweep.cases:
            cause = case.causes[0][0]
            slow = sizes(place / "plans", case.label)["step"]
            predicted = undisturbed_ns(open_run(place / RUNS / case.label), CHANGES[cause])
            ends = slow.wall_ns, predicted, clean.wall_ns
            yield Pair(
                f"{sweep.implementation} + {cause}", sweep.implementation, CHANGES[cause], *ends
            )


def rewritten_pairs(folder: Path) -> Iterator[Pair]:
    """The hand-written loop and its rewritings, captured in turn."""
    requests = {
        name: CaptureRequest(
            name, WORKLOAD, "cpu", iterations=ITERATIONS, profile_steps=PROFILED, peaks=False
        )
        for name in (LOOP, *REWRITTEN)
    }
    runs = capture_rounds(requests, folder, rounds=ROUNDS)
    medians: dict[str, float] = {}
    for name, run in runs.items():
        if isinstance(run, LstmprofError):
            print(f"{name} was not captured: {run}")
            continue
        timings = break_down(run).timings
        assert timings is not None
        medians[name] = timings.median_ns
    loop = runs[LOOP]
    if isinstance(loop, LstmprofError):
        return
    predicted_ns = undisturbed_ns(loop, "python")
    for name in REWRITTEN:
        if name in medians:
            yield Pair(LOOP, name, "python", medians[LOOP], predicted_ns, medians[name])


HEAD = (
    "| slow | fast | without | slow, ms | predicted, ms | measured, ms | error |\n"
    "|---|---|---|---:|---:|---:|---:|"
)


def row(pair: Pair) -> str:
    """One line of the table."""
    lengths = (pair.slow_ns, pair.predicted_ns, pair.measured_ns)
    cells = " | ".join(f"{ns / 1e6:.2f}" for ns in lengths)
    return f"| {pair.slow} | {pair.fast} | {pair.change} | {cells} | {pair.error:+.1%} |"


def main() -> None:
    """Print the table row by row, then the median error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in")
    asked = parser.parse_args()
    print(HEAD)
    errors = []
    with tempfile.TemporaryDirectory() as scratch:
        for make, place in ((planted_pairs, "planted"), (rewritten_pairs, "rewritten")):
            folder = (asked.keep or Path(scratch)) / place
            folder.mkdir(parents=True, exist_ok=True)
            for pair in make(folder):
                errors.append(abs(pair.error))
                print(row(pair), flush=True)
    print(f"\nmedian error {statistics.median(errors):.1%} of {len(errors)} pairs")


if __name__ == "__main__":
    main()

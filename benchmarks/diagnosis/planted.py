"""Check that the diagnosis is right: plant causes of known size in captures, and diagnose them.

Each case is two runs of one implementation: a clean one, and one with one or two planted causes or
a setting that makes the same calls slower. Their rounds alternate in one sweep. Then ``lstmprof
diagnose --format json`` must name the planted cause first and with the right size. The workers are
lstmprof's own; ``planting/sitecustomize.py`` adds the causes to their steps. The true size is
measured by a clock around the planted calls in steps without a profiler. If the cause is in a
compiled program, or is a setting, the true size is the difference of the two runs' steps by that
clock. Sizes are 10th percentiles over the steps, as is the clean step (without disturbances).

Limits on a quiet machine: the cause is named first in 99 % of the cases, and the median error of
the size is at most 5 %. With a busy process per core: right or "cannot be told" in 95 %, wrong in
at most 2 %.

Complete sweeps in ``--keep`` are not captured again, only diagnosed.

Example: ``python benchmarks/diagnosis/planted.py --only 'torch-*/casts*' --keep /tmp/planted``
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
from null_pairs import spinning
from planted_cases import CASES, KINDS, Case, Sweep, sweeps

from lstmprof.base.errors import LstmprofError
from lstmprof.breakdown.clean.timings import QUANTILE
from lstmprof.capture.harness.rounds import capture_run, captured_runs
from lstmprof.capture.request import ROUNDS, CaptureRequest
from lstmprof.capture.worker.machine.host import hardware
from lstmprof.runs.run import is_run

LSTMPROF = (sys.executable, "-m", "lstmprof")
PLANTING = Path(__file__).with_name("planting")
#: Number of timed iterations of a run, over all rounds.
ITERATIONS = 90
CLEAN, SIZING, RUNS, STEP = "clean", "sizing", "runs", "step"
#: Number of timed iterations of the first capture, which only measures the clean step.
SIZING_ITERATIONS = 20
#: File that is written into the folder of a sweep when all its captures are done.
NOTED = "sweep.json"
RIGHT_QUIET, MOST_ERROR_QUIET, TOLD_LOADED, WRONG_LOADED = 0.99, 0.05, 0.95, 0.02


@dataclass(frozen=True)
class Outcome:
    """What was planted in a case, and what the diagnosis says about it; times in ns per step.

    ``difference_ns`` is the difference of the two runs' steps. ``planted_ns`` is the time measured
    around the planted calls, or ``difference_ns`` if that is not possible. ``slow`` is the name of
    the slow run, ``found_ns`` the size of the cause in the diagnosis.
    """

    case: Case
    clean_ns: float
    planted_ns: float
    difference_ns: float
    slow: str
    state: str
    cause: str | None
    found_ns: int
    sentence: str

    @property
    def verdict(self) -> str:
        """Return ``right``, ``wrong``, or ``not told`` if the diagnosis names no cause."""
        if self.state != "found":
            return "not told"
        named = self.case.is_named(self.cause, self.sentence)
        return "right" if named and self.slow == self.case.label else "wrong"

    @property
    def error(self) -> float | None:
        """Return the relative error of the diagnosed size; None if the cause is not right."""
        return self.found_ns / self.planted_ns - 1 if self.verdict == "right" else None


def request_of(case: Case, label: str) -> CaptureRequest:
    """Return the request to capture ``case`` or, if ``label`` is CLEAN, the clean run."""
    return CaptureRequest(
        case.implementation,
        case.workload,
        "cpu",
        iterations=ITERATIONS,
        peaks=False,
        label=label,
        **(case.asked if label != CLEAN else {}),
    )


def capture(sweep: Sweep, folder: Path, spinners: int) -> None:
    """Capture the clean run and the runs of all cases of ``sweep`` into ``folder``, alternating.

    A capture before them measures the clean step, because causes are planted as a share of it.
    ``spinners`` busy processes run meanwhile.
    """
    plans = folder / "plans"
    plans.mkdir(parents=True, exist_ok=True)
    by_label = {CLEAN: Case(sweep.implementation, workload=sweep.workload)}
    by_label |= {case.label: case for case in sweep.cases}
    for label, case in {**by_label, SIZING: by_label[CLEAN]}.items():
        (plans / f"{label}.json").write_text(json.dumps(case.plan))
    requests = {
        label: request_of(case, label)
        for label, case in by_label.items()
        if not is_run(folder / RUNS / label)
    }
    loads, began = [os.getloadavg()[0]], time.monotonic()
    with spinning(spinners), planting(plans):
        if not (plans / f"{SIZING}.0.log").exists():
            clean = replace(request_of(by_label[CLEAN], CLEAN), label=SIZING)
            sizing = replace(clean, iterations=SIZING_ITERATIONS)
            capture_run(sizing, folder / SIZING, rounds=1, force=True)
        runs = dict(captured_runs([requests], folder / RUNS))
    noted = {
        "failures": {name: str(r) for name, r in runs.items() if isinstance(r, LstmprofError)},
        "spinning": spinners,
        "loads": [*loads, os.getloadavg()[0]],
        "captured_s": time.monotonic() - began,
    }
    (folder / NOTED).write_text(json.dumps(noted))


@contextmanager
def planting(plans: Path) -> Iterator[None]:
    """Within the context, new workers plant what the files in the folder ``plans`` say."""
    before = dict(os.environ)
    paths = [str(PLANTING), *filter(None, [before.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PLANTED": str(plans.resolve())}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def outcome(case: Case, folder: Path) -> Outcome | str:
    """Diagnose the run of ``case`` and the clean run; return the outcome.

    Return the error message if the diagnosis fails.
    """
    paths = [str(folder / RUNS / label) for label in (CLEAN, case.label)]
    allowed = [word for fact in case.across for word in ("--across", fact)]
    command = [*LSTMPROF, "diagnose", *paths, *allowed, "--format", "json"]
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    if said.returncode:
        return said.stderr.strip()
    (told,) = json.loads(said.stdout)
    clean, whole = (sizes(folder / "plans", label) for label in (CLEAN, case.label))
    named = next((name for name, _ in case.causes if name in whole), None)
    difference_ns = whole[STEP] - clean[STEP]
    found = {each["kind"]: each["delta_ns"] for each in told["findings"]}
    kind = KINDS[case.causes[0][0]] if case.causes else told["verdict"]["kind"]
    return Outcome(
        case,
        clean_ns=clean[STEP],
        planted_ns=whole[named] if named else difference_ns,
        difference_ns=difference_ns,
        slow=told["slow"],
        state=told["state"],
        cause=told["verdict"]["kind"],
        found_ns=found.get(kind, 0),
        sentence=told["verdict"]["sentence"],
    )


def sizes(plans: Path, label: str) -> dict[str, float]:
    """Return name -> ns per step: of the whole step, and of each planted cause with a clock.

    Each value is the 10th percentile over the unprofiled steps of all rounds.
    """
    spent: dict[str, list[int]] = {STEP: []}
    for path in sorted(plans.glob(f"{label}.*.log")):
        for is_recorded, wall_ns, _, plants in json.loads(path.read_text())["steps"]:
            if is_recorded:
                continue
            spent[STEP].append(wall_ns)
            for name, (plant_ns, _) in plants.items():
                spent.setdefault(name, []).append(plant_ns)
    return {name: float(np.quantile(column, QUANTILE)) for name, column in spent.items()}


def outcomes(
    wanted: Sequence[Case], folder: Path, spinners: int
) -> Iterator[tuple[Case, Outcome | str]]:
    """Yield each of the ``wanted`` cases with its outcome, or with the reason why it has none.

    Sweeps that do not exist in ``folder`` are captured first.
    """
    for sweep in sweeps(wanted):
        place = folder / sweep.name
        if not (place / NOTED).exists():
            capture(sweep, place, spinners)
        failures = json.loads((place / NOTED).read_text())["failures"]
        for case in sweep.cases:
            failure = failures.get(case.label) or failures.get(CLEAN)
            yield case, failure or outcome(case, place)


def row(told: Outcome) -> str:
    """Return the line of the table about one outcome, in Markdown."""
    error = told.error
    mark = {"right": "", "wrong": " ✗", "not told": ""}[told.verdict]
    named = told.cause if told.state == "found" else "cannot be told"
    lengths = (told.clean_ns, told.planted_ns, told.difference_ns)
    return (
        f"| {told.case.title} | {told.case.implementation} | "
        f"{' | '.join(map(milliseconds, lengths))} | {named}{mark} "
        f"| {milliseconds(told.found_ns)} | {'' if error is None else f'{100 * error:+.1f} %'} |"
    )


HEAD = (
    "| planted (of the clean step) | implementation | clean step, ms | planted, ms "
    "| steps differ by, ms | named | found, ms | error |\n"
    "|---|---|---:|---:|---:|---|---:|---:|"
)


def milliseconds(ns: float) -> str:
    """Return ``ns`` in milliseconds with three decimals."""
    return f"{ns / 1e6:.3f}"


def summary(told: Sequence[Outcome]) -> str:
    """Return the summary in Markdown: verdicts and errors per group, and of all outcomes."""
    lines = ["| planted | cases | right | cannot be told | wrong | median error | largest error |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for title in dict.fromkeys(group(each) for each in told):
        lines.append(summary_row(title, [each for each in told if group(each) == title]))
    return "\n".join([*lines, summary_row("**all**", told)])


def group(told: Outcome) -> str:
    """Return the group of an outcome in the summary: its cause, ``a pair`` or ``a setting``."""
    if told.case.setting:
        return "a setting"
    return told.case.causes[0][0] if len(told.case.causes) == 1 else "a pair"


def summary_row(title: str, told: Sequence[Outcome]) -> str:
    """Return one line of the summary, with the absolute errors of the outcomes."""
    verdicts = [each.verdict for each in told]
    errors = [abs(each.error) for each in told if each.error is not None]
    off = [f"{100 * of(errors):.1f} %" if errors else "" for of in (statistics.median, max)]
    counts = " | ".join(str(verdicts.count(each)) for each in ("right", "not told", "wrong"))
    return f"| {title} | {len(told)} | {counts} | {' | '.join(off)} |"


def conditions(folder: Path, told: Sequence[Outcome]) -> str:
    """Return a sentence about the date, machine, busy processes, load and time of the captures."""
    places = {folder / sweep.name for sweep in sweeps(each.case for each in told)}
    notes = [json.loads((place / NOTED).read_text()) for place in places]
    loads = [load for note in notes for load in note["loads"]]
    facts = hardware()
    minutes = sum(note["captured_s"] for note in notes) / 60
    return (
        f"{date.today().isoformat()}, {facts['cpu_model']}, {facts['cores']} cores, "
        f"{max(note['spinning'] for note in notes)} processes spinning, load "
        f"{min(loads):.1f}–{max(loads):.1f}, {ROUNDS} rounds of {ITERATIONS // ROUNDS} "
        f"iterations; captured in {minutes:.1f} minutes."
    )


def holds(told: Sequence[Outcome], spinners: int) -> bool:
    """Return whether the outcomes are within the limits for ``spinners`` busy processes."""
    verdicts = [each.verdict for each in told]
    right, wrong = (verdicts.count(each) / len(told) for each in ("right", "wrong"))
    if spinners:
        return right + verdicts.count("not told") / len(told) >= TOLD_LOADED and (
            wrong <= WRONG_LOADED
        )
    errors = [abs(each.error) for each in told if each.error is not None]
    return right >= RIGHT_QUIET and statistics.median(errors) <= MOST_ERROR_QUIET


def main() -> int:
    """Print the table row by row, then the summary.

    Return 1 if a limit is exceeded or a case has no outcome, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="cases like 'torch-*/casts*'; repeat")
    parser.add_argument("--spinning", type=int, default=0, help="processes that take CPUs")
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in")
    asked = parser.parse_args()
    patterns = asked.only or ["*"]
    wanted = [case for case in CASES if any(fnmatch.fnmatch(case.name, p) for p in patterns)]
    if not wanted:
        parser.error(f"there is no such case; there are {', '.join(case.name for case in CASES)}")
    print(HEAD, flush=True)
    told: list[Outcome] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        for case, found in outcomes(wanted, folder, asked.spinning):
            if isinstance(found, str):
                failures.append(f"{case.name}: {found}")
                continue
            told.append(found)
            print(row(found), flush=True)
            if found.verdict != "right":
                print(f"{case.name}: {found.sentence}", file=sys.stderr, flush=True)
        if told:
            print(f"\n{summary(told)}\n\n{conditions(folder, told)}")
    for failure in failures:
        print(f"no outcome of {failure}", file=sys.stderr)
    return 0 if told and not failures and holds(told, asked.spinning) else 1


if __name__ == "__main__":
    sys.exit(main())

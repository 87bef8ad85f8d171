"""Check the predictions of ``diagnose --without`` and ``--as`` against measured step times.

Each pair is two programs. The slow one does one thing more (``programs``), or computes the same
layers in another form. Both are captured in one sweep, in which they alternate, so that they see
the same machine. Then ``lstmprof diagnose --without …`` (or ``--as …``) on the slow run predicts
the step time of the fast one.

There is no pair with AMP: without its casts, the matmuls would still run in 16 bits, and no real
program does that.

Runs that exist in ``--keep`` are not captured again, so a stopped benchmark can continue.

Example: ``python benchmarks/diagnosis/what_if.py --keep /tmp/what-if``
"""

from __future__ import annotations

import argparse
import datetime
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
from pathlib import Path
from typing import Any

from lstmprof.base.errors import LstmprofError
from lstmprof.capture.harness.rounds import captured_runs
from lstmprof.capture.request import CaptureRequest, run_name
from lstmprof.capture.worker.machine.host import hardware
from lstmprof.runs.run import is_run
from lstmprof.workloads import Workload

LSTMPROF = (sys.executable, "-m", "lstmprof")
PROGRAMS = Path(__file__).with_name("programs")
#: One layer of 64 units and features, batch 32, 20 time steps.
NETWORK = Workload("what-if", 1, 64, False, 32, 20, 64, 10, "ce")
#: Timed and profiled iterations of a run, over all rounds.
ITERATIONS, PROFILED = 90, 6
#: Limit of the median relative error of the predictions.
MOST_ERROR = 0.05


@dataclass(frozen=True)
class Program:
    """One run: an implementation, changed as ``programs`` says for ``label``, if that is given."""

    implementation: str
    label: str = ""
    layers: int = 1
    xla: bool = False

    @property
    def request(self) -> CaptureRequest:
        """Return the capture request of this run."""
        return CaptureRequest(
            self.implementation,
            replace(NETWORK, layers=self.layers),
            "cpu",
            iterations=ITERATIONS,
            profile_steps=PROFILED,
            xla=self.xla,
            peaks=not self.label,
            label=self.label,
        )

    @property
    def name(self) -> str:
        """Return the name of the run."""
        return f"{run_name(self.request)}--{self.layers}"

    @property
    def words(self) -> str:
        """Return the description of the program in the table."""
        parts = [self.implementation, f"{self.layers} layers" if self.layers > 1 else ""]
        parts += ["XLA" if self.xla else ""]
        text = ", ".join(part for part in parts if part)
        return f"{text} + {self.label}" if self.label else text


@dataclass(frozen=True)
class Pair:
    """Two programs; the change that diagnose's ``option`` names turns ``slow`` into ``fast``."""

    slow: Program
    fast: Program
    option: tuple[str, str]


BASIC, FUSED, LAYER = (Program(f"torch-{n}") for n in ("lstmcell-basic", "lstmcell-fused", "cudnn"))
BASIC_2, FUSED_2, LAYER_2 = (replace(program, layers=2) for program in (BASIC, FUSED, LAYER))
TF, JAX = Program("tf-lstmcell"), Program("jax-scan")
#: Label of a slow program → the value of ``--without`` that removes the addition.
REMOVED = {
    "casts": "casts",
    "clones": "copies",
    "transposes": "copies",
    "item": "syncs",
    "zeros": "zero-fills",
}


def without(program: Program, *labels: str) -> list[Pair]:
    """Return one pair per label: ``program`` with this addition, and ``program`` itself."""
    return [
        Pair(replace(program, label=label), program, ("--without", REMOVED[label]))
        for label in labels
    ]


def sliced(program: Program) -> Pair:
    """Return a pair: the second layer splits its inputs by ``x[t]``, or by ``unbind``."""
    slow, fast = (replace(program, label=label) for label in ("indexed", "unbound"))
    return Pair(slow, fast, ("--without", "slice-backward"))


AS_LAYER, COMPILED = ("--as", "layer"), ("--as", "compiled")
#: Name of a sweep → its pairs, which are captured together; in the order of the table.
PAIRS: dict[str, Sequence[Pair]] = {
    "torch-lstmcell-basic": without(BASIC, "casts", "clones", "transposes", "item", "zeros"),
    "torch-lstmcell-fused": without(FUSED, "casts", "transposes", "item"),
    "torch-nn-lstm": without(LAYER, "casts", "transposes", "item"),
    "torch-slices": (sliced(BASIC_2), sliced(FUSED_2)),
    "torch-forms": (
        Pair(BASIC, LAYER, AS_LAYER),
        Pair(FUSED, LAYER, AS_LAYER),
        Pair(BASIC, Program("torch-compile"), COMPILED),
        Pair(BASIC, Program("torch-script"), COMPILED),
    ),
    "torch-layers": (Pair(BASIC_2, LAYER_2, AS_LAYER),),
    "tensorflow": (
        *without(TF, "casts"),
        Pair(TF, Program("tf-lstmblockfusedcell"), AS_LAYER),
        Pair(TF, replace(TF, xla=True), COMPILED),
    ),
    "jax": without(JAX, "casts"),
}


@dataclass(frozen=True)
class Outcome:
    """Clean steps of a pair in ns: of the slow program, predicted and measured of the fast one."""

    pair: Pair
    slow_ns: int
    predicted_ns: int
    measured_ns: int

    @property
    def error(self) -> float:
        """Return the relative error of the prediction."""
        return self.predicted_ns / self.measured_ns - 1


@contextmanager
def programs() -> Iterator[None]:
    """Within the context, new workers run the program that the label of their request names."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROGRAMS), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def capture(pairs: Sequence[Pair], folder: Path) -> None:
    """Capture those programs of ``pairs`` that are not in ``folder`` yet, alternating."""
    wanted = dict.fromkeys(program for pair in pairs for program in (pair.slow, pair.fast))
    missing = {p.name: p.request for p in wanted if not is_run(folder / p.name)}
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with programs():
        results = dict(captured_runs([missing], folder))
    for name, result in results.items():
        if isinstance(result, LstmprofError):
            print(f"{name} was not captured: {result}", file=sys.stderr)


def diagnosed(run: Path, *options: str) -> dict[str, Any]:
    """Return the JSON of ``lstmprof diagnose`` on one run."""
    command = [*LSTMPROF, "diagnose", str(run), *options, "--format", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (document,) = json.loads(done.stdout)
    return dict(document)


def outcome(pair: Pair, folder: Path) -> Outcome | None:
    """Return the outcome of ``pair``; None if one of its programs was not captured."""
    slow, fast = (folder / program.name for program in (pair.slow, pair.fast))
    if not (is_run(slow) and is_run(fast)):
        return None
    found = diagnosed(slow, *pair.option)
    predicted = found["what_if"][0]["predicted_ns"]
    return Outcome(pair, found["slow_ns"], predicted, diagnosed(fast)["slow_ns"])


HEAD = (
    "| slow | fast | asked | slow, ms | predicted, ms | measured, ms | error |\n"
    "|---|---|---|---:|---:|---:|---:|"
)


def row(told: Outcome) -> str:
    """Return the line of the table about one pair, in Markdown."""
    lengths = (told.slow_ns, told.predicted_ns, told.measured_ns)
    cells = " | ".join(f"{ns / 1e6:.2f}" for ns in lengths)
    pair = told.pair
    return (
        f"| {pair.slow.words} | {pair.fast.words} | `{' '.join(pair.option)}` | {cells} | "
        f"{signed(told.error)} |"
    )


def signed(share: float) -> str:
    """Return ``share`` in percent with its sign, such as ``−4.2 %``."""
    return f"{share * 100:+.1f} %".replace("-", "−")


def summary(told: Sequence[Outcome]) -> str:
    """Return a table of median and largest errors, in Markdown.

    One line is for all pairs, one for ``--without``, and one for each form of ``--as``.
    """
    groups = {"all": list(told)}
    for each in told:
        kind, form = each.pair.option
        name = f"--as {form}" if kind == "--as" else "--without"
        groups.setdefault(name, []).append(each)
    lines = ["| asked | pairs | median error | worst |", "|---|---:|---:|---:|"]
    for name, members in groups.items():
        errors = [abs(each.error) for each in members]
        median, worst = statistics.median(errors), max(errors)
        lines.append(f"| {name} | {len(errors)} | {median:.1%} | {worst:.1%} |".replace("%", " %"))
    return "\n".join(lines)


def constants(told: Sequence[Outcome]) -> str:
    """Return the errors of ``--as`` as lines of Python for ``replay.forecasts.ERRORS``."""
    lines = []
    for form in ("layer", "compiled"):
        errors = [abs(t.error) for t in told if t.pair.option == ("--as", form)]
        if errors:
            figures = f"{len(errors)}, {statistics.median(errors):.2f}, {max(errors):.2f}"
            lines.append(f'    "{form}": Error({figures}),')
    return "\n".join(lines)


def main() -> int:
    """Print the table row by row, then the errors.

    Return 1 if a pair has no outcome or the median error exceeds the limit, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in, and to go on from")
    parser.add_argument("--only", action="append", choices=PAIRS, help="sweep; repeat")
    asked = parser.parse_args()
    chosen = {name: PAIRS[name] for name in asked.only or PAIRS}
    began, loads, told = time.monotonic(), [os.getloadavg()[0]], []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for sweep, pairs in chosen.items():
            folder = (asked.keep or Path(scratch)) / sweep
            capture(pairs, folder)
            for pair in pairs:
                found = outcome(pair, folder)
                if found is not None:
                    told.append(found)
                    print(row(found), flush=True)
    if not told:
        return 1
    loads.append(os.getloadavg()[0])
    print(f"\n{summary(told)}\n\n{conditions(loads, time.monotonic() - began)}")
    print(f"\nfor replay/changes.py:\n{constants(told)}", file=sys.stderr)
    whole = len(told) == sum(map(len, chosen.values()))
    held = statistics.median(abs(each.error) for each in told) <= MOST_ERROR
    return 0 if whole and held else 1


def conditions(loads: Sequence[float], took_s: float) -> str:
    """Return a sentence about the date, machine, load and duration."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = hardware()
    return (
        f"{today}, {facts['cpu_model']} with {os.cpu_count()} cores, load {loads[0]:.1f} at the "
        f"beginning and {loads[-1]:.1f} at the end, {took_s / 60:.0f} minutes."
    )


if __name__ == "__main__":
    sys.exit(main())

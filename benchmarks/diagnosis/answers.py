"""Check that ``diagnose`` gives the same, right answer on a quiet and on a loaded machine.

Each case is run as a user would: ``lstmprof run`` or ``capture``, then ``lstmprof diagnose``. The
cases are the first tutorial of docs/slow_lstm.md, the demo's three implementations, a pair of
programs in TensorFlow and one in JAX, planted causes (``planted.py``), and pairs of identical code.
The loads are: none, one busy process per core, four per core, and one per core that copies memory.

Runs that exist in ``--keep`` are not captured again, only diagnosed.

Example: ``python benchmarks/diagnosis/answers.py --keep /tmp/answers --tries 3 --machine quiet``
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from null_pairs import IMPLEMENTATIONS, NETWORK
from planted import outcomes
from planted_cases import CASES

from lstmprof.capture.worker.machine.host import hardware

LSTMPROF = (sys.executable, "-m", "lstmprof")
TUTORIAL = Path(__file__).parents[2] / "docs" / "slow_lstm.md"
PROGRAMS = Path(__file__).with_name("programs")
SPIN = "while True: pass"
COPY = "import numpy as n\na = n.ones(32_000_000); b = n.empty_like(a)\nwhile True: n.copyto(b, a)"
#: Name of a load on the machine -> code of the processes that make it, and their number per core.
MACHINES = {
    "quiet": (SPIN, 0),
    "one per core": (SPIN, 1),
    "four per core": (SPIN, 4),
    "memory": (COPY, 1),
}
DEMO = ("torch-nn-lstm", "torch-lstmcell-basic", "tf-lstmcell")
#: What the diagnosis of tutorial 1 must contain.
CAUSE, FIX = "50 LSTMCell calls per step", "torch.nn.LSTM"
#: Planted cases: the single causes in one implementation, and the settings.
PLANTS = tuple(
    case
    for case in CASES
    if case.setting or (case.implementation == "torch-lstmcell-basic" and len(case.causes) == 1)
)[:13]
#: Kinds of time whose share of the step must not depend on the load; the largest difference that is
#: allowed, in percentage points.
SHARES, MOST_POINTS = ("matmul", "elementwise", "dispatch", "Python"), 6


@contextmanager
def loaded(machine: str) -> Iterator[None]:
    """Within the context, run the processes of the load ``machine`` (a key of ``MACHINES``)."""
    code, per_core = MACHINES[machine]
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command) for _ in range(per_core * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Answer:
    """The diagnosis of two runs of a ``case`` under a load; ``right`` if it is as expected.

    ``ratio`` is the slow run's step divided by the fast run's, with the interval ``low`` to
    ``high``. ``shares`` maps kinds of time to shares of the slow step.
    """

    case: str
    machine: str
    number: int
    right: bool
    ratio: float
    low: float
    high: float | None
    sentence: str
    shares: dict[str, float]


def ran(command: Sequence[str | Path], folder: Path) -> None:
    """Run ``command`` in ``folder``.

    Raises:
        SystemExit: the command failed.
    """
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")


def diagnosed(*runs: Path) -> tuple[dict[str, Any], str]:
    """Diagnose ``runs``; return the first diagnosis as JSON, and the text for people."""
    command = [*LSTMPROF, "diagnose", *map(str, runs)]
    texts = [
        subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout
        for more in (("--format", "json"), ())
    ]
    return json.loads(texts[0])[0], texts[1]


def answer(
    case: str, machine: str, number: int, runs: Sequence[Path], wanted: Sequence[str]
) -> Answer:
    """Diagnose two runs; the text must contain all ``wanted`` words.

    Without ``wanted``, the code of the runs is identical, and no cause must be found.
    """
    found, text = diagnosed(*runs)
    ratio = found["verdict"]["ratio"]
    slow_ns = found["slow_ns"]
    shares = {f["kind"]: f["slow_ns"] / slow_ns for f in found["findings"] if f["kind"] in SHARES}
    right = all(word in text for word in wanted) and (found["state"] == "found" or not wanted)
    if not wanted:
        right = found["state"] != "found"
    return Answer(
        case,
        machine,
        number,
        right,
        ratio["value"],
        ratio["low"],
        ratio["high"],
        found["verdict"]["sentence"],
        shares,
    )


def tutorial(folder: Path, machine: str, number: int) -> Answer:
    """Run the two scripts of tutorial 1, unless their runs exist, and diagnose them."""
    place = folder / f"tutorial-{number}"
    place.mkdir(parents=True, exist_ok=True)
    scripts = re.findall(r"```python\n(# (\w+)\.py\n.*?)```", TUTORIAL.read_text(), re.DOTALL)[:2]
    for code, name in scripts:
        if not (place / "traces" / name / "run.json").exists():
            (place / f"{name}.py").write_text(code)
            ran([*LSTMPROF, "run", f"{name}.py"], place)
    runs = [place / "traces" / name for _, name in scripts]
    return answer("tutorial 1", machine, number, runs, (CAUSE, FIX))


def pair(folder: Path, machine: str, framework: str, forms: tuple[str, str], wanted: str) -> Answer:
    """Run the tagger program of ``framework`` in two ``forms`` (fast, slow), and diagnose them.

    The text must have ``wanted``.
    """
    runs = [folder / framework / form for form in forms]
    for run, form in zip(runs, forms, strict=True):
        if not (run / "run.json").exists():
            run.parent.mkdir(parents=True, exist_ok=True)
            ran([sys.executable, PROGRAMS / f"tagger_of_{framework}.py", run, form], folder)
            if not (run / "run.json").exists():
                raise SystemExit(f"{framework}, {form}: no run was written")
    return answer(framework, machine, 0, runs, (wanted,))


def demo(folder: Path, machine: str) -> list[Answer]:
    """Capture the demo's implementations; diagnose each slower one against torch-nn-lstm."""
    place = folder / "demo"
    if len(list(place.glob("*/run.json"))) < len(DEMO):
        asked = [word for name in DEMO for word in ("--impl", name)]
        network = ("--workload", "1x320-ce-short", "--time-steps", "20", "--no-peaks")
        ran([*LSTMPROF, "capture", *asked, *network, "--out", place, "--force"], folder)
    runs = {name: next(place.glob(f"{name}--*")) for name in DEMO}
    return [
        answer(f"demo: {name}", machine, 0, (runs[DEMO[0]], runs[name]), (" per step",))
        for name in DEMO[1:]
    ]


def captured(folder: Path, implementation: str, label: str) -> Path:
    """Capture one run of a pair of identical code, unless it exists; return its folder."""
    place = folder / f"{implementation}-{label}"
    if not list(place.glob("*/run.json")):
        asked = ("--impl", implementation, "--device", "cpu", "--no-peaks", *NETWORK)
        ran([*LSTMPROF, "capture", *asked, "--label", label, "--out", place, "--force"], folder)
    (record,) = place.glob("*/run.json")
    return record.parent


def identical(folder: Path, machines: Sequence[str]) -> Iterator[Answer]:
    """Diagnose all pairs of runs of identical code; the two runs may have different loads."""
    for implementation in IMPLEMENTATIONS:
        runs = [
            (machine, next((folder / machine).glob(f"{implementation}-{label}/*/run.json")).parent)
            for machine in machines
            for label in "AB"
        ]
        for (first, one), (second, other) in itertools.combinations(runs, 2):
            where = first if first == second else f"{first}, {second}"
            yield answer(f"identical {implementation}", where, 0, (one, other), ())


def main() -> int:
    """Capture and diagnose all cases under all loads, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in")
    parser.add_argument("--tries", type=int, default=20, help="of tutorial 1 on each machine")
    parser.add_argument(
        "--machine", action="append", choices=[*MACHINES], help="repeat; default all"
    )
    parser.add_argument("--only", action="append", help="tutorial, pairs, demo, plants, identical")
    asked = parser.parse_args()
    machines = asked.machine or [*MACHINES]
    only = asked.only or ["tutorial", "pairs", "demo", "plants", "identical"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = (asked.keep or Path(scratch)).resolve()
        answers: list[Answer] = []
        plants: dict[str, list[Any]] = {}
        for machine in machines:
            place = folder / machine
            place.mkdir(parents=True, exist_ok=True)
            with loaded(machine):
                answers += measured(place, machine, asked.tries, only)
                if "plants" in only:
                    plants[machine] = [found for _, found in outcomes(PLANTS, place / "plants", 0)]
        if "identical" in only:
            answers += identical(folder, machines)
        report(answers, plants, machines)
    return 0


def measured(place: Path, machine: str, tries: int, only: Sequence[str]) -> Iterator[Answer]:
    """Yield the answers under one load, which is running."""
    for number in range(tries if "tutorial" in only else 0):
        yield tutorial(place, machine, number)
    if "pairs" in only:
        yield pair(place, machine, "tensorflow", ("graph", "eager"), "tf.function")
        yield pair(place, machine, "jax", ("jit", "eager"), "jax.jit")
    if "demo" in only:
        yield from demo(place, machine)
    for implementation in IMPLEMENTATIONS if "identical" in only else ():
        for label in "AB":
            captured(place, implementation, label)


def report(
    answers: Sequence[Answer], plants: dict[str, list[Any]], machines: Sequence[str]
) -> None:
    """Print one line per case and load, then the sentences of wrong answers.

    ``plants`` maps loads to outcomes of planted cases.
    """
    facts = hardware()
    print(f"{date.today().isoformat()}, {facts['cpu_model']}, {facts['cores']} cores\n")
    print("| case | machine | right | ratio | interval holds the quiet ratio | most points moved |")
    print("|---|---|---:|---:|---:|---:|")
    for case in dict.fromkeys(a.case for a in answers if not a.case.startswith("identical")):
        mine = [a for a in answers if a.case == case]
        quiet = [a for a in mine if a.machine == "quiet"]
        usual = statistics.median(a.ratio for a in quiet) if quiet else None
        for machine in machines:
            print(_row(case, machine, [a for a in mine if a.machine == machine], usual, quiet))
    same = [a for a in answers if a.case.startswith("identical")]
    if same:
        print("\n| identical code | pairs | given a cause |\n|---|---:|---:|")
        for machine in dict.fromkeys(a.machine for a in same):
            some = [a for a in same if a.machine == machine]
            print(f"| {machine} | {len(some)} | {sum(not a.right for a in some)} |")
    if plants:
        print("\n| planted | cases | named first | wrong | unknown | median error of the size |")
        print("|---|---:|---:|---:|---:|---:|")
    for machine, found in plants.items():
        said = [each.verdict for each in found if not isinstance(each, str)]
        errors = [abs(e.error) for e in found if not isinstance(e, str) and e.error is not None]
        off = f"{100 * statistics.median(errors):.1f} %" if errors else ""
        counts = " | ".join(str(said.count(v)) for v in ("right", "wrong", "not told"))
        print(f"| {machine} | {len(found)} | {counts} | {off} |")
    for a in answers:
        if not a.right:
            print(f"\n{a.case}, {a.machine}, try {a.number}: {a.sentence}")
    for machine, found in plants.items():
        for each in found:
            if isinstance(each, str) or each.verdict != "right":
                text = each if isinstance(each, str) else f"{each.case.title}: {each.sentence}"
                print(f"\n{machine}: {text}")


def _row(
    case: str, machine: str, some: Sequence[Answer], usual: float | None, quiet: Sequence[Answer]
) -> str:
    if not some:
        return f"| {case} | {machine} | – | | | |"
    right = sum(a.right for a in some)
    ratios = [a.ratio for a in some]
    held = "" if usual is None else sum(_holds(a, usual) for a in some)
    moved = ""
    if quiet:
        shares = {k: statistics.median(a.shares.get(k, 0.0) for a in quiet) for k in SHARES}
        each = [max(abs(a.shares.get(k, 0.0) - shares[k]) for k in SHARES) for a in some]
        moved = f"{100 * statistics.median(each):.1f}"
    span = f"{min(ratios):.2f}–{max(ratios):.2f}"
    return f"| {case} | {machine} | {right} of {len(some)} | {span} | {held} | {moved} |"


def _holds(a: Answer, ratio: float) -> bool:
    return a.low <= ratio and (a.high is None or ratio <= a.high)


if __name__ == "__main__":
    sys.exit(main())

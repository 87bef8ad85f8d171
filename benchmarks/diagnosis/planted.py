"""Whether the diagnosis is right: causes of known size, planted in real implementations on a CPU.

Each case is one implementation with and without one cause or two. What a cause costs is measured:
the median of the undisturbed steps with it less that without it, the steps of all variants in turn
in one process. ``lstmprof diagnose`` then sees two runs; it must name the kind of the largest cause
first, and its size. The promises: the right name in 95 % of the cases, a median error within 10 %.

Example: ``python benchmarks/diagnosis/planted.py --only casts --cases 3``
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof import formats, implementations
from lstmprof.breakdown import break_down
from lstmprof.diagnose import causes
from lstmprof.diagnose.diagnosis import diagnose
from lstmprof.errors import LstmprofError
from lstmprof.events.annotate import CAPTURED, annotated
from lstmprof.events.annotate.steps import windows, with_steps
from lstmprof.runs.directory import new_run
from lstmprof.runs.ingest import described
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, Run, open_run, write_tables

TORCH = ("torch-lstmcell-basic", "torch-lstmcell-fused", "torch-cudnn")
COMPILED = ("tf-lstmcell", "keras-lstm", "jax-scan")
IMPLEMENTATIONS = (*TORCH, *COMPILED)
FRAMEWORKS, ALL = ("torch", "tensorflow", "jax"), "**all**"
#: Cause → the kind that a diagnosis must give.
KINDS = {
    "casts": causes.CAST,
    "tiny ops": causes.DISPATCH,
    "busy wait": causes.PYTHON,
    "sleep": causes.PYTHON,
    "thread wait": causes.PYTHON,
    "item()": causes.SYNC,
    "layout copies": causes.COPY,
    "doubled GEMM": causes.GEMM,
    "pointwise": causes.MEMORY,
    "input work": causes.INPUT,
    "input wait": causes.INPUT,
}
#: What a cause alone costs, of the clean step; of a pair the first and the second.
SHARES, SHARES_OF_PAIR = (0.5,), (0.6, 0.25)
PAIRS = (
    ("casts", "busy wait"),
    ("layout copies", "casts"),
    ("doubled GEMM", "tiny ops"),
    ("input wait", "casts"),
    ("tiny ops", "sleep"),
    ("item()", "layout copies"),
    ("thread wait", "doubled GEMM"),
    ("pointwise", "input work"),
    ("busy wait", "pointwise"),
    ("casts", "item()"),
)
#: A step that is one program asks for no value before it ends.
NOT_IN_COMPILED = ("item()",)
RIGHT_SHARE, MOST_ERROR = 0.95, 0.10
LEAST_KEPT = 3  # profiled steps


@dataclass(frozen=True)
class Case:
    """Causes with their shares of the clean step, the largest first, in one implementation."""

    implementation: str
    causes: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        """What names its files."""
        words = "-".join(f"{cause}-{share:.0%}" for cause, share in self.causes)
        return words.replace(" ", "-").replace("%", "").replace("()", "")


@dataclass(frozen=True)
class Outcome:
    """What was planted of the largest cause, and what the diagnosis says of it; ns a step."""

    case: Case
    largest: str
    clean_ns: float
    planted_ns: float
    count: int
    named: str
    found_ns: int

    @property
    def right(self) -> bool:
        """Whether the dominant cause has the name of what was planted."""
        return self.named == KINDS[self.largest]

    @property
    def error(self) -> float:
        """Of the size, as a share of what was planted."""
        return self.found_ns / self.planted_ns - 1


def cases() -> Iterator[Case]:
    """All of them: of each implementation every cause in every size, then the pairs."""
    for implementation in IMPLEMENTATIONS:
        left_out = NOT_IN_COMPILED if implementation in COMPILED else ()
        for cause in KINDS:
            if cause not in left_out:
                for share in SHARES:
                    yield Case(implementation, ((cause, share),))
        for pair in PAIRS:
            if not set(pair) & set(left_out):
                yield Case(implementation, tuple(zip(pair, SHARES_OF_PAIR, strict=True)))


def captured(
    chosen: Sequence[Case], folder: Path
) -> Iterator[tuple[Case, dict[str, Any] | None, Path]]:
    """Each case, what ``planting.py`` wrote of it, and where; one process an implementation.

    None stands for what was not written: the worker's log says why.
    """
    for implementation in IMPLEMENTATIONS:
        mine = [case for case in chosen if case.implementation == implementation]
        if not mine:
            continue
        place = folder / implementation
        place.mkdir(parents=True, exist_ok=True)
        asked = [{"name": case.name, "causes": case.causes} for case in mine]
        (place / "cases.json").write_text(json.dumps(asked))
        for case in mine:
            (place / f"{case.name}.json").unlink(missing_ok=True)
        worker = Path(__file__).with_name("planting.py")
        with (place / "worker.log").open("wb") as log:
            command = [sys.executable, str(worker), implementation, str(place)]
            subprocess.run(command, check=False, stdout=log, stderr=log)
        for case in mine:
            written_to = place / f"{case.name}.json"
            yield case, json.loads(written_to.read_text()) if written_to.exists() else None, place


def measured(chosen: Sequence[Case], folder: Path) -> Iterator[Outcome | str]:
    """The outcome of each case, or why it has none."""
    for case, made, place in captured(chosen, folder):
        if made is None:
            yield f"{case.name} in {case.implementation}: {last_line(place / 'worker.log')}"
            continue
        try:
            yield outcome(case, made, place)
        except LstmprofError as error:
            yield f"{case.name} in {case.implementation}: {error}"


def last_line(log: Path) -> str:
    """What the worker said last."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def outcome(case: Case, made: dict[str, Any], place: Path) -> Outcome:
    """What a diagnosis of the two runs says, beside what was measured."""
    diagnosis = diagnose(*map(break_down, written(case.name, made, place)))
    medians = {name: statistics.median(t["wall_ns"]) for name, t in made["timings"].items()}
    alone = {name: medians.get(name, medians["all"]) for name, _ in case.causes}
    largest = max(alone, key=alone.__getitem__)
    found = {each.finding.kind: each.finding.delta_ns for each in diagnosis.findings}
    return Outcome(
        case,
        largest,
        clean_ns=medians["clean"],
        planted_ns=alone[largest] - medians["clean"],
        count=made["counts"][largest],
        named=diagnosis.dominant.finding.kind if diagnosis.dominant else "none",
        found_ns=found.get(KINDS[largest], 0),
    )


def written(case: str, made: dict[str, Any], place: Path) -> list[Run]:
    """The clean run and the planted one, like those that ``lstmprof capture`` writes."""
    profile = formats.read(Path(made["profile"]))
    events = annotated(profile.events, captured=True)
    runs = []
    for number, variant in enumerate(("clean", "all")):
        name = f"{case}--{variant}"
        steps = kept(made["preempted"], number)
        mine = events.filter(pc.is_in(events.column("step"), pa.array(steps), skip_nulls=True))
        mine = with_steps(mine, windows(mine, captured=True))
        info = {
            "source": CAPTURED,
            **made["metadata"],
            **described(name, profile, mine),
            "profiled_wall_ns": [made["profiled_wall_ns"][step] for step in steps],
        }
        with new_run(place / "runs", name, force=True) as folder:
            write_tables(folder, run_info(info), mine, timings_of(made["timings"][variant]))
        runs.append(open_run(place / "runs" / name))
    return runs


def kept(preempted: Sequence[int], number: int) -> list[int]:
    """The steps of variant ``number`` that kept their CPU, and never fewer than ``LEAST_KEPT``."""
    mine = range(number, len(preempted), 2)
    whole = [step for step in mine if not preempted[step]]
    by_preemptions = sorted(mine, key=lambda step: preempted[step])
    return whole if len(whole) >= LEAST_KEPT else sorted(by_preemptions[:LEAST_KEPT])


def timings_of(columns: dict[str, list[Any]]) -> pa.Table:
    """The timings of a run in one round."""
    whole = {**columns, "round": [0] * len(columns["iteration"])}
    names = TIMINGS_SCHEMA.names
    return pa.table({name: whole[name] for name in names}).cast(TIMINGS_SCHEMA)


def row(found: Outcome) -> str:
    """One line of the table."""
    planted = " + ".join(f"{cause} {share:.0%}" for cause, share in found.case.causes)
    return (
        f"| {planted} | {found.case.implementation} | {found.clean_ns / 1e6:.2f} | {found.count} "
        f"| {found.planted_ns / 1e6:.3f} | {found.named}{'' if found.right else ' ✗'} "
        f"| {found.found_ns / 1e6:.3f} | {100 * found.error:+.1f} % |"
    )


HEAD = (
    "| planted (of the clean step) | implementation | clean step, ms | units of the largest "
    "| planted, ms | named | found, ms | error |\n|---|---|---:|---:|---:|---|---:|---:|"
)


def summary(found: Sequence[Outcome]) -> str:
    """How often the name is right and how far off the size is, by framework and cause."""
    lines = ["| largest cause | framework | cases | named right | median error | largest error |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    groups: dict[tuple[str, str], list[Outcome]] = {
        (framework, cause): [] for framework in FRAMEWORKS for cause in (*KINDS, ALL)
    }
    for one in found:
        framework = implementations.find(one.case.implementation).framework
        groups[framework, one.largest].append(one)
        groups[framework, ALL].append(one)
    lines += [summary_row(cause, name, some) for (name, cause), some in groups.items() if some]
    return "\n".join([*lines, summary_row(ALL, "all", found)])


def summary_row(cause: str, framework: str, found: Sequence[Outcome]) -> str:
    """One line of the summary; errors without their sign."""
    errors = [abs(o.error) for o in found]
    return (
        f"| {cause} | {framework} | {len(found)} | {sum(o.right for o in found)} "
        f"| {100 * statistics.median(errors):.1f} % | {100 * max(errors):.1f} % |"
    )


def holds(found: Sequence[Outcome]) -> bool:
    """Whether both promises are kept."""
    right = sum(o.right for o in found) / len(found)
    return right >= RIGHT_SHARE and statistics.median(abs(o.error) for o in found) <= MOST_ERROR


def main() -> int:
    """Print the table row by row, then the summary; 1 where a promise broke or a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(KINDS), help="cases whose largest cause is this")
    parser.add_argument(
        "--implementation", choices=IMPLEMENTATIONS, action="append", help="cases in this; repeat"
    )
    parser.add_argument("--cases", type=int, help="the first so many of an even choice")
    parser.add_argument("--keep", type=Path, help="folder to leave the runs in")
    asked = parser.parse_args()
    chosen = [c for c in cases() if asked.only in (None, c.causes[0][0])]
    chosen = [c for c in chosen if c.implementation in (asked.implementation or IMPLEMENTATIONS)]
    if asked.cases:
        chosen = chosen[:: max(1, len(chosen) // asked.cases)][: asked.cases]
    print(HEAD, flush=True)
    found: list[Outcome] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for one in measured(chosen, asked.keep or Path(scratch)):
            if isinstance(one, str):
                failures.append(one)
                continue
            found.append(one)
            print(row(one), flush=True)
    if found:
        print("\n" + summary(found))
    for failure in failures:
        print(f"no outcome of {failure}", file=sys.stderr)
    return 0 if found and not failures and holds(found) else 1


if __name__ == "__main__":
    sys.exit(main())

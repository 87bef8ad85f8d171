"""README.md of the analyses, from the runs that are named: ``python -m analyses traces/``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import lstmprof as lp
from analyses import PARTS, Part, printing, question, steps, sweep
from analyses.claims import ALIKE, Claim
from analyses.published import STUDIES
from lstmprof.errors import LstmprofError

HEAD = """\
# What benchmark studies of LSTMs found, and what we see

Why is one LSTM several times slower than another on the same network? Five studies and DeepBench
measured that it is, on GPUs of 2014 to 2021. Here every number and claim of theirs stands beside
what our own runs show, with one of three verdicts. Each section begins with the answer.

{brief}

## Method

**Runs.** The samples in [traces/](../traces/README.md) were captured by `lstmprof capture` on one
thread of a CPU, mostly with shorter sequences (`-t20`: 20 time steps); each table of runs there has
date and machine. {sweep}

**Numbers.** A CPU cannot confirm a time that was measured on a GPU. So we compare ratios: the step
of one implementation over that of another. Our steps are *clean* steps, the time of a step that
nothing disturbs; the 95 % interval of a ratio is in brackets.

**Verdicts.** *Reproduced*: the two numbers differ by at most {alike:.0f} %. *Differs here*: they
differ by more, and the reason that we measured stands below the table. *Likely*: part of our
interval would give the other verdict. *Needs a GPU*: no run of ours has the number; the command
with the given number settles it.

**What we expect on a GPU.** An LSTM written as a loop runs n ops in each of T time steps, and each
op launches at least one kernel. The host needs {launch} µs for a launch (median on an NVIDIA
H200), so the loop cannot be faster than n·T·{launch} µs, however little it computes. A layer that
is one call of cuDNN has no such limit. On that GPU a training step with a loop over LSTMCell took
26.1 ms at 50 time steps, and 2.8 ms with `nn.LSTM`; kernels ran for 1.5 and 0.2 ms of it
([docs/gpu.md](../docs/gpu.md)). On a CPU nothing is launched, and matmuls fill the step.
"""


def page(runs: Sequence[lp.Run]) -> str:
    """Return the text of README.md."""
    answers = [(part, _claims(part, runs)) for part in PARTS]
    lines = sweep.rows()
    head = HEAD.format(
        brief="\n".join(_brief(answers)),
        sweep=f"The sweeps of the kernel study ran on {sweep.machine(lines)}."
        if len(lines)
        else "",
        alike=100 * (ALIKE - 1),
        launch=steps.LAUNCH_US,
    )
    sections = ["\n".join(_section(part, claims, runs)) for part, claims in answers]
    return "\n".join([head, *sections, *_texts()])


def _claims(part: Part, runs: Sequence[lp.Run]) -> list[Claim]:
    analyses = [question(name) for name in part.questions]
    return [claim for analysis in analyses for claim in analysis.claims(analysis.table(runs))]


def _brief(answers: Sequence[tuple[Part, Sequence[Claim]]]) -> Iterator[str]:
    kinds = ("reproduced", "differs here", "needs a GPU")
    yield from (f"| study | claims | {' | '.join(kinds)} |", "|---|---|---|---|---|")
    for part, claims in answers:
        found = Counter(claim.kind for claim in claims)
        numbers = " | ".join(str(found[kind]) for kind in kinds)
        yield f"| {part.heading.partition(':')[0]} | {len(claims)} | {numbers} |"


def _section(part: Part, claims: Sequence[Claim], runs: Sequence[lp.Run]) -> Iterator[str]:
    analyses = [question(name) for name in part.questions]
    said = [f"{analysis.conclusion(analysis.table(runs))}." for analysis in analyses]
    open_ = [claim for claim in claims if claim.kind == "needs a GPU"]
    commands = printing.settling(claims)
    numbers = {command: f" [{number}]" for number, command in enumerate(commands, 1)}
    yield from (f"## {part.heading}", "", " ".join(said), "")
    yield from (f"![{part.title}](charts/{part.drawn}.svg)", "")
    yield from _in_words([claim for claim in claims if not claim.row], numbers)
    yield from _in_numbers([claim for claim in claims if claim.row], numbers)
    yield from (f"- {reason.removeprefix('Why: ')}" for reason in printing.reasons(claims))
    asked = ", ".join(f"`python -m analyses.{name} traces/`" for name in part.questions)
    yield from ("", f"Each number of ours, with its runs: {asked}", "")
    if commands:
        yield from (f"<details><summary>Commands for the {len(open_)} open claims</summary>", "")
        yield from (f"{number}. `{command}`" for number, command in enumerate(commands, 1))
        yield from ("", "</details>", "")


def _verdict(claim: Claim, numbers: dict[str, str]) -> str:
    return claim.verdict + (numbers[claim.command] if claim.kind == "needs a GPU" else "")


def _in_words(claims: Sequence[Claim], numbers: dict[str, str]) -> Iterator[str]:
    if not claims:
        return
    yield from ("| claim | study | here | verdict |", "|---|---|---|---|")
    for claim in claims:
        cells = (claim.says, claim.their_number, claim.our_number, _verdict(claim, numbers))
        yield "| " + " | ".join(cells) + " |"
    yield ""


def _in_numbers(claims: Sequence[Claim], numbers: dict[str, str]) -> Iterator[str]:
    """Yield a table per place of the study: its figures, the ratio, ours and the verdict."""
    for place in dict.fromkeys(claim.place for claim in claims):
        own = [claim for claim in claims if claim.place == place]
        columns = [*dict.fromkeys(claim.column for claim in own)]
        cells = {(c.row, c.column): _cell(c, numbers) for c in own}
        folded = len(own) > MOST_ROWS
        if folded:
            yield from (f"<details><summary>All {len(own)} ratios of the {place}</summary>", "")
        yield "| | " + " | ".join(columns) + " |"
        yield "|---" * (len(columns) + 1) + "|"
        for row in dict.fromkeys(claim.row for claim in own):
            found = [cells.get((row, column), "") for column in columns]
            yield f"| {row} | " + " | ".join(found) + " |"
        yield from (*(["", "</details>"] if folded else []), "")


def _cell(claim: Claim, numbers: dict[str, str]) -> str:
    ours = f", here {claim.our_number}" if claim.our_number else ""
    return f"{claim.raw} = **{claim.their_number}**{ours}: {_verdict(claim, numbers)}"


#: Larger tables are folded.
MOST_ROWS = 16


def _texts() -> Iterator[str]:
    yield from ("## What was read", "")
    yield from ("| study | text | its machine | what was read |", "|---|---|---|---|")
    for study in STUDIES:
        text = f"[{study.title}]({study.address})" if study.address else study.title
        yield f"| {study.name} | {text} | {study.machine} | {study.read} |"
    yield ""


def write_charts(runs: Sequence[lp.Run], folder: Path) -> None:
    """Write the chart of every section to ``folder`` as SVG."""
    folder.mkdir(exist_ok=True)
    for part in PARTS:
        analysis = question(part.drawn)
        rows = analysis.table(runs)
        printing.write_chart(analysis.chart, rows, folder / f"{part.drawn}.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print README.md of the analyses.")
    parser.add_argument("runs", nargs="+", help="runs, or folders of runs")
    parser.add_argument("--charts", type=Path, help="write the charts to this folder")
    given = parser.parse_args()
    try:
        runs = printing.runs_of(given.runs)
        print(page(runs), end="")
        if given.charts:
            write_charts(runs, given.charts)
    except LstmprofError as fault:
        sys.exit(f"analyses: error: {fault}")

"""Print README.md of the analyses, computed from runs: ``python -m analyses traces/``."""

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
from lstmprof.base.errors import LstmprofError

HEAD = """\
# What benchmark studies of LSTMs found, and what we see

Why do two LSTMs of the same size differ in speed by a factor of several? Five studies and DeepBench
measured such differences, on GPUs of 2014 to 2021. This page compares their numbers and claims with
our own runs, most of them on a CPU. Each section begins with the answer. The table shows how many
claims of each study our runs reproduce:

{brief}

## Method

**Runs.** Our runs are the samples in [traces/](../traces/README.md); that page has the date and the
machine of each. `lstmprof capture` recorded them on one thread of a CPU, some with shorter
sequences than in the studies (`-t20` in a name means 20 time steps). {sweep}

**Names.** Names such as `torch-nn-lstm` are implementations (`lstmprof list` shows them). Names
such as `1x320-ce-long` are networks (`lstmprof list workloads` shows them).

**Ratios.** The studies measured on GPUs, and we measured on a CPU, so times in seconds cannot
agree. We therefore compare ratios. "A over B" is the step time of A divided by the step time of B.
Our step times are those of the [clean step](../docs/ledger.md#the-clean-step): the time that a step
takes when nothing disturbs it. The range in brackets after our ratio is its 95 % interval.

**Verdicts.** Each claim has one of three verdicts:

- *Reproduced*: the study's ratio and ours differ by at most {alike:.0f} %.
- *Differs here*: they differ by more. The text in brackets says how our runs differ from those of
  the study: "CPU, 20 time steps" means that we used a CPU and sequences of 20 time steps. The list
  below the tables says why the ratios differ, as far as our runs show it.
- *Needs a GPU*: we have not measured this ratio. The number in brackets is that of a command at the
  end of the section, which measures the ratio.

*Likely* before a verdict means that the verdict would be another one for some of the ratios in our
95 % interval.

**What we expect on a GPU.** An LSTM written as a loop runs n ops in each of T time steps, and each
op launches at least one kernel. The host needs {launch} µs for a launch (median on an NVIDIA
H200), so the loop takes at least n·T·{launch} µs, however little it computes. A layer that is one
call of cuDNN has no such limit. On this GPU, a training step of 50 time steps took 26.1 ms with a
loop over LSTMCell, and 2.8 ms with `nn.LSTM`; kernels ran for 1.5 and 0.2 ms of these times
([docs/gpu.md](../docs/gpu.md)). On a CPU there are no launches, and matmuls take most of the step.
"""


def page(runs: Sequence[lp.Run]) -> str:
    answers = [(part, _claims(part, runs)) for part in PARTS]
    lines = sweep.rows()
    head = HEAD.format(
        brief="\n".join(_brief(answers)),
        sweep="For the kernel study we also measured many sizes of one layer "
        f"({sweep.machine(lines)}."
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
        counts = Counter(claim.kind for claim in claims)
        numbers = " | ".join(str(counts[kind]) for kind in kinds)
        yield f"| {part.heading.partition(':')[0]} | {len(claims)} | {numbers} |"


def _section(part: Part, claims: Sequence[Claim], runs: Sequence[lp.Run]) -> Iterator[str]:
    analyses = [question(name) for name in part.questions]
    conclusions = [f"{analysis.conclusion(analysis.table(runs))}." for analysis in analyses]
    open_ = [claim for claim in claims if claim.kind == "needs a GPU"]
    commands = printing.settling(claims)
    numbers = {command: f" [{number}]" for number, command in enumerate(commands, 1)}
    yield from (f"## {part.heading}", "", *(text for each in conclusions for text in (each, "")))
    yield from ((part.note, "") if part.note else ())
    yield from (f"![{part.title}](charts/{part.drawn}.svg)", "")
    yield from _in_words([claim for claim in claims if not claim.row], numbers)
    yield from _in_numbers([claim for claim in claims if claim.row], numbers)
    for analysis in analyses:
        if hasattr(analysis, "times"):
            yield from (*analysis.times(analysis.table(runs)), "")
    if reasons := printing.reasons(claims):
        yield from ("Why our ratios differ from the study's:", "")
        yield from (f"- {reason.removeprefix('Why: ')}" for reason in reasons)
        yield ""
    modules = ", ".join(f"`python -m analyses.{name} traces/`" for name in part.questions)
    yield from (f"To see the runs behind each ratio that we measured: {modules}", "")
    if commands:
        needing = f"the {len(open_)} claims that need a GPU"
        yield from (f"<details><summary>Commands that measure {needing}</summary>", "")
        yield from ("Numbers in brackets above, such as [1], refer to these commands.", "")
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
    """Yield the study's tables in Markdown, with our ratios and verdicts."""
    if claims:
        yield from (
            "Each cell has two numbers of the study, **their ratio**, our ratio, and our verdict.",
            "",
        )
    for place in dict.fromkeys(claim.place for claim in claims):
        own = [claim for claim in claims if claim.place == place]
        columns = [*dict.fromkeys(claim.column for claim in own)]
        cells = {(c.row, c.column): _cell(c, numbers) for c in own}
        folded = len(own) > MOST_ROWS
        if folded:
            yield from (
                f"<details><summary>All {len(own)} ratios of the study's {place}</summary>",
                "",
            )
        yield "| | " + " | ".join(columns) + " |"
        yield "|---" * (len(columns) + 1) + "|"
        for row in dict.fromkeys(claim.row for claim in own):
            row_cells = [cells.get((row, column), "") for column in columns]
            yield f"| {row} | " + " | ".join(row_cells) + " |"
        yield from (*(["", "</details>"] if folded else []), "")


def _cell(claim: Claim, numbers: dict[str, str]) -> str:
    ours = f", here {claim.our_number}" if claim.our_number else ""
    return f"{claim.raw} = **{claim.their_number}**{ours}: {_verdict(claim, numbers)}"


#: Most rows of a table that is shown unfolded.
MOST_ROWS = 16


def _texts() -> Iterator[str]:
    yield from ("## Sources", "")
    yield from ("| study | text | its machine | what we took from it |", "|---|---|---|---|")
    for study in STUDIES:
        text = f"[{study.title}]({study.address})" if study.address else study.title
        yield f"| {study.name} | {text} | {study.machine} | {study.read} |"
    yield ""


def write_charts(runs: Sequence[lp.Run], folder: Path) -> None:
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

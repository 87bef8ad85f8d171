"""README.md of the analyses, from the runs that are named: ``python -m analyses traces/``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import lstmprof as lp
from analyses import QUESTIONS, printing, question, title
from analyses.claims import Claim
from analyses.published import STUDIES, Study
from lstmprof.errors import LstmprofError

HEAD = """\
# What the studies said, and what runs here show

One question a file. `python -m analyses.NAME traces/` prints its table and claims and draws its
chart; `make analyses` writes this page from the samples in [traces/](../traces/README.md), and a
test holds the page to them.

**How to read it.** The studies measured on GPUs of their time. The samples were measured on one
thread of a CPU, in fp32, and many have shorter sequences (`-t20`: 20 time steps). A CPU can neither
confirm nor refute a time that was measured on a GPU, so the tables compare ratios, not times. Each
ratio is of clean steps: the time of a step that nothing disturbs. The 95 % interval of our ratio is
in brackets.

- *Reproduced*: over the whole interval the two numbers differ by a quarter at most.
- *Differs here*: over the whole interval the numbers differ by more. The note under the table says
  what was measured in the samples that explains the difference: the ops that a layer runs per time
  step, and the share of a step that is matmuls or dispatch.
- *Open*: the interval holds numbers of both kinds.
- *Needs …*: no run on a CPU can answer, or the version or system cannot be installed.
- *Not captured*: there is no sample; the command under the question captures it.
"""
READ = """\
## What was read

| study | text | its machine | what was read of it |
|---|---|---|---|
{rows}
"""


def page(runs: Sequence[lp.Run]) -> str:
    """Return the text of README.md."""
    answers = [(question(name), name) for name in QUESTIONS]
    rows = "\n".join(f"| {s.name} | {_text(s)} | {s.machine} | {s.read} |" for s in STUDIES)
    sections = [_section(analysis, name, runs) for analysis, name in answers]
    return "\n".join([HEAD, READ.format(rows=rows), *sections])


def _text(study: Study) -> str:
    return f"[{study.title}]({study.address})" if study.address else study.title


def _section(analysis: ModuleType, name: str, runs: Sequence[lp.Run]) -> str:
    rows = analysis.table(runs)
    claims: list[Claim] = analysis.claims(rows)
    told = [claim for claim in claims if claim.ours or claim.needs]
    lacking = [claim for claim in claims if claim not in told]
    lines = [f"## {title(analysis)}", "", f"`python -m analyses.{name} traces/`", ""]
    lines += [*_claims(told), *_reasons(told), *_not_captured(lacking)]
    if not any(claim.ours or claim.command for claim in claims) and not lacking:
        lines += [printing.markdown(rows) if len(rows) else "No sample answers it.", ""]
    return "\n".join([*lines, "```console", f"$ {analysis.COMMAND}", "```", ""])


def _reasons(claims: Sequence[Claim]) -> list[str]:
    """Return why our numbers differ, each reason once."""
    reasons = dict.fromkeys(c.why for c in claims if c.why and printing.differs(c))
    return [*(f"- {why}." for why in reasons), *([""] if reasons else [])]


def _claims(claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return []
    lines = ["| claim | study | here | of | verdict |", "|---|---|---|---|---|"]
    for claim in claims:
        cells = (claim.says, claim.their_number, claim.our_number, claim.source, claim.verdict)
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _not_captured(claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return []
    lines = ["| claim | study |", "|---|---|"]
    lines += [f"| {claim.says} | {claim.their_number} |" for claim in claims]
    head = f"<details><summary>Not captured: {len(claims)} of the study's numbers</summary>"
    return [head, "", *lines, "", "</details>", ""]


if __name__ == "__main__":
    try:
        print(page(printing.runs_of(sys.argv[1:])), end="")
    except LstmprofError as fault:
        sys.exit(f"analyses: error: {fault}")

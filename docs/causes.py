"""docs/causes.md, the catalogue of causes: what to change, how each shows, where to read about it.

Generated from ``lstmprof.diagnose.remedies.TABLE`` and docs/causes.toml by ``make docs``; a test
compares the committed page with it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lstmprof.diagnose.findings.causes import KINDS, shown
from lstmprof.diagnose.remedies import TABLE
from lstmprof.diagnose.remedies.rows import Remedy

PAGE = Path(__file__).with_name("causes.md")
#: Name of a cause → the time that its fix saves, and an example; see the head of the file.
NOTES: dict[str, dict[str, Any]] = tomllib.loads(PAGE.with_suffix(".toml").read_text("utf-8"))
#: GitHub threads are shown as people write them: pytorch#149194.
_THREAD = re.compile(r"https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)$")
#: End of a gain that was measured with other sizes than those of the example's profile.
_ELSEWHERE = ", in another program"
_PREAMBLE = """\
# Why a training step is slow, and what to change

This page lists every cause that `lstmprof diagnose` can name, in the order in which `diagnose`
checks them. `diagnose` names a cause only if the profile meets the condition of the cause.
[diagnosis.md](diagnosis.md) explains how `diagnose` works.

Each entry has these lines:

- **Fix:** what to change in the code or in the settings.
- **Condition:** what the profile must show. "Step" always means a training step, "time step" a
  time step of the recurrent network. Counts and times are per step.
- **Frameworks:** the frameworks in which lstmprof looks for this cause.
- **Where the time shows:** the [kinds of time](diagnosis.md#kinds-of-time), such as launch,
  dispatch or matmul, that this cause makes longer. lstmprof looks for the cause only if the step
  spends time in one of these kinds.
- **Saves:** how much time per step the fix saves: at most this time on a GPU, about this time on a
  CPU. "Unknown" means that a profile cannot show this time. "Minus the time of …" names the work
  that replaces the slow work.
- **Example:** a profile in which lstmprof found the cause, with the evidence that it printed. A
  "generated profile" comes from lstmprof's tests, not from a measurement. "The fix: 15.3 → 2.7 ms
  per step" is the length of a step before and after the fix, in this program or in another program
  with the same mistake.

These terms recur:

- A **gap** is the idle time of the GPU before a kernel. A **usual gap** is at most ten times as
  long as the median gap.
- **The GPU waits for launches** if three things are true: a step runs ten or more kernels; the
  median kernel is shorter than the median gap; and usual gaps take at least half of the time of all
  gaps, and half of the time in which the GPU waits for the host.
- A layer runs **one cell at a time** if each time step calls the ops of a cell. A layer runs **in
  one op** if one call computes all time steps.
- A **handwritten cell** is an LSTM cell made of matmuls and elementwise ops, in one of the built-in
  implementations of `lstmprof capture`.
- A **library op** is an op of cuDNN, MIOpen or oneDNN that computes a whole layer.
- **Dispatch** is the time that the framework needs to call ops.
- **Slower calls** are calls that two compared runs make equally often, and that take longer in the
  slower run.
- **Half precision** is float16 or bfloat16.

`make docs` generates this page from `lstmprof/diagnose/remedies/` and `docs/causes.toml`.
"""


def text() -> str:
    """Return the page."""
    return "\n".join([_PREAMBLE, *_overview(), *(line for row in TABLE for line in _entry(row))])


def _overview() -> Iterator[str]:
    yield "| cause | fix |"
    yield "|---|---|"
    for row in TABLE:
        yield f"| [{_cell(row.cause)}](#{_anchor(row.name)}) | {_cell(row.fix)} |"
    yield ""


def _entry(row: Remedy) -> Iterator[str]:
    notes = NOTES.get(row.name, {})
    yield f"## {row.name}"
    yield ""
    yield f"{_capitalised(row.cause)}."
    yield ""
    yield f"- **Fix:** {row.fix}."
    yield f"- **Condition:** {_capitalised(row.condition)}."
    frameworks = ", ".join(row.frameworks) or "any framework"
    yield f"- **Frameworks:** {frameworks}."
    kinds = "any kind" if set(row.kinds) == set(KINDS) else ", ".join(map(shown, row.kinds))
    yield f"- **Where the time shows:** {kinds}."
    minus = f", minus the time of {row.instead}" if row.instead else ""
    yield f"- **Saves:** {notes.get('saves', 'unknown')}{minus}."
    yield f"- **Sources:** {', '.join(map(_link, row.sources))}"
    if example := notes.get("example"):
        yield f"- **Example:** {example['of']}: “{example['seen']}”{_gain(example.get('gain', ''))}"
    yield ""


def _gain(gain: str) -> str:
    """Return the sentence on what the fix gained; "" if that was not measured."""
    if not gain:
        return ""
    measured, elsewhere, _ = gain.partition(_ELSEWHERE)
    where = " in another program with this mistake" if elsewhere else ""
    return f". The fix{where}: {measured}"


def _capitalised(clause: str) -> str:
    """Return ``clause`` as a sentence; code and names such as cuDNN keep their letters."""
    word = clause.split()[0]
    return clause[0].upper() + clause[1:] if word.isalpha() and word.islower() else clause


def _link(address: str) -> str:
    thread = _THREAD.match(address)
    name = f"{thread[1]}#{thread[2]}" if thread else address.removeprefix("https://")
    return f"[{name}]({address})"


def _cell(words: str) -> str:
    return re.sub(r"([|\[\]])", r"\\\1", words)


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

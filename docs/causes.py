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

This page lists the causes that `lstmprof diagnose` can name, in the order in which it checks them.
[diagnosis.md](diagnosis.md) explains how `diagnose` works.

Each entry has some of these lines:

- **Cause:** what in the code or its settings makes the step slow.
- **Fix:** what to change.
- **Condition:** what the profile must show before `diagnose` names the cause. Numbers are per step.
- **Frameworks:** the frameworks in which the cause occurs. Without this line, it can occur in any.
- **Saves:** the time per step that the fix saves. On a GPU, the fix saves at most this time.
- **Sources:** pages that explain the cause.
- **Example:** a profile with this cause, in quotes what lstmprof printed about the profile, and
  the time before and after the fix (if measured). A *synthetic profile* was written by
  lstmprof's tests, and is not the profile of a real program.

The entries use these terms:

- A **step** is a training step. A **time step** is a step of the recurrent network.
- A **gap** is idle time of the GPU before a kernel. A **short gap** is at most ten times as long as
  the median gap.
- **The GPU waits for launches** if the gaps are longer than the kernels, and make up at least half
  of the GPU's idle time.
- A layer runs **in one op** if one call computes all time steps. A layer runs **one cell at a
  time** if each time step calls ops.
- **Dispatch** is the time that the framework needs to call ops.
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
    yield f"- **Cause:** {_capitalised(row.cause)}."
    yield f"- **Fix:** {row.fix}."
    yield f"- **Condition:** {_capitalised(row.condition)}."
    if row.frameworks:
        yield f"- **Frameworks:** {', '.join(row.frameworks)}."
    if saves := notes.get("saves"):
        minus = f", minus the time of {row.instead}" if row.instead else ""
        yield f"- **Saves:** {saves}{minus}."
    yield f"- **Sources:** {', '.join(map(_link, row.sources))}"
    if example := notes.get("example"):
        yield f"- **Example:** {example['of']}: “{example['seen']}”{_gain(example.get('gain', ''))}"
    yield ""


def _gain(gain: str) -> str:
    """Return the sentence on what the fix gained; "" if that was not measured."""
    if not gain:
        return ""
    measured, elsewhere, _ = gain.partition(_ELSEWHERE)
    where = ", in another program with this mistake" if elsewhere else ""
    return f". Time before and after the fix{where}: {measured}"


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

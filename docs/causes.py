"""docs/causes.md, the catalogue of causes: how each is seen, what helps, where to read of it.

Made of ``lstmprof.diagnose.remedies.TABLE``. Write it anew with ``make docs``; a test holds the
committed page to this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lstmprof.diagnose.remedies import TABLE
from lstmprof.diagnose.remedies.told import Remedy

PAGE = Path(__file__).with_name("causes.md")
#: Threads of GitHub are called as people call them: pytorch#149194.
_THREAD = re.compile(r"https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)$")
_PREAMBLE = """\
# Why a step is slow: the catalogue of causes

Every cause that `lstmprof diagnose` names, in the order in which it looks for them: what makes the
step slow, what must be seen in the profile, of which kinds of time it can be a part, and where to
read of it. An example is a real profile, and what was said of it. A cause is named only where what
must be seen is seen. How a finding comes about, and what its kinds are, is in
[diagnosis.md](diagnosis.md).

This page is written by `make docs` from `lstmprof/diagnose/remedies/`.
"""


def text() -> str:
    """What the page holds."""
    return "\n".join([_PREAMBLE, *_overview(), *(line for row in TABLE for line in _entry(row))])


def _overview() -> Iterator[str]:
    yield "| cause | remedy |"
    yield "|---|---|"
    for row in TABLE:
        yield f"| {_cell(row.cause)} | [{_cell(row.name)}](#{_anchor(row.name)}) |"
    yield ""


def _entry(row: Remedy) -> Iterator[str]:
    yield f"## {row.name}"
    yield ""
    yield f"{row.cause[0].upper()}{row.cause[1:]}."
    yield ""
    yield f"- **Seen:** {row.condition}."
    yield f"- **For:** {', '.join(row.frameworks) or 'any framework'}; {', '.join(row.kinds)}."
    less = f", less what {row.instead} will take" if row.instead else ""
    yield f"- **It addresses:** {row.saves or 'cannot be told from a profile'}{less}."
    yield f"- **Sources:** {', '.join(map(_link, row.sources))}"
    if row.example is not None:
        yield f"- **Example:** {row.example.of}: “{row.example.told}”"
    yield ""


def _link(address: str) -> str:
    thread = _THREAD.match(address)
    name = f"{thread[1]}#{thread[2]}" if thread else address.removeprefix("https://")
    return f"[{name}]({address})"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def _anchor(heading: str) -> str:
    """The name that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

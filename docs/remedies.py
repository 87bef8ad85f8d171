"""The table of remedies in docs/diagnosis.md, between its two marks, from the code.

Write it anew with ``make docs``; a test holds the committed file to this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lstmprof.diagnose.remedies import TABLE

PAGE = Path(__file__).with_name("diagnosis.md")
BEGIN, END = "<!-- remedies: written by make docs -->", "<!-- end of remedies -->"


def with_remedies(page: str) -> str:
    """``page`` with the table between the marks as the code has it.

    Raises:
        ValueError: one of the marks is missing.
    """
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has no '{BEGIN}' before a '{END}'")
    return before + "\n".join([BEGIN, "", *_rows(), "", END]) + after


def _rows() -> Iterator[str]:
    yield "| remedy | what is seen | of what time | for | it addresses | source |"
    yield "|---|---|---|---|---|---|"
    for remedy in TABLE:
        kinds = ", ".join(remedy.kinds)
        frameworks = ", ".join(remedy.frameworks) or "any"
        saves = remedy.saves or "cannot be told"
        cells = (remedy.name, remedy.condition, kinds, frameworks, saves, remedy.source)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(with_remedies(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

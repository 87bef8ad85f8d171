"""The table of causes in docs/diagnosis.md, between its two marks, from the code.

Write it anew with ``make docs``; a test holds the committed file to this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lstmprof.diagnose.causes import KINDS, RULES

PAGE = Path(__file__).with_name("diagnosis.md")
BEGIN, END = "<!-- causes: written by make docs -->", "<!-- end of causes -->"


def with_causes(page: str) -> str:
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
    yield "| kind | in a sentence | why its time is of it |"
    yield "|---|---|---|"
    for kind, words in KINDS.items():
        reasons = dict.fromkeys(rule.reason for rule in RULES if rule.kind == kind)
        cells = (kind, words, "; or ".join(reasons))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(with_causes(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

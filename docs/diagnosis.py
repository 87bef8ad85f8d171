"""Write the table of kinds of time in docs/diagnosis.md, between its marks, from the code.

Run it with ``make docs``; a test compares the committed file with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from lstmprof.diagnose.findings.causes import KINDS, RULES, shown

PAGE = Path(__file__).with_name("diagnosis.md")


def with_tables(page: str) -> str:
    """``page`` with the tables between their marks as the code has them.

    Raises:
        ValueError: one of the marks is missing.
    """
    for name, rows in TABLES.items():
        begin, end = f"<!-- {name}: written by make docs -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise ValueError(f"{PAGE} has no '{begin}' before a '{end}'")
        page = before + "\n".join([begin, "", *rows(), "", end]) + after
    return page


def _causes() -> Iterator[str]:
    yield "| kind | in words | what belongs to it |"
    yield "|---|---|---|"
    for kind, words in KINDS.items():
        reasons = dict.fromkeys(rule.reason for rule in RULES if rule.kind == kind)
        name = kind if shown(kind) == kind else f"{shown(kind)} (`{kind}`)"
        yield _row(name, words, "; or ".join(reasons))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {"causes": _causes}

if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

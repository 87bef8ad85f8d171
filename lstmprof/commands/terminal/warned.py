"""Print each kind of warning once, with the names of the runs that have the warning."""

from __future__ import annotations

from collections.abc import Iterable

from lstmprof.base.numbers import listed
from lstmprof.breakdown.lacks import NOTE
from lstmprof.commands import terminal

#: Largest number of lines of warnings. One line with the kinds replaces longer texts.
_LINES = 3
_HEAD = "Warning: "
#: Number of further runs that a warning names if the warning concerns over four runs.
_NAMED = 2

#: A warning: (kind, name of the run, sentence).
Warned = tuple[str, str, str]


def show(warnings: Iterable[Warned], *, named: bool = True, full: bool = False, see: str) -> None:
    """Print one sentence per kind of warning, or only the kinds if there are many lines."""
    warnings = list(dict.fromkeys(warnings))
    texts = [terminal.wrapped(_HEAD, line) for line in lines_by_kind(warnings, named=named)]
    if full or sum(map(len, texts)) <= _LINES:
        for lines in texts:
            terminal.write_lines(lines, bold=len(_HEAD))
        return
    runs: dict[str, set[str]] = {}
    for kind, run, _ in warnings:
        runs.setdefault("problems in the profile's file" if kind == NOTE else kind, set()).add(run)
    each = [kind if len(of) == 1 else f"{kind} ({len(of)} runs)" for kind, of in runs.items()]
    terminal.write_under("Warnings: ", f"{', '.join(each)}; see {see}")


def lines_by_kind(warnings: Iterable[Warned], *, named: bool = True) -> list[str]:
    """Return one line per kind of warning, with the names of the affected runs."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for kind, run, sentence in warnings:
        alike = (kind, sentence if kind == NOTE else "")
        groups.setdefault(alike, []).append((run, sentence))
    lines = []
    for members in groups.values():
        (run, sentence), others = members[0], [run for run, _ in members[1:]]
        if len(others) > _NAMED + 1:
            others = [*others[:_NAMED], f"{len(others) - _NAMED} more runs"]
        also = f" (also {listed(others)})" if others else ""
        lines.append(f"{run}{also}: {sentence}" if named else sentence)
    return lines

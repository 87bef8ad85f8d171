"""Warnings of several runs: each kind once, whatever the number of runs that have it."""

from __future__ import annotations

from collections.abc import Iterable

from lstmprof.breakdown.lacks import NOTE
from lstmprof.commands import terminal
from lstmprof.numbers import listed

#: Warnings that fill so many lines are printed as sentences; if there are more, they are named.
_LINES = 3
_HEAD = "Warning: "
#: Runs that are named in a warning.
_NAMED = 2

#: Kind, the run that has it, the sentence.
Warned = tuple[str, str, str]


def show(found: Iterable[Warned], *, named: bool = True, full: bool = False, see: str) -> None:
    """Print what profiles lack and why to doubt their times.

    They are sentences if these are few, or ``full``; else one line names the kinds and says where
    to ``see`` them. Runs are ``named`` unless all is about one.
    """
    found = list(dict.fromkeys(found))
    texts = [terminal.wrapped(_HEAD, line) for line in of_kinds(found, named=named)]
    if full or sum(map(len, texts)) <= _LINES:
        for lines in texts:
            terminal.write_lines(lines, bold=len(_HEAD))
        return
    runs: dict[str, set[str]] = {}
    for kind, run, _ in found:
        runs.setdefault("remarks about the file" if kind == NOTE else kind, set()).add(run)
    each = [kind if len(of) == 1 else f"{kind} ({len(of)} runs)" for kind, of in runs.items()]
    terminal.write_under("Warnings: ", f"{', '.join(each)}; see {see}")


def of_kinds(found: Iterable[Warned], *, named: bool = True) -> list[str]:
    """Return one line per kind of warning: the sentence of its first run, and who else has it.

    Notes of a profile's reader differ, so that each has its own line.
    """
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for kind, run, sentence in found:
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

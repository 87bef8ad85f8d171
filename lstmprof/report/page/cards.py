"""The verdict cards, with which the page begins: one card per diagnosed run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lstmprof.base.numbers import listed, milliseconds, number_of, with_short_names
from lstmprof.diagnose.comparable import conditions_in_words
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.verdict.verdict_text import (
    CERTAINTY_WORDS,
    fix_lines,
    lane_of,
    largest_kinds,
    where_heading,
    worst_first,
)
from lstmprof.report.model import Figure, Report
from lstmprof.report.palette import WHOLE, Part, part_of_kind

#: Largest number of unfolded cards in a block; other cards show only their first line.
MOST_OPEN = 4


@dataclass(frozen=True)
class Cause:
    """A cause in the folded part of a card."""

    kind: str
    sentence: str
    fixes: tuple[tuple[str, str], ...]  # (what to change, source)


@dataclass(frozen=True)
class KindAmount:
    """A kind of time in the line "Where" of a card."""

    kind: str
    part: Part  # gives the colour
    amount: str


@dataclass(frozen=True)
class Card:
    """The card of one verdict."""

    subject: str
    place: str
    step: str
    times: str
    level: str  # CSS class of the certainty
    badge: str  # text of the certainty
    lines: tuple[tuple[str, str, str], ...]  # (label, text, what a fix saves)
    where: tuple[KindAmount, ...]
    where_heading: str
    causes: tuple[Cause, ...]
    notes: tuple[tuple[str, str], ...]  # (label, text)
    is_open: bool

    @property
    def folded(self) -> str:
        """Return the heading of the folded part: ``5 kinds of time and 2 notes``."""
        kinds = (len(self.causes), "kind of time", "kinds of time")
        notes = (len(self.notes), "note", "notes")
        return listed([number_of(*of) for of in (kinds, notes) if of[0]])


@dataclass(frozen=True)
class Block:
    """Cards under one heading, with a chart of step times, and doubts about these times."""

    heading: str
    baseline: str
    cards: tuple[Card, ...]
    doubts: tuple[str, ...]
    times: Figure | None


def blocks(report: Report, figures: Sequence[Figure]) -> Iterator[Block]:
    """Yield one block per group of compared runs, then one block with all single runs."""
    times = {figure.key: figure for figure in figures}
    compared = [group for group in report.groups if group.baseline is not None]
    for group in compared:
        diagnoses = [d for d in report.diagnoses if d.fast and d.fast.name == group.baseline]
        base = report.facts_of(group.baseline or "")
        per = "per step" if base.marked else "in the whole profile"
        yield Block(
            heading=group.conditions,
            baseline=f"Baseline: {base.label}, {milliseconds(base.step_ns)} ms {per}",
            cards=_cards(diagnoses),
            doubts=_doubts(diagnoses),
            times=times.get(f"times-{group.number}"),
        )
    alone = [diagnosis for diagnosis in report.diagnoses if diagnosis.fast is None]
    if alone:
        heading = "Runs without a comparable run" if compared else ""
        yield Block(heading, "", _cards(alone), _doubts(alone), None)


def _doubts(diagnoses: Sequence[Diagnosis]) -> tuple[str, ...]:
    texts = (
        f"{d.slow.label}: {text}" if d.fast is None else text
        for d in diagnoses
        for text in d.warnings
    )
    return tuple(dict.fromkeys(texts))


def _cards(diagnoses: Sequence[Diagnosis]) -> tuple[Card, ...]:
    return tuple(_card(d, is_open=n < MOST_OPEN) for n, d in enumerate(worst_first(diagnoses)))


def _card(diagnosis: Diagnosis, *, is_open: bool) -> Card:
    verdict, slow = diagnosis.verdict, diagnosis.slow
    names = diagnosis.kernel_names
    level: str = verdict.certainty
    badge = CERTAINTY_WORDS[verdict.certainty]
    if verdict.state == "none":
        level = "none"
        badge = "no difference" if diagnosis.outcome.equal else "difference within noise"
    alone = ", ".join(conditions_in_words(slow.info).values()) if diagnosis.fast is None else ""
    best = verdict.fixes[:1]
    return Card(
        subject=verdict.subject,
        place=", ".join(text for text in (lane_of(slow), alone) if text),
        step=verdict.step_ms,
        times=f"{verdict.times} as long as {verdict.baseline}" if verdict.baseline else "",
        level=level,
        badge=badge,
        lines=tuple(
            (label, with_short_names(text, names), gain) for label, text, gain in _lines(diagnosis)
        ),
        where=tuple(
            KindAmount(words, WHOLE if kind == "other" else part_of_kind(kind), amount)
            for kind, words, amount in largest_kinds(verdict)
            if verdict.state != "none" and not verdict.rough
        ),
        where_heading=where_heading(verdict),
        causes=tuple(
            Cause(
                cause.finding.words,
                with_short_names(cause.sentence, names),
                tuple(
                    (with_short_names(advice.text, names), advice.source)
                    for advice in cause.remedies
                    if advice not in best
                ),
            )
            for cause in diagnosis.shown
        ),
        notes=(
            *(("Recording", with_short_names(text, names)) for text in diagnosis.lacking),
            *(("Note", with_short_names(text, names)) for text in diagnosis.notes),
        ),
        is_open=is_open,
    )


def _lines(diagnosis: Diagnosis) -> Iterator[tuple[str, str, str]]:
    verdict = diagnosis.verdict
    if verdict.state == "none":
        yield "Same" if diagnosis.outcome.equal else "Unsure", f"both {verdict.words}", ""
        if verdict.cause:
            yield "Differ", verdict.cause, ""
        return
    yield "Why", verdict.why, ""
    yield from fix_lines(diagnosis)[:1]
    if verdict.reasons:
        yield "Doubt", listed(verdict.reasons), ""

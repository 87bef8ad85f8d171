"""Find what a profile lacks; users see this before any result of the profile.

::

    run.json and event counts of each rank (Recorded) ─ RULES, in order ─▶ Lack
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.breakdown.lacks.rules import RULES, WORDS, Recording, Rule
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.numbers import listed
from lstmprof.runs.metadata import RunInfo

#: ``Lack.kind`` of a note that the reader of the profile's file format wrote into run.json.
NOTE = "note"
#: Largest number of further ranks that ``first_of_ranks`` lists one by one.
_MOST_RANKS_SHOWN = 8


@dataclass(frozen=True)
class Lack:
    """Data that a profile lacks; ``sentence`` says what is missing, why, and what to do.

    ``kind`` is the name of the rule that found the lack, or ``NOTE``. ``share`` is the affected
    share of the time or of the events, 0–1; it is None if unknown. ``hides`` names the numbers that
    are unknown without this data; it is empty if numbers are only doubtful. ``blinds`` is True if
    nothing can be said about where the time goes. ``ranks`` are the affected ranks of a run with
    several ranks; ``sentence`` is about the first of them.
    """

    kind: str
    sentence: str
    share: float | None = None
    hides: str = ""
    blinds: bool = False
    ranks: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Return the name of the lack for people; ``kind`` is for JSON and code."""
        return WORDS.get(self.kind, self.kind)

    def to_dict(self) -> dict[str, Any]:
        """Return this lack as a dictionary with the fields of the JSON output.

        Unknown values are None.
        """
        return {**asdict(self), "ranks": list(self.ranks)}


def lacks_of(
    info: RunInfo, recorded: Sequence[Recorded], rank: int | None = None
) -> tuple[Lack, ...]:
    """Return what the profile of a run lacks, worst first, then the notes of the profile's reader.

    ``recorded`` has one entry per rank. If ``rank`` is given, only lacks of this rank are returned.
    If several ranks lack the same data, the sentence is about the rank with the largest affected
    share.
    """
    recordings = [Recording(has, info, len(recorded)) for has in recorded]
    chosen = [r for r in recordings if rank is None or r.has.rank == rank]
    lacks = (_lack(rule, chosen, len(chosen) > 1) for rule in RULES)
    return (*(lack for lack in lacks if lack), *(Lack(NOTE, note) for note in info.notes))


def _lack(rule: Rule, chosen: Sequence[Recording], several: bool) -> Lack | None:
    lacking = [recording for recording in chosen if rule.holds(recording)]
    if not lacking:
        return None
    lacking.sort(key=lambda recording: -(rule.share(recording) or 0.0))
    sentence, share = rule.sentence(lacking[0]), rule.share(lacking[0])
    ranks: tuple[int, ...] = ()
    if several and not rule.of_run:
        ranks = tuple(r.has.rank for r in lacking if r.has.rank is not None)
        sentence = first_of_ranks(ranks) + sentence if ranks else sentence
    return Lack(rule.kind, sentence, share, rule.hides, rule.blinds, ranks)


def first_of_ranks(ranks: Sequence[int]) -> str:
    """Return the start of a sentence about ``ranks``: "rank 3 (likewise 0, 1 and 5 more): "."""
    others = [str(rank) for rank in sorted({*ranks} - {ranks[0]})]
    if len(others) > _MOST_RANKS_SHOWN:
        others = [*others[:_MOST_RANKS_SHOWN], f"{len(others) - _MOST_RANKS_SHOWN:,} more"]
    return f"rank {ranks[0]}{f' (likewise {listed(others)})' if others else ''}: "

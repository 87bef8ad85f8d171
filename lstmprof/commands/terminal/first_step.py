"""A first answer of a big profile while the rest of it is read: on stderr, and marked as such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lstmprof.commands import options, terminal
from lstmprof.errors import LstmprofError
from lstmprof.numbers import file_size, milliseconds

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown
    from lstmprof.breakdown.first_step import FirstStep
    from lstmprof.breakdown.mean_step import MeanStep

#: A smaller profile is read whole in about three seconds.
LEAST_BYTES = 2**28
#: Lanes whose parts are told.
_LANES_EACH = 2


class FirstAnswers:
    """What was said of profiles of ``least_bytes`` and more before they were read."""

    def __init__(self, least_bytes: int = LEAST_BYTES) -> None:
        self._least_bytes = least_bytes
        self._told: dict[str, FirstStep] = {}

    def tell(self, path: Path, name: str) -> None:
        """Say where the first step of the profile at ``path`` goes, if it can be read by itself.

        Its run will be ``name``. A fault here is told, and is none of reading the profile.
        """
        # a stored run needs no readers of profiles, which are much to import
        from lstmprof.breakdown.first_step import first_step
        from lstmprof.runs.border import border

        try:
            with border(path):
                first = first_step(path, self._least_bytes)
        except LstmprofError as fault:
            options.say(f"cannot show the first step early: {fault}")
            return
        if first:
            self._told[name] = first
            for line in lines(name, first):
                options.say(line)

    def check(self, breakdowns: Sequence[Breakdown]) -> None:
        """Say of which of ``breakdowns``, of whole profiles, the first answer does not hold."""
        if not self._told:
            return
        from lstmprof.breakdown.first_step import holds

        for breakdown in breakdowns:
            first = self._told.get(breakdown.run.name)
            if first and not holds(first, breakdown.ledger, breakdown.windows):
                options.say(
                    f"{breakdown.run.name}: the first step was wrong above: the whole file gives"
                    " other times for it (see --table ledger)"
                )


def lines(name: str, first: FirstStep) -> list[str]:
    """What is said of the ``first`` step of the run ``name``."""
    share = f"{first.read_bytes / first.file_bytes:.1%}".replace("%", " %")
    said = [
        f"{name}: the first step ({first.name}), from the first {share} of the"
        f" {file_size(first.file_bytes)} file; the breakdown of all steps follows"
    ]
    for lane in first.lanes[:_LANES_EACH]:
        said += _lane_lines(lane, first.device_names.get(lane.device or 0))
    more = first.lanes[_LANES_EACH:]
    return [*said, f"  and {len(more)} more devices"] if more else said


def _lane_lines(lane: MeanStep, device_name: str | None) -> list[str]:
    from lstmprof.breakdown.mean_step import lane_words

    named = f" ({device_name})" if device_name and lane.device is not None else ""
    milli = terminal.parts_that_add_up([ns / 1e6 for _, _, ns in lane.parts], lane.mean_ns / 1e6, 3)
    share = terminal.parts_that_add_up(
        [100 * ns / lane.total_ns for _, _, ns in lane.parts], 100.0, 1
    )
    widest = max(len(part) for _, part, _ in lane.parts)
    longest = max(map(len, milli))
    return [
        f"  {lane_words(lane.rank, lane.device)}{named}: {milliseconds(lane.mean_ns, 3)} ms",
        *(
            f"    {state}  {part:{widest}}  {ms:>{longest}} ms  {part_share:>5} %"
            for (state, part, _), ms, part_share in zip(lane.parts, milli, share, strict=True)
        ),
    ]

"""What a step would be shorter by without one kind of its time.

Of waiting it is all that was waited. Of casts and copies on a device it is what a replay of the
step without them says: a device that waits for its host anyway gains little. One whose host need
not launch them gains more than their time, but at most that and the idle time of the step. Of other
work whose least time is known (``roofline``) it is what is above that, of the rest all its time:
more than that cannot be saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.lacks.rules import NO_HOST, NO_LAUNCHES
from lstmprof.breakdown.replay import CHANGES, what_if
from lstmprof.diagnose import causes
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.step_profile import (
    Contributor,
    StepProfile,
    total_ns,
)

#: How a saving was computed: from the difference of two runs; as all the time of the kind; as the
#: time above the least time of the work; by a replay of the step.
DIFFERENCE, TAKEN, ROOFLINE, REPLAY = "difference", "time taken", "roofline", "replay"

#: Kind → the change that replays a step without it.
_REPLAYED = {causes.CAST: "casts", causes.COPY: "copies"}
#: Kinds with a smaller share of a step are not replayed.
_LEAST_SHARE = 0.05
#: If a replay misses the measured step by more than this share, it is reported but not used.
REPLAY_ERROR = 0.05
#: Steps with more events are not replayed by default, because this takes 3 s on an EPYC.
_MOST_EVENTS = 200_000


@dataclass(frozen=True)
class Saving:
    """How much shorter a step would be, in ns, and how that was computed (``by``)."""

    ns: int
    by: str


def savings(
    breakdown: Breakdown, profile: StepProfile, limit: Roofline | None
) -> dict[str, Saving]:
    """Return the saving of each kind for which it is not all its time.

    Raises:
        RunError: a file of the run is missing or damaged.
    """
    kinds = causes.by_kind(profile, causes.comparison_of(profile))
    by_time = {kind: of_kind(some, limit) for kind, some in kinds.items()}
    known = {kind: saving for kind, saving in by_time.items() if saving.by != TAKEN}
    return known | dict(_replayed(breakdown, profile, kinds))


def of_kind(contributors: Iterable[Contributor], limit: Roofline | None) -> Saving:
    """Return the saving of ``contributors``: their time, or the part above its known least time."""
    rows = list(contributors)
    shares = _reached(limit)
    least = round(sum(c.ns * shares.get(c.part, 0.0) for c in rows if c.state == "busy"))
    return Saving(total_ns(rows) - least, ROOFLINE if least else TAKEN)


def _reached(limit: Roofline | None) -> dict[str, float]:
    """Return for each category the least time of its work divided by its busy time, at most 1."""
    return {
        category: min(reach.share, 1.0)
        for reach in (limit.reaches if limit else ())
        if reach.share is not None
        for category in reach.categories
    }


def _replayed(
    breakdown: Breakdown, profile: StepProfile, kinds: dict[str, list[Contributor]]
) -> Iterator[tuple[str, Saving]]:
    """Yield the replayed savings of kinds of device work that take a good share of the step.

    Without launches a replay does not know what waits for what, so its saving would be 0.
    """
    least = _LEAST_SHARE * profile.length_ns
    asked = [kind for kind in _REPLAYED if total_ns(kinds[kind]) >= least]
    unlinked = any(lack.kind in (NO_HOST, NO_LAUNCHES) for lack in profile.lacks)
    if profile.device is None or not asked or unlinked:
        return
    events = len(breakdown.run.packed(("dur_ns",)))
    if events > _MOST_EVENTS * len(breakdown.windows):
        return
    changes = [CHANGES[_REPLAYED[kind]] for kind in asked]
    for kind, prediction in zip(asked, what_if(breakdown, profile.place, changes), strict=True):
        off = abs(prediction.replayed_ns - prediction.observed_ns)
        if prediction.replayed_ns and off <= REPLAY_ERROR * prediction.observed_ns:
            share = prediction.saved_ns / prediction.replayed_ns
            most_ns = total_ns(kinds[kind]) + profile.length_ns - profile.busy_ns
            saved_ns = min(max(round(share * profile.length_ns), 0), most_ns)
            yield kind, Saving(saved_ns, REPLAY)

"""How much shorter a step would be without one kind of time, such as casts.

``Saving(1_200_000, REPLAY)``: a replay of the step without the casts is 1.2 ms shorter.
``ROOFLINE``: the saving is the time above the least time that the device needs for the work.
``TAKEN``: the saving is the whole time, which is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.lacks import NO_HOST, NO_LAUNCHES
from lstmprof.breakdown.replay import what_if
from lstmprof.breakdown.replay.changes import without_casts, without_copying
from lstmprof.diagnose.findings import causes
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.step_profile import StepProfile, total_ns
from lstmprof.diagnose.step_profile.contributors import Contributor

#: Names of the ways to compute a saving (``Saving.by``).
DIFFERENCE, TAKEN, ROOFLINE, REPLAY = "difference", "time taken", "roofline", "replay"

#: Kind of time → the replay's change that removes this time.
_REPLAYED = {causes.CAST: without_casts, causes.COPY: without_copying}
#: Smallest share of the step at which a kind of time is replayed.
_LEAST_SHARE = 0.05
#: Largest error of a trusted replay of the unchanged step, as a share of the step.
REPLAY_ERROR = 0.05
#: Largest number of events of a step for a replay, which then takes 3 s on an EPYC.
_MOST_EVENTS = 200_000


@dataclass(frozen=True)
class Saving:
    """The time by which a step would be shorter."""

    ns: int
    by: str  # method, such as REPLAY


def savings(
    breakdown: Breakdown, profile: StepProfile, limit: Roofline | None
) -> dict[str, Saving]:
    """Return the savings that differ from the whole time, by kind of time."""
    kinds = causes.by_kind(profile)
    by_time = {kind: saving_of(some, limit) for kind, some in kinds.items()}
    partial = {kind: saving for kind, saving in by_time.items() if saving.by != TAKEN}
    return partial | dict(_replayed(breakdown, profile, kinds))


def saving_of(contributors: Iterable[Contributor], limit: Roofline | None) -> Saving:
    """Return the time of work above the roofline's least time, else the whole time."""
    rows = list(contributors)
    shares = {
        category: min(reach.share, 1.0)
        for reach in (limit.reaches if limit else ())
        if reach.share is not None
        for category in reach.categories
    }
    least = round(sum(c.ns * shares.get(c.part, 0.0) for c in rows if c.state == "busy"))
    return Saving(total_ns(rows) - least, ROOFLINE if least else TAKEN)


def _replayed(
    breakdown: Breakdown, profile: StepProfile, kinds: dict[str, list[Contributor]]
) -> Iterator[tuple[str, Saving]]:
    """Replay the step without casts or without copies, and yield each saving."""
    least = _LEAST_SHARE * profile.length_ns
    replayed_kinds = [kind for kind in _REPLAYED if total_ns(kinds[kind]) >= least]
    # do not replay without launches, because the profile does not show what waits for what
    unlinked = any(lack.kind in (NO_HOST, NO_LAUNCHES) for lack in profile.lacks)
    if profile.device is None or not replayed_kinds or unlinked:
        return
    events = len(breakdown.run.packed(("dur_ns",)))
    if events > _MOST_EVENTS * len(breakdown.windows):
        return
    changes = [_REPLAYED[kind] for kind in replayed_kinds]
    for kind, prediction in zip(
        replayed_kinds, what_if(breakdown, profile.rank_device, changes), strict=True
    ):
        off = abs(prediction.replayed_ns - prediction.observed_ns)
        if prediction.replayed_ns and off <= REPLAY_ERROR * prediction.observed_ns:
            share = prediction.saved_ns / prediction.replayed_ns
            # idle time can shrink, too, because the launches of casts or copies vanish
            most_ns = total_ns(kinds[kind]) + profile.length_ns - profile.busy_ns
            saved_ns = min(max(round(share * profile.length_ns), 0), most_ns)
            yield kind, Saving(saved_ns, REPLAY)

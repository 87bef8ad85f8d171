"""How much shorter a step would be without one kind of its time.

For casts and copies on a device, a replay of the step without them computes the saving. The saving
is small if the device waits for its host in any case. It may exceed the time of the casts and
copies, because the host does not launch them in the replay. It is at most this time plus the idle
time of the step. If the host reads a copy, the replay keeps the wait for the copied data. For work
with a known least time (``roofline``), the saving is the time above the least time. For waits and
all other work, the saving is the whole time of the kind, which is an upper bound.
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

#: How a saving was computed. ``DIFFERENCE``: the difference between two runs. ``TAKEN``: all the
#: time of this kind. ``ROOFLINE``: the time above the least time in which the device can do the
#: work. ``REPLAY``: by a replay of the step without this kind of time.
DIFFERENCE, TAKEN, ROOFLINE, REPLAY = "difference", "time taken", "roofline", "replay"

#: Kind of time → the replay's change that removes this time.
_REPLAYED = {causes.CAST: without_casts, causes.COPY: without_copying}
#: Kinds of time with a smaller share of a step than this are not replayed.
_LEAST_SHARE = 0.05
#: If the replay of the unchanged step differs from the measured step by more than this share,
#: replays decide no saving, and predictions by replay are shown with a doubt.
REPLAY_ERROR = 0.05
#: Steps with more events are not replayed by default, because this takes 3 s on an EPYC.
_MOST_EVENTS = 200_000


@dataclass(frozen=True)
class Saving:
    """How much shorter a step would be, in ns; ``by`` says how it was computed, e.g. ``REPLAY``."""

    ns: int
    by: str


def savings(
    breakdown: Breakdown, profile: StepProfile, limit: Roofline | None
) -> dict[str, Saving]:
    """Return kind -> saving, for kinds whose saving is not simply all of their time.

    Raises:
        RunError: a file of the run is missing or damaged.
    """
    kinds = causes.by_kind(profile)
    by_time = {kind: saving_of(some, limit) for kind, some in kinds.items()}
    partial = {kind: saving for kind, saving in by_time.items() if saving.by != TAKEN}
    return partial | dict(_replayed(breakdown, profile, kinds))


def saving_of(contributors: Iterable[Contributor], limit: Roofline | None) -> Saving:
    """Return the saving if ``contributors`` took only their least time, which is 0 if unknown."""
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
    """Yield (kind, replayed saving) for casts and copies that take ``_LEAST_SHARE`` of the step.

    Yield nothing if the profile has no launches, because then a replay does not know which work
    waits for which. Yield nothing if the replay of the unchanged step differs from the measured
    step by more than ``REPLAY_ERROR``.
    """
    least = _LEAST_SHARE * profile.length_ns
    replayed_kinds = [kind for kind in _REPLAYED if total_ns(kinds[kind]) >= least]
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
            most_ns = total_ns(kinds[kind]) + profile.length_ns - profile.busy_ns
            saved_ns = min(max(round(share * profile.length_ns), 0), most_ns)
            yield kind, Saving(saved_ns, REPLAY)

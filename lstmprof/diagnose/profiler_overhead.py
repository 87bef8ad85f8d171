"""From the profiled steps to the undisturbed ones: what of each contributor is the profiler's.

A profiler takes its time for an event around it: before it notes the begin and after it notes the
end (calls of ``.item()`` by torch.profiler: 0.34 µs of it before the outer op, 0.27 in the outer op
around the inner one, 0.03 in that). What the profiled steps of a run are longer by is shared by the
events, and each contributor gives up its events' share (``Contributor.recorded``), as far as an
event can cost that much and the contributor has it. On a device these are the waits for the host.
What the profiled steps differ by beyond that is of kind ``profiler``: so all kinds still sum to the
undisturbed steps. Where the profiled steps differ by more than the undisturbed ones, what was done
as often in both and took longer in one is the first to be doubted: it is taken off, up to what
there is too much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from lstmprof.diagnose.causes import PROFILER
from lstmprof.diagnose.step_profile import Contributor, StepProfile, by_name, total_ns

#: Of recording one event on a host, where no run shows it. Measured on an EPYC (torch 2.13,
#: torch.profiler): 20,000 calls of ``.item()``, two ops each, take 2.5 ms undisturbed and 9.7 ms
#: profiled, in a loop that does nothing else.
RECORDING_NS = 180
#: Profiler → the same where it takes less. Measured on that EPYC: a jitted product of one element
#: takes 3.2 µs undisturbed and 4.8 µs profiled, 14 events (jax 0.10); an eager one in TensorFlow
#: 5.2 µs and 5.7 µs, 8 events (2.21).
QUICK_RECORDING_NS = {"jax.profiler": 119, "tf.profiler": 69}
#: No event costs more; what a profiled step is longer by beyond that is something else. CPU time of
#: steps of five implementations, profiled and not in turn, on that EPYC beside five other processes
#: (which slowed the steps themselves 2.6 times): 1.6 to 2.3 µs an event by torch.profiler, 1.5 to
#: 2.0 by jax.profiler, 3.0 to 3.1 by tf.profiler.
MOST_RECORDING_NS = 3_000
#: A run with so much of its events more than another shows what these alone cost: of ops and casts
#: planted in torch-cudnn on a loaded EPYC 1.0 and 0.6 µs an event, the runs alone 1.5 to 3.9.
MANY_MORE = 0.5
#: Calls in one step against the other: closer than this, an op is called as often.
AS_OFTEN = 0.1

Kinds = Mapping[str, list[Contributor]]


def unrecorded(profile: StepProfile, *others: StepProfile) -> StepProfile:
    """``profile``, of which recording took none of the time.

    It was timed. No contributor has more than the undisturbed step.
    """
    each_ns = recording_ns(profile, *others)
    return replace(
        profile,
        contributors=tuple(
            replace(c, ns=min(c.ns - recording(c, each_ns), profile.length_ns))
            for c in profile.contributors
        ),
    )


def spent(
    fast: StepProfile, slow: StepProfile, of_fast: Kinds, of_slow: Kinds
) -> tuple[Counter[str], ...]:
    """(fast, slow) kind → ns of the undisturbed steps; both were timed.

    ``of_fast`` and ``of_slow`` are the contributors of both ``unrecorded``.
    """
    fast_ns, fast_rest = _settled(fast, of_fast)
    slow_ns, slow_rest = _settled(slow, of_slow)
    for kind, ns in _doubted(slow_rest - fast_rest, of_fast, of_slow).items():
        slow_ns[kind] -= ns
        slow_ns[PROFILER] += ns
    return fast_ns, slow_ns


def spent_alone(profile: StepProfile, contributors: Kinds) -> Counter[str]:
    """Kind → ns of the undisturbed step of a run that was timed; as ``spent``."""
    return _settled(profile, contributors)[0]


def _settled(profile: StepProfile, contributors: Kinds) -> tuple[Counter[str], int]:
    """Kind → ns; and what the undisturbed step has over these."""
    kinds_ns = Counter({kind: total_ns(some) for kind, some in contributors.items()})
    rest = profile.length_ns - kinds_ns.total()
    kinds_ns[PROFILER] += rest
    return kinds_ns, rest


def recording_ns(profile: StepProfile, *others: StepProfile) -> float:
    """Nanoseconds of recording one event of ``profile``, as it and ``others`` show it.

    What the profiled steps of a run are longer by, shared by their events, holds the recording and
    whatever else the profile or another process disturbed: a bound from above, and the least of
    several runs counts. In what a run with many more events is longer by than another, shared by
    those more events, the rest cancels. A run whose profiled steps are no longer was disturbed
    while it was timed, and shows nothing; where none does it is what was measured of the profiler
    alone.
    """
    usual_ns = QUICK_RECORDING_NS.get(str(profile.info.profiler), RECORDING_NS)
    usual_ns = usual_ns if profile.device is None else 0
    own = _inflation(profile)
    shown = [own, *map(_inflation, others)]
    each = [ns / events for ns, events in shown if ns > 0 and events]
    if not each:
        return usual_ns
    for ns, events in shown[1:]:
        more = own[1] - events
        if own[0] > 0 and ns > 0 and abs(more) >= MANY_MORE * max(own[1], events):
            marginal_ns = (own[0] - ns) / more
            each.append(marginal_ns if marginal_ns > 0 else usual_ns)
    return min(MOST_RECORDING_NS, *each)


def _inflation(profile: StepProfile) -> tuple[float, float]:
    """(what the mean profiled step is longer by than an undisturbed one, its events)."""
    events = sum(contributor.recorded for contributor in profile.contributors)
    return profile.profiled_ns - profile.length_ns, events


def recording(contributor: Contributor, each_ns: float) -> int:
    """Nanoseconds of ``contributor`` in which events were recorded, each for ``each_ns``."""
    return min(int(contributor.recorded * each_ns), contributor.ns)


def _doubted(rest_ns: int, of_fast: Kinds, of_slow: Kinds) -> dict[str, int]:
    """Kind → ns of what was done as often, of the other sign than ``rest_ns`` and no more."""
    changed = {kind: _unchanged_work(of_fast[kind], of_slow[kind]) for kind in of_slow}
    against = {kind: ns for kind, ns in changed.items() if ns * rest_ns < 0}
    left, doubted = -rest_ns, {}
    for kind, ns in sorted(against.items(), key=lambda pair: -abs(pair[1])):
        doubted[kind] = min(ns, left, key=abs)
        left -= doubted[kind]
    return doubted


def _unchanged_work(fast: list[Contributor], slow: list[Contributor]) -> int:
    """What work that both steps do as often takes longer in the slow one."""
    of_fast, of_slow = (
        by_name(c for c in some if c.state == "busy" and not c.tiny) for some in (fast, slow)
    )
    pairs = [(of_fast[name], of_slow[name]) for name in of_fast.keys() & of_slow.keys()]
    return sum(
        slow_ns - fast_ns
        for (fast_ns, fast_calls), (slow_ns, slow_calls) in pairs
        if abs(slow_calls - fast_calls) <= AS_OFTEN * fast_calls
    )

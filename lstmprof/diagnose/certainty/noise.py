"""Up to which difference two runs cannot be told apart, and why.

That is where the 95 % intervals of their steps touch (``breakdown/rounds.py``); of runs whose
rounds took turns it is by the ratios of turns side by side. Runs that took no turns are compared as
far as their machine was the same: by as much as the yardsticks of the slower run took longer
(``yardsticks``), and these may be off themselves. Of runs without yardsticks that were captured
apart each is as uncertain as one process on a busy machine.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from datetime import datetime

from lstmprof.breakdown import yardsticks
from lstmprof.breakdown.doubts import between_processes
from lstmprof.breakdown.rounds import (
    BUSY_BETWEEN_PROCESSES,
    CLUSTERS,
    Z95,
    error_of,
    error_of_pairs,
    error_within,
    ratios_of_pairs,
    round_of,
)
from lstmprof.diagnose.findings import lengths, timed
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.events.annotate import OWN_CODE
from lstmprof.numbers import milliseconds, percent

#: A program of one's own is one process and takes no turns.
_AS_IMPLEMENTATIONS = (
    "run both again on a quieter machine, or capture both networks (--impl FILE:build), which "
    "takes rounds in turn"
)
#: A smaller difference between two steps is none.
EQUAL_SHARE = 0.02
#: Runs that do not take turns and start so many seconds after each other were captured apart: the
#: machine may have changed its speed. Of sixteen such pairs of identical code, three rounds each,
#: on a machine with no other work, eight differed beyond their intervals, by up to 1.65×.
APART_S = 60.0


def difference_ns(fast: StepProfile, slow: StepProfile) -> int:
    """By how much the steps' ``lengths`` differ."""
    ends = lengths(fast, slow)
    return ends[1] - ends[0]


def noise_ns(fast: StepProfile, slow: StepProfile) -> float:
    """The difference of the steps up to which they cannot be told apart."""
    return lengths(fast, slow)[1] * -math.expm1(-noise_log(fast, slow))


def noise_of_kind_ns(fast: StepProfile, slow: StepProfile, longer_ns: float) -> float:
    """The same of the times of one kind, the longer of which is ``longer_ns``.

    Where the rounds took turns it is the speed of the machine that is not known, which changes each
    kind by as much of its own time.
    """
    if not in_turn(fast, slow):
        return noise_ns(fast, slow)
    return longer_ns * -math.expm1(-noise_log(fast, slow))


def noise_log(fast: StepProfile, slow: StepProfile) -> float:
    """Up to which logarithm of the steps' ratio they cannot be told apart."""
    if timed(fast, slow) and one_process(fast, slow):
        return sum(error_within(profile.rounds) or 0.0 for profile in (fast, slow))
    paired = error_of_pairs(fast.rounds, slow.rounds) if in_turn(fast, slow) else None
    if timed(fast, slow) and paired is not None:
        return paired + _off_pairs(fast, slow)
    machine = machine_speed(fast, slow)
    own = max(_by_rounds(fast, slow), _by_chance_of_speed(fast, slow))
    return own if machine is None else max(machine.log, 0.0) + math.hypot(own, machine.error)


def _by_rounds(fast: StepProfile, slow: StepProfile) -> float:
    """How far their intervals reach towards each other, in logarithms."""
    machine = machine_speed(fast, slow)
    least = Z95 * BUSY_BETWEEN_PROCESSES if machine is None and _apart(fast, slow) else 0.0
    both = timed(fast, slow)
    ends = error_of_step(fast, both, upper=True), error_of_step(slow, both, upper=False)
    return sum(max(end, least) for end in ends)


def _by_chance_of_speed(fast: StepProfile, slow: StepProfile) -> float:
    """How far two runs of few rounds may be apart where each round had one of two speeds by chance.

    0 where no yardstick saw two. Rounds that happen to agree had the same one: they tell nothing of
    the other.
    """
    if not timed(fast, slow) or in_turn(fast, slow):
        return 0.0
    seen = yardsticks.range_of(fast.info, slow.info)
    if seen is None or seen <= math.log1p(yardsticks.STEADY_SHARE):
        return 0.0
    rounds = [max(len(profile.rounds), 1) for profile in (fast, slow)]
    return math.hypot(*(Z95 * seen / 2 / math.sqrt(number) for number in rounds))


def speeds_apart(fast: StepProfile, slow: StepProfile) -> float | None:
    """How many times as long ``slow`` may take for the machine's speeds alone, in logarithms.

    Of all speeds that yardsticks or iterations of either run saw ``slow`` had the least throughout
    and ``fast`` the highest; and the processes differ as is usual. None where no yardstick tells.
    """
    if not timed(fast, slow) or one_process(fast, slow) or in_turn(fast, slow):
        return None
    seen = yardsticks.range_of(fast.info, slow.info)
    ranges = [_range_of_iterations(profile) for profile in (fast, slow)]
    if seen is None or None in ranges:
        return None
    usual = [
        Z95 * between_processes(profile.info) / math.sqrt(len(profile.rounds))
        for profile in (fast, slow)
    ]
    return max(seen, *(r for r in ranges if r is not None)) + math.hypot(*usual)


def _range_of_iterations(profile: StepProfile) -> float | None:
    """The same of the iterations of one run, but for the few shortest and longest."""
    ends = [r.ends_ns for r in profile.rounds if r.ends_ns is not None]
    if not ends or len(ends) < len(profile.rounds) or min(low for low, _ in ends) <= 0:
        return None
    return math.log(max(high for _, high in ends) / min(low for low, _ in ends))


def took_turns(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether the workers of both took turns at every iteration."""
    names = {fast.info.name, slow.info.name}
    return in_turn(fast, slow) and names <= set(fast.info.turn_with or ())


def machine_speed(fast: StepProfile, slow: StepProfile) -> yardsticks.Speed | None:
    """How much slower the machine was for ``slow``; None unknown, or where both had the same."""
    if not timed(fast, slow) or one_process(fast, slow) or in_turn(fast, slow):
        return None
    return yardsticks.speed(fast.info, slow.info)


def machine_words(fast: StepProfile, slow: StepProfile) -> str:
    """That the machine was slower or faster for ``slow``, and whether the rest can be told.

    Empty where it was the same as far as is known.
    """
    words = machine_was(fast, slow)
    speed = machine_speed(fast, slow)
    if not words or speed is None or speed.log < 0:
        return words
    ends = lengths(fast, slow)
    rest = math.log(ends[1] / ends[0]) - noise_log(fast, slow) if ends[0] > 0 else math.inf
    unknown = "and whether the rest is the code's cannot be told"
    return f"{words}, {'which does not explain the rest' if rest > 0 else unknown}"


def machine_was(fast: StepProfile, slow: StepProfile) -> str:
    """That the machine was slower or faster for ``slow``; empty where it was the same."""
    speed = machine_speed(fast, slow)
    if speed is None or abs(speed.log) <= max(speed.error, math.log1p(yardsticks.STEADY_SHARE)):
        return ""
    times = f"{math.exp(abs(speed.log)):.1f}× {'faster' if speed.log < 0 else 'slower'}"
    return f"the machine itself was {times} when {labels(fast, slow)[1]} ran ({speed.sentence})"


def error_of_step(profile: StepProfile, timed: bool, *, upper: bool) -> float:
    """How far a step may be from one end of its interval, in logarithms; 0 unknown."""
    interval_ns = profile.interval_ns
    if timed and interval_ns is not None and profile.step_ns and interval_ns[0] > 0:
        return abs(math.log(interval_ns[upper] / profile.step_ns))
    profiled = (round_of(profile.steps_ns),) if profile.steps_ns else ()
    rounds = profile.rounds if timed else profiled
    return error_of(rounds, between_processes(profile.info)) or 0.0


def _starts(profile: StepProfile) -> tuple[str, ...]:
    info = profile.info
    return tuple(info.rounds or ()) or ((info.started_at,) if info.started_at else ())


def _processes(fast: StepProfile, slow: StepProfile) -> str:
    """``one process``, ``2 processes``: how many made each, at least."""
    least = min(len(_starts(profile)) for profile in (fast, slow))
    return "one process" if least < 2 else f"{least} processes"


def one_process(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether one process timed both in turn."""
    return bool(_starts(fast)) and _starts(fast) == _starts(slow)


def in_turn(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether the rounds of both took turns: each of one before the next of the other."""
    starts = [_starts(fast), _starts(slow)]
    if len(starts[0]) != len(starts[1]) or len(starts[0]) < CLUSTERS:
        return False
    both = list(zip(*starts, strict=True))
    return all(max(one) < min(after) for one, after in itertools.pairwise(both))


def _off_pairs(fast: StepProfile, slow: StepProfile) -> float:
    """How far the rounds' mean ratio is from that of the steps, in logarithms."""
    ends = lengths(fast, slow)
    ratios = ratios_of_pairs(fast.rounds, slow.rounds) or [0.0]
    return abs(statistics.fmean(ratios) - math.log(ends[1] / ends[0]))


def _apart(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether one was captured, all rounds of it, and long after that the other."""
    first, second = sorted(_starts(profile) for profile in (fast, slow))
    if not first or not second or max(first) >= min(second):
        return False
    gap = datetime.fromisoformat(min(second)) - datetime.fromisoformat(max(first))
    return gap.total_seconds() > APART_S


def lengths_in_words(fast: StepProfile, slow: StepProfile, joint: str) -> str:
    """``36.6 against 18.3 ms a step``; of a profile without step markers that it is the whole."""
    fast_ms, slow_ms = map(milliseconds, lengths(fast, slow))
    if timed(fast, slow):
        return f"{slow_ms} {joint} {fast_ms} ms a step"
    here, there = (
        "a profiled step" if profile.marked else "in the whole profile" for profile in (slow, fast)
    )
    if here == there:
        return f"{slow_ms} {joint} {fast_ms} ms {here}"
    return f"{slow_ms} ms {here} {joint} {fast_ms} ms {there}"


@dataclass(frozen=True)
class Sameness:
    """Why no difference of two runs can be told, and what would tell it; empty if nothing would.

    ``times`` are both lengths, ``why`` what follows them in the ``reason``.
    """

    times: str
    why: str
    advice: str = ""

    @property
    def reason(self) -> str:
        """Both lengths, and why they are not told apart."""
        return f"{self.times}, {self.why}"


def sameness(fast: StepProfile, slow: StepProfile) -> Sameness | None:
    """Why no difference can be told, with both lengths; None where it can."""
    ends = lengths(fast, slow)
    times = lengths_in_words(fast, slow, "and")
    if ends[1] <= ends[0] * (1 + EQUAL_SHARE):
        return Sameness(times, f"less than {percent(EQUAL_SHARE)} apart")
    if ends[0] <= 0 or math.log(ends[1] / ends[0]) > noise_log(fast, slow):
        return None
    advice = narrower(fast, slow)
    machine = machine_words(fast, slow)
    if machine:
        return Sameness(times, f"and {machine}", advice)
    if machine_speed(fast, slow) is None and _apart(fast, slow):
        return Sameness(
            times,
            "captured more than a minute apart, and a machine may change its speed by as much in "
            "that time",
            advice,
        )
    if not timed(fast, slow) or fast.interval_ns is None or slow.interval_ns is None:
        return Sameness(
            times,
            f"{_processes(fast, slow)} each, and processes of the same code may differ by as much",
            advice,
        )
    if in_turn(fast, slow):
        error = percent(math.expm1(noise_log(fast, slow)))
        why = f"and by chance rounds side by side may be {error} apart here"
        return Sameness(times, why, advice)
    if _by_chance_of_speed(fast, slow) > _by_rounds(fast, slow):
        seen = math.exp(yardsticks.range_of(fast.info, slow.info) or 0.0)
        why = f"and the machine itself was up to {seen:.1f}× slower from one reading to another"
        return Sameness(times, why, advice)
    why = f"95 % intervals {_interval(slow)} and {_interval(fast)} ms"
    return Sameness(times, why, advice)


def narrower(fast: StepProfile, slow: StepProfile) -> str:
    """What would let a smaller difference be told."""
    first = before_more_rounds(fast, slow)
    return first or "more --rounds on a quieter machine would narrow them"


def before_more_rounds(fast: StepProfile, slow: StepProfile) -> str:
    """What to do before more rounds would tell more; empty where they are what is wanted."""
    if OWN_CODE in (fast.info.source, slow.info.source):
        return _AS_IMPLEMENTATIONS
    if machine_words(fast, slow):
        return "capture both by one command, so that they take turns"
    if machine_speed(fast, slow) is None and _apart(fast, slow):
        return "capture both by one command with --rounds 3, or without a pause"
    if not timed(fast, slow) or fast.interval_ns is None or slow.interval_ns is None:
        return "capture both with --rounds 3"
    if min(len(fast.rounds), len(slow.rounds)) < CLUSTERS:
        return f"capture both with --rounds {CLUSTERS}, which shows how far processes differ"
    return ""


def _interval(profile: StepProfile) -> str:
    low, high = profile.interval_ns or (None, None)
    return f"{milliseconds(low)}–{milliseconds(high)}"

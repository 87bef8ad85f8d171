"""Check whether new runs are slower than base runs (``lstmprof compare --fail-if``).

::

    base runs, new runs ── pairs ─┐
    'slower > 3 %' ────── limits ─┴─ verdict ─▶ pass · fail · inconclusive

A limit is exceeded if the whole 95 % interval of the measured value (``certainty.pair``) is above
the limit, and kept if the whole interval is below the limit. Otherwise the result is inconclusive.
The worst verdict on a pair of runs decides.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lstmprof.base import names
from lstmprof.base.errors import UsageError
from lstmprof.base.numbers import count, listed, milliseconds, number_of
from lstmprof.diagnose import diagnosis
from lstmprof.diagnose.certainty.pair import Ratio, ratio_of, span_of
from lstmprof.diagnose.comparable import refuse_unless_comparable
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate import OWN_CODE
from lstmprof.runs.metadata import condition

Word = Literal["slower", "faster", "step"]
State = Literal["pass", "fail", "inconclusive"]

#: Version of the JSON document. docs/compare_document.py describes the fields.
VERSION = 2
#: Exit status of ``lstmprof compare``. In all commands, 1, 2 and 128 + signal mean errors.
EXIT_STATUS: dict[State, int] = {"pass": 0, "fail": 3, "inconclusive": 4}
#: States of rules, the worst state first.
_GRAVEST: tuple[State, ...] = ("fail", "inconclusive", "pass")
#: Largest number of rounds that lstmprof advises. For more, lstmprof advises another limit.
MOST_ROUNDS = 100
#: Advised iterations per round if the run does not record its own number.
_USUAL_ITERATIONS = 10
_SHAPE = re.compile(r"(?i)\s*(slower|faster|step)\s*>\s*(\d{1,9}(?:\.\d{1,9})?)\s*(\S+)\s*")
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_EXAMPLE = "write 'slower > 3 %', 'faster > 20 %' or 'step > 12 ms', joined by 'or'"


@dataclass(frozen=True)
class Limit:
    """A limit of ``--fail-if``, such as ``slower > 3 %``."""

    word: Word
    most: float  # ns for ``step``, else a share, such as 0.03
    text: str

    @property
    def unit(self) -> Literal["share", "ns"]:
        return "ns" if self.word == "step" else "share"


def limits(text: str) -> tuple[Limit, ...]:
    """Parse the text of ``--fail-if``: ``slower > 3 %``."""
    return tuple(_limit(part, text) for part in re.split(r"(?i)\bor\b", text))


def _limit(part: str, whole: str) -> Limit:
    shape = _SHAPE.fullmatch(part)
    if shape is None:
        raise UsageError(f"--fail-if '{whole}' cannot be parsed", _EXAMPLE)
    word, number, unit = shape[1].lower(), shape[2], shape[3]
    shown = f"{word} > {number} {unit}"
    if word == "step" and unit in _UNITS:
        return Limit("step", float(number) * _UNITS[unit], shown)
    if word != "step" and unit == "%":
        return Limit("slower" if word == "slower" else "faster", float(number) / 100, shown)
    units = ", ".join(_UNITS) if word == "step" else "%"
    raise UsageError(f"--fail-if '{whole}': '{unit}' is not a unit of {word}", f"use {units}")


@dataclass(frozen=True)
class Judged:
    """A limit, the measured value, and the state: pass, fail or inconclusive."""

    limit: Limit
    value: Ratio | None
    state: State


@dataclass(frozen=True)
class Verdict:
    """Whether a new run keeps every limit, compared with its base run."""

    base: StepProfile
    new: StepProfile
    ratio: Ratio | None
    judged: tuple[Judged, ...]
    state: State
    sentence: str
    advice: str = ""
    why: str = ""

    @property
    def title(self) -> str:
        return _title(self.base, self.new)

    def __repr__(self) -> str:
        texts = [f"→ {text}" for text in (self.advice, self.why) if text]
        return "\n".join([f"{self.state}: {self.sentence}", *texts])


@dataclass(frozen=True)
class Gate:
    """The result of ``lp.gate``: a verdict on each pair of runs.

    ``only_base`` and ``only_new`` are the runs without a counterpart.
    """

    limits: tuple[Limit, ...]
    verdicts: tuple[Verdict, ...]
    only_base: tuple[StepProfile, ...] = ()
    only_new: tuple[StepProfile, ...] = ()

    @property
    def state(self) -> State:
        """Return the worst state; a base run without a pair counts as ``inconclusive``."""
        states = {verdict.state for verdict in self.verdicts}
        # do not pass if a new run is missing
        states |= {"inconclusive"} if self.only_base else set()
        return next(state for state in _GRAVEST if state in states)

    @property
    def exit_status(self) -> int:
        """Return the exit status of ``lstmprof compare``."""
        return EXIT_STATUS[self.state]

    @property
    def lines(self) -> tuple[str, ...]:
        """Return lines that name the runs without a counterpart."""
        sides = (("base", self.only_base), ("new", self.only_new))
        return tuple(
            f"only in {side}: {listed(p.name for p in profiles)}"
            for side, profiles in sides
            if profiles
        )

    @property
    def summary(self) -> tuple[str, ...]:
        """Return the lines that follow the verdicts, such as ``pass: 3 of 3 pairs``."""
        if len(self.verdicts) < 2 and not self.only_base:
            return self.lines
        decided = sum(verdict.state == self.state for verdict in self.verdicts)
        return (*self.lines, f"{self.state}: {decided} of {len(self.verdicts)} pairs")

    def __repr__(self) -> str:
        return "\n".join([*map(repr, self.verdicts), *self.summary])

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``lstmprof compare --format json`` writes.

        docs/compare.schema.json describes the fields.
        """
        return {
            "schema_version": VERSION,
            "state": self.state,
            "exit_status": self.exit_status,
            "fail_if": [limit.text for limit in self.limits],
            "pairs": [_to_dict(verdict) for verdict in self.verdicts],
            "only_base": [profile.name for profile in self.only_base],
            "only_new": [profile.name for profile in self.only_new],
        }


def gate(
    base: Sequence[StepProfile],
    new: Sequence[StepProfile],
    limits: Sequence[Limit],
    across: Collection[str] = (),
) -> Gate:
    """Pair base runs with new runs, and judge each pair."""
    pairs, only_base, only_new = paired(base, new, across)
    if not pairs:
        raise UsageError(
            f"no base run ({len(base)}) has a comparable new run ({len(new)})",
            "give one run per side, or name the difference with --across",
        )
    verdicts = tuple(verdict(*pair, limits, across) for pair in pairs)
    return Gate(tuple(limits), verdicts, tuple(only_base), tuple(only_new))


def verdict(
    base: StepProfile, new: StepProfile, limits: Sequence[Limit], across: Collection[str] = ()
) -> Verdict:
    """Judge whether a new run keeps every limit."""
    refuse_unless_comparable(base, new, across)
    if base.name == new.name:
        base, new = (
            replace(p, name=f"{p.name} ({side})") for p, side in ((base, "base"), (new, "new"))
        )
    ratio = ratio_of(base, new) if min(base.length_ns, new.length_ns) > 0 else None
    judged = tuple(_judged(limit, ratio, new) for limit in limits)
    state = next(state for state in _GRAVEST if state in {j.state for j in judged})
    advice = _advice(base, new, judged) if state == "inconclusive" else ""
    sentence = _sentence(base, new, ratio, judged, state)
    why = diagnosis.compare(base, new, across).sentence if state == "fail" else ""
    return Verdict(base, new, ratio, judged, state, sentence, advice, why)


def _judged(limit: Limit, ratio: Ratio | None, new: StepProfile) -> Judged:
    value = _value(limit, ratio, new)
    if value is None:
        return Judged(limit, None, "inconclusive")
    if value.low > limit.most:
        return Judged(limit, value, "fail")
    below = value.high is not None and value.high <= limit.most
    return Judged(limit, value, "pass" if below else "inconclusive")


def _value(limit: Limit, ratio: Ratio | None, new: StepProfile) -> Ratio | None:
    """Return the measured value: ns for a ``step`` limit, else a share such as 0.03."""
    if ratio is None:
        return None
    if limit.word == "step":
        span = span_of(new)
        return Ratio(span.low_ns, span.ns, span.high_ns)
    # ``faster > 20 %`` means that the base step takes over 20 % longer than the new step
    if limit.word == "faster":
        low = 0.0 if ratio.high is None else 1 / ratio.high
        ratio = Ratio(low, 1 / ratio.value, 1 / ratio.low if ratio.low > 0 else None)
    return Ratio(ratio.low - 1, ratio.value - 1, None if ratio.high is None else ratio.high - 1)


def _sentence(
    base: StepProfile, new: StepProfile, ratio: Ratio | None, judged: Sequence[Judged], state: State
) -> str:
    title = _title(base, new)
    if ratio is None:
        return f"{title}: not compared, because a step has zero duration"
    new_ms, base_ms = (milliseconds(p.length_ns, 2) for p in (new, base))
    what = "per step" if base.span and new.span else "per profiled step"
    times = f"{new_ms} ms {what}, baseline {base_ms} ms"
    interval = f"95 % interval {_range(ratio)}, {_rounds(base, new)}"
    limits = listed(f"'{j.limit.text}'" for j in judged if j.state == state)
    ends = {
        "pass": f"limit not exceeded: {limits}",
        "fail": f"limit exceeded: {limits}",
        "inconclusive": f"limit perhaps exceeded: {limits}",
    }
    return f"{title}: {_change(ratio.value)} ({times}; {interval}); {ends[state]}"


def _title(base: StepProfile, new: StepProfile) -> str:
    called = [p.info.called or p.info.name or p.name for p in (new, base)]
    same = called[0] if called[0] == called[1] else f"{called[0]} (baseline: {called[1]})"
    network = new.info.workload.name
    return f"{same}, {network}" if network else same


def _rounds(base: StepProfile, new: StepProfile) -> str:
    numbers = [max(p.rounds, 1) for p in (base, new)]
    if numbers[0] != numbers[1]:
        return f"{count(numbers[1])} and {count(numbers[0])} rounds"
    return number_of(numbers[0], "round per run", "rounds per run")


def _range(ratio: Ratio) -> str:
    if ratio.high is None:
        return f"at least {_change(ratio.low)}" if ratio.low > 0 else "any ratio"
    high = _change(ratio.high)
    return f"{ratio.low:,.3f}× to {high}" if ratio.low > 0 else f"at most {high}"


def _change(ratio: float) -> str:
    return f"{ratio:,.3f}× as long"


def _advice(base: StepProfile, new: StepProfile, judged: Sequence[Judged]) -> str:
    """Return how to decide the first inconclusive limit, or an empty text if unknown."""
    first = next(j for j in judged if j.state == "inconclusive")
    if first.value is None:
        return ""
    if OWN_CODE in (base.info.source, new.info.source):
        return "run both again with more --steps"
    rounds = max(min(base.rounds, new.rounds), 1)
    shift = 0.0 if first.limit.unit == "ns" else 1.0
    value, most = first.value.value + shift, first.limit.most + shift
    end = first.value.low if value > most else first.value.high
    noise = math.inf if end is None or end + shift <= 0 else abs(math.log(value / (end + shift)))
    distance = abs(math.log(value / most)) if most > 0 else math.inf
    needed = rounds * (noise / distance) ** 2 if distance else math.inf
    if not needed <= MOST_ROUNDS:
        return (
            f"more than {MOST_ROUNDS} rounds would be needed for pass or fail; set a limit that "
            "differs more from the measured value"
        )
    number = math.ceil(needed)
    each = (new.info.iterations or 0) // rounds or _USUAL_ITERATIONS
    return (
        f"capture both runs again with --rounds {number} --iterations {number * each}; this "
        "is probably enough for pass or fail if step times vary as much as in these runs"
    )


def _to_dict(verdict: Verdict) -> dict[str, Any]:
    base, new, ratio = verdict.base, verdict.new, verdict.ratio
    return {
        "state": verdict.state,
        "sentence": verdict.sentence,
        "advice": verdict.advice or None,
        "why": verdict.why or None,
        "implementation": new.implementation,
        "label": new.info.label,
        "workload": new.info.workload.name,
        "base": base.name,
        "new": new.name,
        "base_ns": base.length_ns,
        "new_ns": new.length_ns,
        "ratio": ratio and ratio.value,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
        "steps": "clean" if new.span is not None else "profiled",
        "base_rounds": base.rounds,
        "new_rounds": new.rounds,
        "limits": [
            {
                "limit": judged.limit.text,
                "unit": judged.limit.unit,
                "most": judged.limit.most,
                "value": judged.value and judged.value.value,
                "low": judged.value and judged.value.low,
                "high": judged.value and judged.value.high,
                "state": judged.state,
            }
            for judged in verdict.judged
        ],
        "warnings": [f"{p.name}: {text}" for p in (base, new) for text in p.warnings],
    }


Pair = tuple[StepProfile, StepProfile]
_Key = Callable[[StepProfile], Hashable]


def paired(
    base: Sequence[StepProfile], new: Sequence[StepProfile], across: Collection[str] = ()
) -> tuple[list[Pair], list[StepProfile], list[StepProfile]]:
    """Pair runs of equal implementation and conditions by name, then label, then neither."""
    # a single base run and a single new run form a pair even if their conditions differ
    if len(base) == len(new) == 1:
        return [(base[0], new[0])], [], []
    pairs: list[Pair] = []
    left = [list(base), list(new)]
    for key in _keys(across):
        counts = [Counter(map(key, side)) for side in left]
        new_runs = {key(profile): profile for profile in left[1]}
        once = {k for k, uses in counts[0].items() if uses == 1 == counts[1][k]}
        pairs += [(p, new_runs[key(p)]) for p in left[0] if key(p) in once]
        left = [[p for p in side if key(p) not in once] for side in left]
    places = {id(profile): place for place, profile in enumerate(base)}
    # sort the pairs like ``base``, and return the unpaired base and new runs
    return sorted(pairs, key=lambda pair: places[id(pair[0])]), left[0], left[1]


def _keys(across: Collection[str]) -> Sequence[_Key]:
    """Return key functions, strictest first. Two runs pair up if no other run has the key."""

    def conditions(profile: StepProfile) -> Hashable:
        agreeing = (name for name in names.CONDITIONS if name not in across)
        return tuple(str(condition(name, profile.info)) for name in agreeing)

    return (
        lambda p: (p.implementation, p.name, conditions(p)),
        lambda p: (p.implementation or p.name, p.info.label, conditions(p)),
        lambda p: (p.implementation or p.name, conditions(p)),
    )

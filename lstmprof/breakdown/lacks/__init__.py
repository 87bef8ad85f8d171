"""Find the data that a profile lacks, such as GPU kernels. Users see this before any result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.base.numbers import count, cropped, listed, milliseconds
from lstmprof.breakdown.lacks.advice import Advice, advice_for
from lstmprof.breakdown.mean_step import device_word
from lstmprof.events.annotate import MEASURED
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.runs.metadata import RunInfo

_ACTS = "activities"
_MOST_LOGGED = 120


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: ``1 step`` or ``2 steps``."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


_STACKS = "Python stacks"
SHAPES = "input shapes"
ALLOCATIONS = "allocations"
#: Setting of ``torch.profiler`` that slows down each op → the data that the setting records.
_COSTLY = {
    "with_stack": _STACKS,
    "with_modules": "modules",
    "profile_memory": ALLOCATIONS,
    "record_shapes": SHAPES,
    "with_flops": "FLOP counts",
}
#: Profile formats of TensorFlow and JAX, which use a GPU by default.
_GPU_BY_DEFAULT = ("xplane", "trace_viewer", "tf1_timeline")
#: Most characters of an accelerator's name in a sentence.
_WIDTH = 60


@dataclass(frozen=True)
class Recording:
    """One rank's event counts, and run.json: the input of the rules."""

    has: Recorded
    info: RunInfo
    ranks: int = 1

    @property
    def advice(self) -> Advice:
        return advice_for(self.info.profile_format)

    @property
    def launches(self) -> str:
        return counted(self.has.kernel_launches, "kernel launch", "kernel launches")

    @property
    def calls(self) -> str:
        return counted(self.has.runtime_calls, "runtime call")

    @property
    def captured(self) -> bool:
        """Return whether lstmprof itself recorded the run."""
        return self.info.source in MEASURED

    @property
    def silent(self) -> bool:
        """Return whether the rank has no kernel, copy or memset."""
        return not self.has.activities

    @property
    def tpu(self) -> str | None:
        return next((name for name in self.info.accelerators if "TPU" in name), None)

    @property
    def used_gpu(self) -> bool:
        """Return whether the host launched work on an accelerator, or probably did."""
        has, info = self.has, self.info
        if info.device == "cpu":
            return False
        is_default = bool(info.accelerators) and info.profile_format in _GPU_BY_DEFAULT
        asked_for = info.device not in (None, "cpu")
        return bool(has.handed_over or has.gpu_ops or (has.host_events and is_default) or asked_for)

    @property
    def model(self) -> str:
        """Return the name of the first accelerator in the profile, else "a GPU"."""
        return cropped(next(iter(self.info.accelerators), "a GPU"), _WIDTH)

    @property
    def device_word(self) -> str:
        return device_word(self.model)

    @property
    def settings(self) -> list[str]:
        """Return the recorded data that slow down each op, such as "input shapes"."""
        metadata = self.info.profile_metadata or {}
        on = [text for key, text in _COSTLY.items() if metadata.get(key) in (1, "1")]
        if not self.has.python_frames:
            return on
        return [
            f"{_STACKS} ({self.has.python_frames:,} frames recorded)",
            *(t for t in on if t != _STACKS),
        ]

    @property
    def ops(self) -> int:
        return self.has.ops_in_steps if self.has.steps else self.has.ops

    @property
    def lost_between(self) -> int:
        """Return how many launches in the middle of the profile have no kernel."""
        return self.has.lost - self.has.lost_first - self.has.lost_last

    @property
    def missing_steps(self) -> int:
        """Return how many step numbers are missing between the first and the last step."""
        first, last = self.has.first_step, self.has.last_step
        return 0 if first is None or last is None else last - first + 1 - self.has.steps


def _no_gpu(r: Recording) -> str:
    seen, why = _signs_of_gpu(r)
    complaint = r.info.gpu_complaint
    why = f"the profiler logged: {cropped(complaint, _MOST_LOGGED)}" if complaint else why
    return (
        f"{seen}, but no {r.device_word} activity was recorded ({why}); busy and idle time of the "
        f"{r.device_word} are unknown; {r.advice.gpu}"
    )


def _signs_of_gpu(r: Recording) -> tuple[str, str]:
    """Return signs that a GPU was used, and why GPU activities may be missing."""
    if r.has.kernel_launches:
        if r.has.device_ranges:
            return f"the host made {r.launches}", "only hardware counters were recorded"
        return f"the host made {r.launches}", (
            "possible reasons: another profiler used CUPTI, the permission was missing, or the "
            "profiler stopped too early"
        )
    if r.has.handed_over:
        calls = counted(r.has.handed_over, "call")
        return f"{calls} started work on {r.model}", "the file does not contain this work"
    if r.has.gpu_ops:
        ops = counted(r.has.gpu_ops, "call")
        return f"{ops} went to GPU-only libraries such as cuDNN or NCCL", (
            "the profiler was set to record only the CPU, or libcupti was not found"
        )
    return (
        f"the program could use {r.model}",
        "usual reasons: libcupti is missing, or profiling is not permitted",
    )


def _nothing_of_program(r: Recording) -> str:
    both = ", and ".join(dict.fromkeys((r.advice.host, r.advice.gpu)))
    return (
        f"the profile has {r.calls} but no op and no GPU activity, so the program's work is "
        f"unknown; {both}"
    )


def _unused(r: Recording) -> str:
    if r.has.runtime_calls:
        return (
            f"no {r.device_word} activity was recorded, and none of the {r.calls} starts work on "
            f"{r.model}, so the program probably ran on the CPU; if the program used the "
            f"{r.device_word}, {r.advice.gpu}"
        )
    return (
        f"the profile names {r.model} but has no {r.device_word} activity and no runtime call; if "
        "the program ran on the CPU, nothing is missing; if the program used the "
        f"{r.device_word}, {r.advice.gpu}"
    )


def _lost_sentence(r: Recording, lost: int, where: str, why: str, remedy: str) -> str:
    have = "has" if lost == 1 else "have"
    return (
        f"{lost:,} of {r.launches} {have} no recorded kernel, {where} ({why}); the device may have "
        f"been busy during idle time that the profile shows; {remedy}"
    )


def _unlaunched(r: Recording) -> str:
    share = f"{r.has.unlaunched:,} of {r.has.launchable:,} GPU activities"
    if r.has.launched_before == r.has.unlaunched:
        return (
            f"{share} were launched before the profile begins, so the causes of idle time before "
            "these activities are unknown; synchronise before the profiler starts"
        )
    return (
        f"{share} have no launch call in this file (the profile was trimmed, or events were lost), "
        f"so the causes of idle time before these activities are unknown; {r.advice.links}"
    )


def _ranges_alone(r: Recording) -> str:
    ranges = counted(r.has.ranges + r.has.steps, "range")
    where = " in the marked steps" if r.has.ops else ""
    return (
        f"the profile has {ranges} but no op{where}, so the time of the ranges cannot be "
        f"split into Python, framework and waits; {r.advice.ops}"
    )


#: Smallest affected share of time or events that lstmprof reports, because smaller shares hardly
#: change results.
LEAST_SHARE = 0.005

#: Kind of missing data: ops and Python frames in the ranges or steps.
RANGES_WITHOUT_OPS = "ranges without ops"
#: Kinds of missing data: the activities of an accelerator that the program used.
NO_GPU, TPU_UNREAD = "no GPU activity", "TPU not read"
#: Kind of missing data: whether the program used the GPU that the profile names.
GPU_UNSEEN = "GPU unused or not recorded"
#: Kinds of missing data: the host events, or the launch calls, of device activities.
NO_HOST, NO_LAUNCHES = "no host", "no launches"
#: Kind of faulty data: activities begin before their launch calls.
CLOCKS = "clocks of host and device"
#: Kind of missing data → its name for users, if the kind does not explain itself.
WORDS = {
    TPU_UNREAD: "lstmprof cannot read the TPU's events",
    NO_HOST: "no host events",
    NO_LAUNCHES: "no launch calls",
    CLOCKS: "clocks of host and device differ",
    "no kernels": "no GPU kernels",
    "only copies": "the GPU only copied",
    "activities that overlap": "overlapping GPU activities",
    "no ops or kernels of the program": "only runtime calls recorded",
    "missing steps": "steps without a marker",
    "steps without activities": "steps without GPU activity",
    "another number of steps": "profile marks another number of steps",
    "first kernels missing": "first kernels not recorded",
    "last kernels missing": "last kernels not recorded",
    "some kernels missing": "some kernels not recorded",
    "separate clocks": "ranks with separate clocks",
}
_IDLE = "busy and idle time of the device"
_WAITS = "causes of idle time"
_HOST = "host work during idle time"


@dataclass(frozen=True)
class Rule:
    """A rule that detects one kind of missing data, with a sentence for users."""

    kind: str
    holds: Callable[[Recording], object]
    sentence: Callable[[Recording], str]
    # affected share of the time or events, 0–1
    share: Callable[[Recording], float | None] = lambda r: None
    hides: str = ""  # numbers that are unknown without the data
    blinds: bool = False  # nothing shows where the time goes
    of_run: bool = False  # about the whole run, not about each rank


def share_of(part: int, whole: int) -> float | None:
    return None if whole <= 0 else min(max(part, 0), whole) / whole


def is_large(part: int, whole: int) -> bool:
    """Return whether ``part`` is a large enough share of ``whole`` to report."""
    return part > 0 and (share_of(part, whole) or 0.0) >= LEAST_SHARE


def _lost(count: int, ns: int, r: Recording) -> bool:
    """Return whether launches without kernels are many, or span much time (``ns``)."""
    long = is_large(ns, r.has.length_ns)
    return count > 0 and (long or is_large(count, r.has.kernel_launches))


RULES = (
    Rule(
        TPU_UNREAD,
        lambda r: r.silent and r.tpu,
        lambda r: (
            f"lstmprof can read the host's events in this profile, but no events of {r.tpu}, so "
            "the TPU's busy and idle time are unknown; open the file in XProf"
        ),
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        NO_GPU,
        lambda r: r.silent and not r.tpu and r.used_gpu,
        _no_gpu,
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        "no ops or kernels of the program",
        lambda r: r.silent and not r.used_gpu and r.has.runtime_calls and not r.has.host_events,
        _nothing_of_program,
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        GPU_UNSEEN,
        lambda r: (
            r.silent
            and r.info.accelerators
            and r.has.host_events
            and not (r.used_gpu or r.tpu or r.captured)
        ),
        _unused,
    ),
    Rule(
        "no kernels",
        lambda r: not r.silent and not r.has.kernels and r.has.kernel_launches,
        lambda r: (
            "only copies and memsets were recorded on the device, although the host made "
            f"{r.launches}; kernel times are unknown; {r.advice.gpu}"
        ),
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        "only copies",
        lambda r: (
            not r.silent and not r.has.kernels and r.has.runtime_calls and not r.has.kernel_launches
        ),
        lambda r: (
            "the device only copied or set memory "
            f"({counted(r.has.activities, 'activity', _ACTS)}), and no kernel was launched; either "
            "the program computes nothing on the device, or its kernels were not recorded"
        ),
    ),
    Rule(
        NO_HOST,
        lambda r: not r.silent and not r.has.host_events and not r.has.runtime_calls,
        lambda r: (
            "GPU activities were recorded, but nothing on the host, so the causes of idle time are "
            f"unknown; {r.advice.host}"
        ),
        share=lambda r: 1.0,
        hides=_WAITS,
        blinds=True,
    ),
    Rule(
        NO_LAUNCHES,
        lambda r: (
            r.has.unlaunched
            and r.has.unlaunched == r.has.launchable
            and (r.has.host_events or r.has.runtime_calls)
        ),
        lambda r: (
            "the file has no launch call of any GPU activity, so the causes of idle time are "
            f"unknown; {r.advice.links}"
        ),
        share=lambda r: 1.0,
        hides=_WAITS,
        blinds=True,
    ),
    Rule(
        "first kernels missing",
        lambda r: _lost(r.has.lost_first, r.has.lost_first_ns, r),
        lambda r: _lost_sentence(
            r,
            r.has.lost_first,
            f"all of them in the first {milliseconds(r.has.lost_first_ns)} ms",
            "the profiler was not ready yet",
            "add a warm-up step to the profiler's schedule",
        ),
        share=lambda r: share_of(r.has.lost_first_ns, r.has.length_ns),
        hides=f"{_IDLE} at the start",
    ),
    Rule(
        "last kernels missing",
        lambda r: _lost(r.has.lost_last, r.has.lost_last_ns, r),
        lambda r: _lost_sentence(
            r,
            r.has.lost_last,
            f"all of them in the last {milliseconds(r.has.lost_last_ns)} ms in which kernels were "
            "launched",
            "the kernels ran after the profiler stopped, or the profiler did not write them",
            "synchronise before the profiler stops",
        ),
        share=lambda r: share_of(r.has.lost_last_ns, r.has.length_ns),
        hides=f"{_IDLE} at the end",
    ),
    Rule(
        "some kernels missing",
        lambda r: r.has.kernels and is_large(r.lost_between, r.has.kernel_launches),
        lambda r: _lost_sentence(
            r,
            r.lost_between,
            "all of them in the middle of the profile",
            "the profiler lost these events",
            "record fewer steps",
        ),
        share=lambda r: share_of(r.lost_between, r.has.kernel_launches),
        hides=_IDLE,
    ),
    Rule(
        "kernels without a launch call",
        lambda r: (
            r.has.unlaunched < r.has.launchable and is_large(r.has.unlaunched, r.has.launchable)
        ),
        _unlaunched,
        share=lambda r: share_of(r.has.unlaunched, r.has.launchable),
        hides=f"some {_WAITS}",
    ),
    Rule(
        "activities that overlap",
        lambda r: is_large(r.has.overlap_ns, r.has.activity_ns),
        lambda r: (
            f"{counted(r.has.overlaps, 'GPU activity', 'GPU activities')} began before an earlier "
            "activity on the same stream had ended (overlap: "
            f"{milliseconds(r.has.overlap_ns)} ms in total); some durations are wrong, unless the "
            "program uses programmatic dependent launch; busy time counts the overlap only once"
        ),
        share=lambda r: share_of(r.has.overlap_ns, r.has.activity_ns),
        hides="durations of overlapping activities",
    ),
    Rule(
        "no framework ops",
        lambda r: not r.silent and r.has.runtime_calls and not r.has.host_events,
        lambda r: (
            "no op and no range was recorded, so the host's work between runtime calls is "
            f"unknown; {r.advice.ops}"
        ),
        hides=_HOST,
    ),
    Rule(
        RANGES_WITHOUT_OPS,
        lambda r: not r.ops and not r.has.python_frames and (r.has.ranges or r.has.steps),
        _ranges_alone,
        hides=_HOST,
    ),
    Rule(
        "recording that slows the run",
        lambda r: not r.captured and r.settings and r.has.host_events,
        lambda r: (
            f"recording {listed(r.settings)} slows each op down on the host, so times of dispatch, "
            "Python and waits for the host are too long; record again without these data"
        ),
    ),
    Rule(
        "steps without activities",
        lambda r: r.has.bare_steps,
        lambda r: (
            f"{r.has.bare_steps:,} of {counted(r.has.steps, 'marked step')} (first: step "
            f"{r.has.first_bare}) launched no recorded GPU activity: these steps are empty or "
            "cut off, and distort the means over all steps"
        ),
        share=lambda r: share_of(r.has.bare_steps, r.has.steps),
    ),
    Rule(
        "missing steps",
        lambda r: r.missing_steps > 0,
        lambda r: (
            f"{counted(r.missing_steps, 'step')} between step {r.has.first_step} and step "
            f"{r.has.last_step} {'has' if r.missing_steps == 1 else 'have'} no marker; the time of "
            "an unmarked step may count as time of the previous marked step"
        ),
        share=lambda r: share_of(r.missing_steps, r.missing_steps + r.has.steps),
    ),
    Rule(
        "another number of steps",
        lambda r: (
            r.captured
            and r.has.steps
            and r.info.profiled_wall_ns
            and len(r.info.profiled_wall_ns) != r.has.steps
        ),
        lambda r: (
            f"{counted(len(r.info.profiled_wall_ns or ()), 'step')} ran under the profiler, but "
            f"the profile has markers of {counted(r.has.steps, 'step')}, so the breakdown and the "
            "step times cover different steps; capture again"
        ),
    ),
    Rule(
        "separate clocks",
        lambda r: r.ranks > 1 and r.info.base_ns is None,
        lambda r: (
            "the ranks have separate clocks, so their times cannot be compared; record all ranks "
            "with a profiler that stores its start time in the profile"
        ),
        hides="waits between ranks",
        of_run=True,
    ),
    Rule(
        "no step markers",
        lambda r: not r.has.steps,
        lambda r: (
            "no step is marked, so the whole profile counts as one step; use --step-range to name "
            "the ranges that are steps"
        ),
    ),
)


#: Kind of missing data: a note that the reader of the file format wrote into run.json.
NOTE = "note"
#: Most ranks that a sentence lists one by one.
_MOST_RANKS_SHOWN = 8


@dataclass(frozen=True)
class Lack:
    """Data that a profile lacks, with a sentence for users."""

    kind: str  # name of the rule, or ``NOTE``
    sentence: str
    share: float | None = None  # affected share of the time or events, 0–1
    hides: str = ""  # numbers that are unknown without the data
    blinds: bool = False  # nothing shows where the time goes
    ranks: tuple[int, ...] = ()  # affected ranks; ``sentence`` is about the first

    @property
    def words(self) -> str:
        """Return what is missing, in words for users, such as "no GPU kernels"."""
        return WORDS.get(self.kind, self.kind)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ranks": list(self.ranks)}


def lacks_of(
    info: RunInfo, recorded: Sequence[Recorded], rank: int | None = None
) -> tuple[Lack, ...]:
    """List what the profile of a run or ``rank`` lacks, most important first."""
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
    """Return the start of a sentence: "rank 3 (likewise 0, 1 and 5 more): "."""
    others = [str(rank) for rank in sorted({*ranks} - {ranks[0]})]
    if len(others) > _MOST_RANKS_SHOWN:
        others = [*others[:_MOST_RANKS_SHOWN], f"{len(others) - _MOST_RANKS_SHOWN:,} more"]
    return f"rank {ranks[0]}{f' (likewise {listed(others)})' if others else ''}: "

"""What can be missing from a profile: one ordered table, the gravest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lstmprof.breakdown.lacks import sentences
from lstmprof.breakdown.lacks.recording import Recording

#: Less of a whole than this changes no percent that is printed.
LEAST_SHARE = 0.005

#: The kind of a profile in which time is inside a range, and no more is known of it.
RANGES_WITHOUT_OPS = "ranges without ops"
#: A GPU, or a TPU, was used and its activity is not in the events.
NO_GPU, TPU_UNREAD = "no GPU activity", "TPU not read"
#: A GPU is there, and nothing says whether the program used it.
GPU_UNSEEN = "GPU unused or not recorded"
#: Activities begin before the calls that launch them.
CLOCKS = "clocks of host and device"
_IDLE = "busy and idle time of the device"
_WAITS = "causes of idle time"
_HOST = "host work during idle time"


@dataclass(frozen=True)
class Rule:
    """One thing that can be missing, and what is said of it where ``holds``.

    ``share`` is how much it concerns, 0–1; None: that is not known. ``hides`` are the numbers that
    are then not known, empty where they are only doubtful. ``blinds``: nothing can be said of what
    the time was spent on. ``of_run``: it is told of a run, not of each rank.
    """

    kind: str
    holds: Callable[[Recording], object]
    sentence: Callable[[Recording], str]
    share: Callable[[Recording], float | None] = lambda r: None
    hides: str = ""
    blinds: bool = False
    of_run: bool = False


def share_of(part: int, whole: int) -> float | None:
    """``part`` of ``whole``, 0–1; None where that is nothing."""
    return None if whole <= 0 else min(max(part, 0), whole) / whole


def is_large(part: int, whole: int) -> bool:
    """Whether ``part`` is enough of ``whole`` to be told."""
    return part > 0 and (share_of(part, whole) or 0.0) >= LEAST_SHARE


def _lost(count: int, ns: int, r: Recording) -> bool:
    """Whether so many lost launches, over so long, are enough to be told."""
    long = is_large(ns, r.has.length_ns)
    return count > 0 and (long or is_large(count, r.has.kernel_launches))


RULES = (
    Rule(
        TPU_UNREAD,
        lambda r: r.silent and r.tpu,
        sentences.tpu_not_read,
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        NO_GPU,
        lambda r: r.silent and not r.tpu and r.used_gpu,
        sentences.no_gpu,
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        "nothing of the program",
        lambda r: r.silent and not r.used_gpu and r.has.runtime_calls and not r.has.host_events,
        sentences.nothing_of_program,
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
        sentences.unused,
    ),
    Rule(
        "no kernels",
        lambda r: not r.silent and not r.has.kernels and r.has.kernel_launches,
        sentences.no_kernels,
        hides=_IDLE,
        blinds=True,
    ),
    Rule(
        "only copies",
        lambda r: (
            not r.silent and not r.has.kernels and r.has.runtime_calls and not r.has.kernel_launches
        ),
        sentences.only_copies,
    ),
    Rule(
        "no host",
        lambda r: not r.silent and not r.has.host_events and not r.has.runtime_calls,
        sentences.no_host,
        share=lambda r: 1.0,
        hides=_WAITS,
        blinds=True,
    ),
    Rule(
        "no launches",
        lambda r: (
            r.has.unlaunched
            and r.has.unlaunched == r.has.launchable
            and (r.has.host_events or r.has.runtime_calls)
        ),
        sentences.no_launches,
        share=lambda r: 1.0,
        hides=_WAITS,
        blinds=True,
    ),
    Rule(
        "activities lost at the start",
        lambda r: _lost(r.has.lost_first, r.has.lost_first_ns, r),
        sentences.lost_first,
        share=lambda r: share_of(r.has.lost_first_ns, r.has.length_ns),
        hides=f"{_IDLE} at the start",
    ),
    Rule(
        "activities lost at the end",
        lambda r: _lost(r.has.lost_last, r.has.lost_last_ns, r),
        sentences.lost_last,
        share=lambda r: share_of(r.has.lost_last_ns, r.has.length_ns),
        hides=f"{_IDLE} at the end",
    ),
    Rule(
        "activities lost",
        lambda r: r.has.kernels and is_large(r.lost_between, r.has.kernel_launches),
        sentences.lost_between,
        share=lambda r: share_of(r.lost_between, r.has.kernel_launches),
        hides=_IDLE,
    ),
    Rule(
        "activities without a launch",
        lambda r: (
            r.has.unlaunched < r.has.launchable and is_large(r.has.unlaunched, r.has.launchable)
        ),
        sentences.unlaunched,
        share=lambda r: share_of(r.has.unlaunched, r.has.launchable),
        hides=f"some {_WAITS}",
    ),
    Rule(
        "activities that overlap",
        lambda r: is_large(r.has.overlap_ns, r.has.activity_ns),
        sentences.overlaps,
        share=lambda r: share_of(r.has.overlap_ns, r.has.activity_ns),
        hides="durations of overlapping activities",
    ),
    Rule(
        "calls without ops",
        lambda r: not r.silent and r.has.runtime_calls and not r.has.host_events,
        sentences.calls_alone,
        hides=_HOST,
    ),
    Rule(
        RANGES_WITHOUT_OPS,
        lambda r: not r.ops and not r.has.python_frames and (r.has.ranges or r.has.steps),
        sentences.ranges_alone,
        hides=_HOST,
    ),
    Rule(
        "costly recording",
        lambda r: not r.captured and r.settings and r.has.host_events,
        sentences.costly,
    ),
    Rule(
        "steps without activities",
        lambda r: r.has.bare_steps,
        sentences.bare_steps,
        share=lambda r: share_of(r.has.bare_steps, r.has.steps),
    ),
    Rule(
        "missing steps",
        lambda r: r.missing_steps > 0,
        sentences.missing_steps,
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
        sentences.other_steps,
    ),
    Rule(
        "separate clocks",
        lambda r: r.ranks > 1 and r.info.base_ns is None,
        sentences.separate_clocks,
        hides="waits between ranks",
        of_run=True,
    ),
    Rule("no step markers", lambda r: not r.has.steps, sentences.no_markers),
)

"""The sentences of what a profile lacks: what, why, what is not known for it, and what to do."""

from __future__ import annotations

from lstmprof.breakdown.lacks.recording import Recording
from lstmprof.numbers import count, cropped, listed, milliseconds

_ACTS = "activities"
#: Characters of what a profiler logged.
_WIDTH = 120


def counted(number: int, noun: str, nouns: str = "") -> str:
    """``1 step``, ``2 steps``."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def tpu_not_read(r: Recording) -> str:
    """What of a TPU is not read."""
    return (
        f"lstmprof reads only the host events of this profile, not those of {r.tpu}, so the TPU's "
        "busy and idle time are unknown; open the file in XProf"
    )


def no_gpu(r: Recording) -> str:
    """What says that a GPU had work, why that was not recorded, and what to do."""
    seen, why = _signs_of_gpu(r)
    complaint = r.info.gpu_complaint
    why = f"the profiler logged: {cropped(complaint, _WIDTH)}" if complaint else why
    return (
        f"no {r.device_word} activity was recorded, although {seen} ({why}), so busy and idle time "
        f"of the {r.device_word} are unknown; {r.advice.gpu}"
    )


def _signs_of_gpu(r: Recording) -> tuple[str, str]:
    """What the host did with a GPU, and why that may be all there is."""
    if r.has.kernel_launches:
        launches = counted(r.has.kernel_launches, "kernel launch", "kernel launches")
        if r.has.device_ranges:
            return f"the host made {launches}", "only hardware counters were recorded"
        return f"the host made {launches}", (
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


def nothing_of_program(r: Recording) -> str:
    """Runtime calls and nothing else."""
    calls = counted(r.has.runtime_calls, "runtime call")
    both = ", and ".join(dict.fromkeys((r.advice.host, r.advice.gpu)))
    return (
        f"the profile has {calls} but no op and no GPU activity, so the program's work is unknown; "
        f"{both}"
    )


def unused(r: Recording) -> str:
    """A GPU that is named and has nothing to do."""
    if r.has.runtime_calls:
        calls = counted(r.has.runtime_calls, "runtime call")
        return (
            f"no {r.device_word} activity was recorded, and none of the {calls} starts work on "
            f"{r.model}, so the program probably ran on the CPU; if the program used the "
            f"{r.device_word}, {r.advice.gpu}"
        )
    return (
        f"the profile names {r.model} but has no {r.device_word} activity and no runtime call; if "
        f"the program ran on the CPU, nothing is missing; if it used the {r.device_word}, "
        f"{r.advice.gpu}"
    )


def no_kernels(r: Recording) -> str:
    """Launches, and copies, and no kernel."""
    launches = counted(r.has.kernel_launches, "kernel launch", "kernel launches")
    return (
        f"only copies and memsets were recorded on the device, although the host made {launches}; "
        f"kernel times are unknown; {r.advice.gpu}"
    )


def only_copies(r: Recording) -> str:
    """Copies, no kernel and no launch of one."""
    return (
        f"the device only copied or set memory ({counted(r.has.activities, 'activity', _ACTS)}), "
        "and no kernel was launched; either the program computes nothing on the device, or its "
        "kernels were not recorded"
    )


def no_host(r: Recording) -> str:
    """Activities alone."""
    return (
        "GPU activities were recorded, but nothing on the host, so the causes of idle time are "
        f"unknown; {r.advice.host}"
    )


def no_launches(r: Recording) -> str:
    """Activities that nothing enqueued."""
    return (
        "the file has no launch call of any GPU activity, so the causes of idle time are unknown; "
        f"{r.advice.links}"
    )


def lost_first(r: Recording) -> str:
    """Launches without an activity before any that has one."""
    where = f"all in the first {milliseconds(r.has.lost_first_ns)} ms"
    why = "the profiler was not ready yet"
    return _lost(r, r.has.lost_first, where, why, "add a warm-up step to the profiler's schedule")


def lost_last(r: Recording) -> str:
    """Launches without an activity after all that have one."""
    where = f"all in the last {milliseconds(r.has.lost_last_ns)} ms of launches"
    why = "the kernels ran after the profiler stopped, or the profiler did not write them"
    return _lost(r, r.has.lost_last, where, why, "synchronise before the profiler stops")


def lost_between(r: Recording) -> str:
    """Other launches without an activity."""
    why = "the profiler lost these events"
    return _lost(r, r.lost_between, "between recorded launches", why, "record fewer steps")


def _lost(r: Recording, lost: int, where: str, why: str, remedy: str) -> str:
    launches = counted(r.has.kernel_launches, "kernel launch", "kernel launches")
    have = "has" if lost == 1 else "have"
    return (
        f"{lost:,} of {launches} {have} no recorded kernel, {where} ({why}); the device may have "
        f"been busy where the profile shows idle time; {remedy}"
    )


def unlaunched(r: Recording) -> str:
    """Activities without a launch, beside others that have one."""
    share = f"{r.has.unlaunched:,} of {r.has.launchable:,} GPU activities"
    if r.has.launched_before == r.has.unlaunched:
        return (
            f"{share} were launched before the profile begins, so the causes of idle time before "
            "them are unknown; synchronise before the profiler starts"
        )
    return (
        f"{share} have no launch call in this file (a trimmed profile, or lost events), so the "
        f"causes of idle time before them are unknown; {r.advice.links}"
    )


def overlaps(r: Recording) -> str:
    """Activities that cannot all be true."""
    activities = counted(r.has.overlaps, "GPU activity", "GPU activities")
    return (
        f"{activities} overlap others on the same stream, by {milliseconds(r.has.overlap_ns)} ms "
        "in total; a stream runs one activity at a time (except kernels launched to start early), "
        "so some durations are wrong; busy time counts overlapping activities once"
    )


def costly(r: Recording) -> str:
    """Settings of the profiler that cost the host time."""
    return (
        f"recording {listed(r.settings)} costs host time per op, so dispatch, Python and waits for "
        "the host are longer than in a plain run; record without them to measure the difference"
    )


def calls_alone(r: Recording) -> str:
    """Activities and runtime calls, and nothing of the program."""
    return (
        "no op and no range was recorded, so the ops that launch GPU activities and the host's "
        f"work between runtime calls are unknown; {r.advice.ops}"
    )


def ranges_alone(r: Recording) -> str:
    """Ranges, and no op in them."""
    ranges = counted(r.has.ranges + r.has.steps, "range")
    where = " in the marked steps" if r.has.ops else ""
    return (
        f"no op was recorded{where}, only {ranges}, so it is unknown whether Python, the framework "
        f"or waiting fills a range; {r.advice.ops}"
    )


def bare_steps(r: Recording) -> str:
    """Marked steps without an activity."""
    steps = counted(r.has.steps, "marked step")
    return (
        f"{r.has.bare_steps:,} of {steps} (first: step {r.has.first_bare}) launched no recorded "
        "activity; these steps are empty or cut off, and distort means over all steps"
    )


def missing_steps(r: Recording) -> str:
    """Numbers of steps that no marker has."""
    steps = counted(r.missing_steps, "step")
    return (
        f"{steps} between step {r.has.first_step} and step {r.has.last_step} have no marker; their "
        "time may count as part of the step before them"
    )


def other_steps(r: Recording) -> str:
    """Another number of marked steps than were profiled."""
    profiled = counted(len(r.info.profiled_wall_ns or ()), "step")
    return (
        f"{profiled} ran under the profiler, but the profile marks {r.has.steps:,}, so breakdown "
        "and step times cover different steps; capture again"
    )


def separate_clocks(r: Recording) -> str:
    """Ranks whose times cannot be compared."""
    return (
        "the ranks have separate clocks, so their times cannot be compared; record all ranks with "
        "a profiler that writes its start time"
    )


def no_markers(r: Recording) -> str:
    """What to do about a profile in which no step is marked."""
    return (
        "no step is marked, so the whole profile counts as one step; use --step-range to name the "
        "ranges that are steps"
    )

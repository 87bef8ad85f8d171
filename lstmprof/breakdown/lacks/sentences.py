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
        f"what {r.tpu} did is not read, these are the host's events only: what it did and waited "
        "for is not known; look at the file in XProf"
    )


def no_gpu(r: Recording) -> str:
    """What says that a GPU had work, why that was not recorded, and what to do."""
    seen, why = _signs_of_gpu(r)
    complaint = r.info.gpu_complaint
    why = f"the profiler logged: {cropped(complaint, _WIDTH)}" if complaint else why
    return (
        f"no {r.device_word} activity was recorded although {seen} ({why}): what it did and "
        f"waited for is not known, and the host's time is no measure of it; {r.advice.gpu}"
    )


def _signs_of_gpu(r: Recording) -> tuple[str, str]:
    """What the host did with a GPU, and why that may be all there is."""
    if r.has.kernel_launches:
        launches = counted(r.has.kernel_launches, "kernel launch", "kernel launches")
        if r.has.device_ranges:
            return f"the host made {launches}", "hardware counters were recorded in their place"
        return f"the host made {launches}", (
            "another profiler had CUPTI, using it was not allowed, or the profiler stopped before "
            "the activities were written"
        )
    if r.has.handed_over:
        calls = counted(r.has.handed_over, "call")
        return f"the host gave {r.model} work in {calls}", "what ran there is not in the file"
    if r.has.gpu_ops:
        ops = counted(r.has.gpu_ops, "call")
        return f"{ops} went to libraries that run on GPUs alone (cuDNN, NCCL or their like)", (
            "only the CPU's activities were asked for, or libcupti was not found"
        )
    return f"the program had {r.model}", "mostly libcupti is not found or may not be used"


def nothing_of_program(r: Recording) -> str:
    """Runtime calls and nothing else."""
    calls = counted(r.has.runtime_calls, "runtime call")
    both = ", and ".join(dict.fromkeys((r.advice.host, r.advice.gpu)))
    return (
        f"neither an op nor a GPU activity was recorded, only {calls}: what the program did is not "
        f"known; {both}"
    )


def unused(r: Recording) -> str:
    """A GPU that is named and has nothing to do."""
    if r.has.runtime_calls:
        calls = counted(r.has.runtime_calls, "runtime call")
        return (
            f"no {r.device_word} activity was recorded, and none of the {calls} gives {r.model} "
            "work: the program ran on the CPU, as far as the profile tells; if that is not so, "
            f"{r.advice.gpu}"
        )
    return (
        f"no {r.device_word} activity and no call of its runtime was recorded although the profile "
        f"names {r.model}: either the program ran on the CPU, or what it did on that device is not "
        "in the file, and then the host's time is no measure of it; if it used that device, "
        f"{r.advice.gpu}"
    )


def no_kernels(r: Recording) -> str:
    """Launches, and copies, and no kernel."""
    launches = counted(r.has.kernel_launches, "kernel launch", "kernel launches")
    return (
        f"only copies and memsets were recorded on the device although the host made {launches}: "
        f"what the device computed is not known; {r.advice.gpu}"
    )


def only_copies(r: Recording) -> str:
    """Copies, no kernel and no launch of one."""
    return (
        f"the device only copied or set memory ({counted(r.has.activities, 'activity', _ACTS)}), "
        "and no kernel was launched: either the program computes nothing there, or that was not "
        "recorded"
    )


def no_host(r: Recording) -> str:
    """Activities alone."""
    return (
        "nothing of the host was recorded, only GPU activities: when the device waited is known, "
        f"what for is not; {r.advice.host}"
    )


def no_launches(r: Recording) -> str:
    """Activities that nothing enqueued."""
    return (
        "no GPU activity has a launch in this file: when the device waited is known, what for is "
        f"not; {r.advice.links}"
    )


def lost_first(r: Recording) -> str:
    """Launches without an activity before any that has one."""
    where = f"in the first {milliseconds(r.has.lost_first_ns)} ms"
    why = "the profiler was not ready"
    return _lost(r, r.has.lost_first, where, why, "let the profiler warm up for a step first")


def lost_last(r: Recording) -> str:
    """Launches without an activity after all that have one."""
    where = f"in the last {milliseconds(r.has.lost_last_ns)} ms of launching"
    why = "they ran after the profiler had stopped, or it did not write them"
    return _lost(r, r.has.lost_last, where, why, "synchronise before the profiler stops")


def lost_between(r: Recording) -> str:
    """Other launches without an activity."""
    why = "the profiler lost them"
    return _lost(r, r.lost_between, "between others that have one", why, "record fewer steps")


def _lost(r: Recording, lost: int, where: str, why: str, remedy: str) -> str:
    launches = counted(r.has.kernel_launches, "kernel launch", "kernel launches")
    have = "has" if lost == 1 else "have"
    return (
        f"{lost:,} of {launches} {have} no activity, {where} ({why}): the device may have been "
        f"busy where the profile shows it waiting; {remedy}"
    )


def unlaunched(r: Recording) -> str:
    """Activities without a launch, beside others that have one."""
    share = f"{r.has.unlaunched:,} of {r.has.launchable:,} GPU activities"
    if r.has.launched_before == r.has.unlaunched:
        return (
            f"{share} were launched before the profile begins: what the device waited for before "
            "them is not known; synchronise before the profiler starts"
        )
    return (
        f"{share} have no launch in this file (a trimmed profile, or lost events): what the device "
        f"waited for before them is not known; {r.advice.links}"
    )


def overlaps(r: Recording) -> str:
    """Activities that cannot all be true."""
    activities = counted(r.has.overlaps, "GPU activity", "GPU activities")
    return (
        f"{activities} began while another of the same stream ran, for "
        f"{milliseconds(r.has.overlap_ns)} ms in all: a stream runs one after the other (except "
        "kernels that were programmed to begin early), so not all of their lengths are true; busy "
        "time counts each instant once"
    )


def costly(r: Recording) -> str:
    """Settings of the profiler that cost the host time."""
    return (
        f"{listed(r.settings)} were recorded beside the ops: that takes host time of its "
        "own, so dispatch, Python and waiting for the host are shorter without it; record without "
        "it to see by how much"
    )


def calls_alone(r: Recording) -> str:
    """Activities and runtime calls, and nothing of the program."""
    return (
        "no op and no range was recorded: nothing says what the GPU's activities are for, nor what "
        f"the host did between its calls; {r.advice.ops}"
    )


def ranges_alone(r: Recording) -> str:
    """Ranges, and no op in them."""
    ranges = counted(r.has.ranges + r.has.steps, "range")
    where = " in the marked steps" if r.has.ops else ""
    return (
        f"no op was recorded{where}, only {ranges}: whether Python, a framework or waiting took "
        f"the time inside a range is not known; {r.advice.ops}"
    )


def bare_steps(r: Recording) -> str:
    """Marked steps without an activity."""
    steps = counted(r.has.steps, "marked step")
    return (
        f"{r.has.bare_steps:,} of {steps} (step {r.has.first_bare} first) launched nothing of "
        "which an activity was recorded: cut off where the profile begins or ends, or empty; a "
        "mean over all steps is not that of a whole one"
    )


def missing_steps(r: Recording) -> str:
    """Numbers of steps that no marker has."""
    steps = counted(r.missing_steps, "step")
    return (
        f"{steps} between step {r.has.first_step} and step {r.has.last_step} have no marker: their "
        "time may be counted to the step before them"
    )


def other_steps(r: Recording) -> str:
    """Another number of marked steps than were profiled."""
    profiled = counted(len(r.info.profiled_wall_ns or ()), "step")
    return (
        f"{profiled} ran under the profiler and {r.has.steps:,} are marked in the profile: the "
        "mean profiled step is of other steps than their times; capture again"
    )


def separate_clocks(r: Recording) -> str:
    """Ranks whose times cannot be compared."""
    return (
        "ranks have clocks of their own: compare no times between them; record all of them with a "
        "profiler that writes when it began"
    )


def no_markers(r: Recording) -> str:
    """What to do about a profile in which no step is marked."""
    return (
        "no step is marked, so the whole profile is taken as one: --step-range names the ranges "
        "that are steps"
    )

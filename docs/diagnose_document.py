"""The documents of ``lstmprof diagnose --format json``: their fields, and when these are null.

docs/diagnose.schema.json is generated from these records (``make docs``). Times are in ns, shares
are between 0 and 1. Null means unknown or not applicable.
"""

from typing import Annotated, Any, Literal

import msgspec

from lstmprof.breakdown.result import Documented, doc

_Fast = Annotated[int, doc("time in the fast step; 0 for a single run")]
_Slow = Annotated[int, doc("time in the slow step, or in the step of a single run")]
_Delta = Annotated[int, doc("slow_ns − fast_ns")]


class Certainty(Documented, frozen=True):
    """How certain a finding is."""

    level: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], doc("why the level is not higher; empty if measured")]


class Count(Documented, frozen=True):
    """One count or length that is evidence for a finding, per step."""

    quantity: Annotated[str, doc("name of the number, such as launches or median_kernel_ns")]
    unit: Annotated[str, doc("unit; empty for a plain number")]
    fast: Annotated[float | None, doc("value in the fast step; null: unknown, or a single run")]
    slow: Annotated[float | None, doc("value in the slow step; null: unknown")]


class Part(Documented, frozen=True):
    """The time of a finding in one part of the ledger, in both steps."""

    state: Annotated[str, doc("busy, idle or input")]
    part: Annotated[str, doc("category of busy time, cause of idle time")]
    fast_ns: _Fast
    slow_ns: _Slow


class Culprit(Documented, frozen=True):
    """One op, kernel, call or range of a finding, with its time and calls in both steps."""

    name: Annotated[str, doc("name, as the profiler wrote it")]
    fast_ns: _Fast
    slow_ns: _Slow
    fast_count: Annotated[float, doc("calls per step of the fast run; 0 for a single run")]
    slow_count: Annotated[float, doc("calls per step of the slow run")]
    delta_ns: _Delta


class Fix(Documented, frozen=True):
    """A fix: what to change; this profile meets its condition."""

    name: Annotated[str, doc("name of the row in docs/causes.md")]
    cause: Annotated[str, doc("what makes the step slow")]
    seen: Annotated[str, doc("evidence in this profile; may be empty")]
    fix: Annotated[str, doc("what to change")]
    condition: Annotated[str, doc("what a profile must show for this fix")]
    framework: Annotated[str | None, doc("framework; null: the fix works in every framework")]
    saves_ns: Annotated[
        int | None, doc("time per clean step that the fix saves, see at_most; null: unknown")
    ]
    at_most: Annotated[
        bool,
        doc(
            "whether saves_ns is an upper limit, as on a GPU; on a CPU it is the time of the work "
            "that the fix removes"
        ),
    ]
    measured_ns: Annotated[
        int | None, doc("step of the run measured_with; null: there is no such run")
    ]
    measured_with: Annotated[
        str | None, doc("diagnosed run that has the fix; null: there is no such run")
    ]
    gain_ns: Annotated[int | None, doc("slow step minus measured_ns; null: there is no such run")]
    source: Annotated[str, doc("address of a page that explains the fix")]
    implementation: Annotated[
        str | None, doc("implementation to use instead (lstmprof list); null: another change")
    ]
    instead: Annotated[
        str | None, doc("new work that takes an unknown part of saves_ns; null: none")
    ]


class Finding(Documented, frozen=True):
    """What one kind of time adds to the slow step, or takes of the step of a single run."""

    rank: Annotated[int, doc("place in the list, from 1; large savings come first")]
    kind: Annotated[str, doc("kind of time, such as matmul (docs/diagnosis.md)")]
    group: Annotated[str, doc("host if a device waits for its host, else the kind")]
    fast_ns: _Fast
    slow_ns: _Slow
    delta_ns: _Delta
    share: Annotated[
        float | None,
        doc(
            "delta_ns divided by the difference between the steps, or by the step of a single "
            "run; null: the divisor is 0"
        ),
    ]
    saves_ns: Annotated[int, doc("how much shorter the step would be without this kind")]
    saves_by: Annotated[
        Literal["difference", "time taken", "roofline", "replay"],
        doc(
            "how saves_ns was computed: from the other run, as all the time of this kind, as the "
            "time above the least time of the work, or by a replay of the step"
        ),
    ]
    certainty: Certainty
    reason: Annotated[
        str | None,
        doc("why the calls are slower, if kind is slower calls; null: other kinds"),
    ]
    sentence: Annotated[str, doc("the finding in one sentence, with its evidence")]
    counts: Annotated[list[Count], doc("counts that are evidence")]
    parts: Annotated[list[Part], doc("parts of the ledger, largest difference first")]
    largest: Annotated[list[Culprit], doc("ops and kernels with the largest difference")]
    remedies: Annotated[list[Fix], doc("fixes, in the order in which they are advised")]


class Step(Documented, frozen=True):
    """The time of one kind in both steps: a row of the waterfall."""

    kind: Annotated[str, doc("kind of time, such as matmul (docs/diagnosis.md)")]
    fast_ns: _Fast
    slow_ns: _Slow
    delta_ns: _Delta


class Setting(Documented, frozen=True):
    """One setting that differs between two runs."""

    setting: Annotated[str, doc("oneDNN, anomaly mode, an environment variable …")]
    slow: Annotated[str, doc("value in the slow run, as text")]
    fast: Annotated[str, doc("value in the fast run, as text")]


class Lack(Documented, frozen=True):
    """One thing that a profile lacks."""

    run: Annotated[str, doc("name of the run")]
    kind: Annotated[str, doc("what is missing, in a few words")]
    sentence: Annotated[str, doc("what is missing, why, and what to do")]
    share: Annotated[float | None, doc("affected share, 0–1; null: unknown")]
    hides: Annotated[
        str, doc("numbers that are therefore unknown; empty if numbers are only doubtful")
    ]
    blinds: Annotated[bool, doc("whether the profile cannot show where the time goes")]
    ranks: Annotated[list[int], doc("affected ranks; empty if the run has one rank")]


class Doubt(Documented, frozen=True):
    """One reason to doubt the times of a run."""

    run: Annotated[str, doc("name of the run")]
    kind: Annotated[
        str,
        doc(
            "governor: the CPU may lower its clock; loss: the loss did not fall; clocks: the GPU "
            "was throttled; state: steps took longer after the profile"
        ),
    ]
    fault: Annotated[str, doc("the reason")]
    remedy: Annotated[str, doc("what to do about it")]


class Lane(Documented, frozen=True):
    """The rank and device that was diagnosed."""

    rank: Annotated[int | None, doc("rank; null: the profile has no ranks")]
    device: Annotated[int | None, doc("device number; null: the host was diagnosed")]
    of: Annotated[int, doc("number of devices and hosts to choose from, over all ranks")]


class Peaks(Documented, frozen=True):
    """The peak rates of the device."""

    gemm_flops_per_s: Annotated[float, doc("matmuls, in floating-point operations per second")]
    copy_bytes_per_s: Annotated[float, doc("copies, in bytes read and written per second")]


class Reach(Documented, frozen=True):
    """How close some categories of work come to their least time."""

    categories: Annotated[list[str], doc("categories that do the same work")]
    busy_ns: Annotated[float, doc("busy time per step")]
    bound_ns: Annotated[float | None, doc("least time per step; null: the work is unknown")]
    share: Annotated[float | None, doc("bound_ns divided by busy_ns; null: unknown")]


class Roofline(Documented, frozen=True):
    """The least time of the slow run's step."""

    peaks: Peaks
    step_ns: Annotated[float, doc("least time of a step at the peak rates")]
    share: Annotated[
        float | None, doc("step_ns divided by the clean step; null: the step takes no time")
    ]
    memory_share: Annotated[
        float | None, doc("share of step_ns that copies limit; null: step_ns is 0")
    ]
    gemm_flops_per_s: Annotated[
        float | None, doc("rate of matmuls over the clean step; null: the step takes no time")
    ]
    reaches: Annotated[list[Reach], doc("by category of work, longest busy time first")]


class Bottleneck(Documented, frozen=True):
    """The largest part of the predicted step; all fields are null if the step has no parts."""

    state: Annotated[str | None, doc("busy or idle")]
    part: Annotated[str | None, doc("category of busy time, cause of idle time")]
    ns: Annotated[int | None, doc("time of the part")]


class WhatIf(Documented, frozen=True):
    """The slow step replayed with one change, or forecast in another form."""

    change: Annotated[str, doc("the change in words")]
    form: Annotated[str | None, doc("form of a forecast: layer or compiled; null: a replay")]
    error: Annotated[
        dict[str, Any] | None,
        doc(
            "error of earlier forecasts of this form: number of pairs, and median and worst error "
            "as a share of the measured step; null: a replay, or not measured"
        ),
    ]
    observed_ns: Annotated[int, doc("length of the profiled step")]
    replayed_ns: Annotated[int, doc("length of the replay without the change")]
    predicted_ns: Annotated[int, doc("length of the replay with the change")]
    saved_ns: Annotated[int, doc("replayed_ns − predicted_ns")]
    bottleneck: Bottleneck
    sentence: Annotated[str, doc("the result in one sentence")]


class Ratio(Documented, frozen=True):
    """The slow step divided by the fast step, with the ends of the 95 % interval."""

    low: Annotated[float, doc("low end of the interval")]
    value: Annotated[float, doc("the ratio")]
    high: Annotated[float | None, doc("high end of the interval; null: unbounded")]


class Rare(Documented, frozen=True):
    """An event that occurs, or takes long, in some of the steps only."""

    name: Annotated[str, doc("name of the event")]
    steps: Annotated[int, doc("number of steps in which it occurs or takes long")]
    each_ns: Annotated[int, doc("median time of the event in these steps")]


class Verdict(Documented, frozen=True):
    """The verdict: what the terminal and the report show first."""

    subject: Annotated[str, doc("name of the slow run, or of a single run")]
    baseline: Annotated[str | None, doc("name of the fast run; null: a single run")]
    sentence: Annotated[str, doc("the verdict in one sentence")]
    step_ns: Annotated[float, doc("clean step of subject")]
    step_low_ns: Annotated[float, doc("low end of the 95 % interval of step_ns")]
    step_high_ns: Annotated[float, doc("high end of the 95 % interval of step_ns")]
    ratio: Annotated[
        Ratio | None, doc("step of subject divided by step of baseline; null: a single run")
    ]
    cause: Annotated[str | None, doc("what in the code takes the time; null: unknown")]
    kind: Annotated[str | None, doc("kind of time of the bottleneck; null unless state is found")]
    bottleneck: Annotated[
        str | None,
        doc("kind, or waiting for the host if a device waits in several ways; null: unknown"),
    ]
    evidence: Annotated[str | None, doc("counts that show the bottleneck; null: none")]
    fixes: Annotated[list[Fix], doc("fixes, best first")]
    certainty: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], doc("why certainty is not higher; empty if measured")]
    lost_ns: Annotated[
        float | None,
        doc("median timed iteration minus the clean step; null: unknown, or not above 0"),
    ]
    now_and_then: Annotated[list[Rare], doc("events that occur, or take long, in some steps only")]


class Document(Documented, frozen=True):
    """One diagnosis: why ``slow`` is slower than ``fast``, or what limits a single run."""

    schema_version: Annotated[int, doc("version of this document's schema")]
    slow: Annotated[str, doc("name of the slow run, or of a single run")]
    fast: Annotated[str | None, doc("name of the fast run; null: a single run")]
    slow_ns: Annotated[int, doc("step of slow")]
    fast_ns: Annotated[int | None, doc("step of fast; null: a single run")]
    difference_ns: Annotated[
        int | None,
        doc(
            "slow_ns − fast_ns, the sum of the findings' delta_ns; null: a single run, whose "
            "findings sum to slow_ns"
        ),
    ]
    steps: Annotated[
        Literal["clean", "profiled"], doc("whether slow_ns is the clean or the mean profiled step")
    ]
    state: Annotated[
        Literal["found", "none", "unknown"],
        doc(
            "found: there is a cause; none: no difference beyond noise; unknown: the profile does "
            "not show the cause"
        ),
    ]
    reason: Annotated[str | None, doc("why state is none or unknown; null: state is found")]
    verdict: Verdict
    settings: Annotated[list[Setting], doc("settings that differ; empty for a single run")]
    lacks: Annotated[list[Lack], doc("data that the profiles lack, most important first")]
    lane: Annotated[Lane, doc("rank and device of slow")]
    fast_lane: Annotated[Lane | None, doc("rank and device of fast; null: a single run")]
    straggler: Annotated[
        dict[str, Any] | None,
        doc(
            "device for which the others wait in collectives (state: found, none or unknown); "
            "null: there is one device and no communication"
        ),
    ]
    overlap: Annotated[
        dict[str, Any] | None,
        doc(
            "communication per step: its time, the part in which the device computed nothing, "
            "and the share during which the device computed; null: no communication"
        ),
    ]
    busy_share: Annotated[float | None, doc("busy share of the step, 0–1; null: on a host")]
    waterfall: Annotated[
        list[Step], doc("time by kind, in the order of findings; empty for a single run")
    ]
    findings: Annotated[list[Finding], doc("all kinds of time; large savings come first")]
    roofline: Annotated[
        Roofline | None, doc("null: the work of the step or the peak rates are unknown")
    ]
    what_if: Annotated[list[WhatIf], doc("replays that were requested")]
    doubts: Annotated[list[Doubt], doc("reasons to doubt the times")]
    warnings: Annotated[list[str], doc("the doubts, one sentence each")]
    notes: Annotated[list[str], doc("facts that help to read the diagnosis")]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the output: a list of documents."""
    return msgspec.json.schema(list[Document])

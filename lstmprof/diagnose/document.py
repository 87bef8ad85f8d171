"""The documents of ``lstmprof diagnose --format json``: their fields, and when these are null.

docs/diagnose.schema.json is generated from these records (``make docs``). Times are in ns, shares
are between 0 and 1. Null means unknown or not applicable.
"""

from typing import Annotated, Any, Literal

import msgspec

VERSION = 4


def _is(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document; every field is always present."""


_Fast = Annotated[int, _is("time in the fast step; 0 for a single run")]
_Slow = Annotated[int, _is("time in the slow step, or in the step of a single run")]
_Delta = Annotated[int, _is("slow_ns − fast_ns")]


class Certainty(_Record, frozen=True):
    """How certain a finding is."""

    level: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], _is("why the level is not higher; empty if measured")]


class Count(_Record, frozen=True):
    """One count or length that is evidence for a finding, per step."""

    quantity: Annotated[str, _is("name of the number, such as launches or median_kernel_ns")]
    unit: Annotated[str, _is("unit; empty for a plain number")]
    fast: Annotated[float | None, _is("value in the fast step; null: unknown, or a single run")]
    slow: Annotated[float | None, _is("value in the slow step; null: unknown")]


class Part(_Record, frozen=True):
    """The time of a finding in one part of the ledger, in both steps."""

    state: Annotated[str, _is("busy, idle or input")]
    part: Annotated[str, _is("category of busy time, cause of idle time")]
    fast_ns: _Fast
    slow_ns: _Slow


class Culprit(_Record, frozen=True):
    """One op, kernel, call or range of a finding, with its time and calls in both steps."""

    name: Annotated[str, _is("name, as the profiler wrote it")]
    fast_ns: _Fast
    slow_ns: _Slow
    fast_count: Annotated[float, _is("calls per step of the fast run; 0 for a single run")]
    slow_count: Annotated[float, _is("calls per step of the slow run")]
    delta_ns: _Delta


class Fix(_Record, frozen=True):
    """A fix: what to change; this profile meets its condition."""

    name: Annotated[str, _is("name of the row in docs/causes.md")]
    cause: Annotated[str, _is("what makes the step slow")]
    seen: Annotated[str, _is("evidence in this profile; may be empty")]
    fix: Annotated[str, _is("what to change")]
    condition: Annotated[str, _is("what a profile must show for this fix")]
    framework: Annotated[str | None, _is("framework; null: the fix works in every framework")]
    saves_ns: Annotated[
        int | None, _is("time per clean step that the fix saves, see at_most; null: unknown")
    ]
    at_most: Annotated[
        bool,
        _is(
            "whether saves_ns is an upper limit, as on a GPU; on a CPU it is the time of the work "
            "that the fix removes"
        ),
    ]
    measured_ns: Annotated[
        int | None, _is("step of the run measured_with; null: there is no such run")
    ]
    measured_with: Annotated[
        str | None, _is("diagnosed run that has the fix; null: there is no such run")
    ]
    gain_ns: Annotated[int | None, _is("how much shorter that step is; null: there is no such run")]
    source: Annotated[str, _is("address of a page that explains the fix")]
    implementation: Annotated[
        str | None, _is("implementation to use instead (lstmprof list); null: another change")
    ]
    instead: Annotated[
        str | None, _is("new work that takes an unknown part of saves_ns; null: none")
    ]


class Finding(_Record, frozen=True):
    """What one kind of time adds to the slow step, or takes of the step of a single run."""

    rank: Annotated[int, _is("place in the list, from 1; large savings come first")]
    kind: Annotated[str, _is("kind of time, such as matmul (docs/diagnosis.md)")]
    group: Annotated[str, _is("host if a device waits for its host, else the kind")]
    fast_ns: _Fast
    slow_ns: _Slow
    delta_ns: _Delta
    share: Annotated[
        float | None,
        _is(
            "delta_ns divided by the difference between the steps, or by the step of a single "
            "run; null: the divisor is 0"
        ),
    ]
    saves_ns: Annotated[int, _is("how much shorter the step would be without this kind")]
    saves_by: Annotated[
        Literal["difference", "time taken", "roofline", "replay"],
        _is(
            "how saves_ns was computed: from the other run, as all the time of this kind, as the "
            "time above the least time of the work, or by a replay of the step"
        ),
    ]
    certainty: Certainty
    reason: Annotated[
        str | None,
        _is("why the calls are slower, if kind is slower calls of two runs; null: other findings"),
    ]
    sentence: Annotated[str, _is("the finding in one sentence, with its evidence")]
    counts: Annotated[list[Count], _is("counts that are evidence")]
    parts: Annotated[list[Part], _is("parts of the ledger, largest difference first")]
    largest: Annotated[list[Culprit], _is("ops and kernels with the largest difference")]
    remedies: Annotated[list[Fix], _is("fixes, in the order in which they are advised")]


class Step(_Record, frozen=True):
    """The time of one kind in both steps: a row of the waterfall."""

    kind: Annotated[str, _is("kind of time, such as matmul (docs/diagnosis.md)")]
    fast_ns: _Fast
    slow_ns: _Slow
    delta_ns: _Delta


class Setting(_Record, frozen=True):
    """One setting that differs between two runs."""

    setting: Annotated[str, _is("oneDNN, anomaly mode, an environment variable …")]
    slow: Annotated[str, _is("value in the slow run, as text")]
    fast: Annotated[str, _is("value in the fast run, as text")]


class Lack(_Record, frozen=True):
    """One thing that a profile lacks."""

    run: Annotated[str, _is("name of the run")]
    kind: Annotated[str, _is("what is missing, in a few words")]
    sentence: Annotated[str, _is("what is missing, why, and what to do")]
    share: Annotated[float | None, _is("affected share, 0–1; null: unknown")]
    hides: Annotated[
        str, _is("numbers that are unknown for lack of it; empty if they are only doubtful")
    ]
    blinds: Annotated[bool, _is("whether the profile cannot show where the time goes")]
    ranks: Annotated[list[int], _is("affected ranks; empty if the run has one rank")]


class Doubt(_Record, frozen=True):
    """One reason to doubt the times of a run."""

    run: Annotated[str, _is("name of the run")]
    kind: Annotated[
        str,
        _is(
            "governor: the CPU may lower its clock; loss: the loss did not fall; clocks: the GPU "
            "was throttled; state: steps took longer after the profile"
        ),
    ]
    fault: Annotated[str, _is("the reason")]
    remedy: Annotated[str, _is("what to do about it")]


class Lane(_Record, frozen=True):
    """The rank and device that was diagnosed."""

    rank: Annotated[int | None, _is("rank; null: the profile has no ranks")]
    device: Annotated[int | None, _is("device number; null: the host was diagnosed")]
    of: Annotated[int, _is("number of devices and hosts to choose from, over all ranks")]


class Peaks(_Record, frozen=True):
    """The peak rates of the device."""

    gemm_flops_per_s: Annotated[float, _is("matmuls, in floating-point operations per second")]
    copy_bytes_per_s: Annotated[float, _is("copies, in bytes read and written per second")]


class Reach(_Record, frozen=True):
    """How close some categories of work come to their least time."""

    categories: Annotated[list[str], _is("categories that do the same work")]
    busy_ns: Annotated[float, _is("busy time per step")]
    bound_ns: Annotated[float | None, _is("least time per step; null: the work is unknown")]
    share: Annotated[float | None, _is("bound_ns divided by busy_ns; null: unknown")]


class Roofline(_Record, frozen=True):
    """The least time of the slow run's step."""

    peaks: Peaks
    step_ns: Annotated[float, _is("least time of a step at the peak rates")]
    share: Annotated[
        float | None, _is("step_ns divided by the clean step; null: the step takes no time")
    ]
    memory_share: Annotated[
        float | None, _is("share of step_ns that copies limit; null: step_ns is 0")
    ]
    gemm_flops_per_s: Annotated[
        float | None, _is("rate of matmuls over the clean step; null: the step takes no time")
    ]
    reaches: Annotated[list[Reach], _is("by category of work, longest busy time first")]


class Bottleneck(_Record, frozen=True):
    """The largest part of the predicted step; all fields are null if the step has no parts."""

    state: Annotated[str | None, _is("busy or idle")]
    part: Annotated[str | None, _is("category of busy time, cause of idle time")]
    ns: Annotated[int | None, _is("time of the part")]


class WhatIf(_Record, frozen=True):
    """The slow step replayed with one change, or forecast in another form."""

    change: Annotated[str, _is("the change in words")]
    form: Annotated[str | None, _is("form of a forecast: layer or compiled; null: a replay")]
    error: Annotated[
        dict[str, Any] | None,
        _is(
            "error of earlier forecasts of this form: number of pairs, and median and worst error "
            "as a share of the measured step; null: a replay, or not measured"
        ),
    ]
    observed_ns: Annotated[int, _is("length of the profiled step")]
    replayed_ns: Annotated[int, _is("length of the replay without the change")]
    predicted_ns: Annotated[int, _is("length of the replay with the change")]
    saved_ns: Annotated[int, _is("replayed_ns − predicted_ns")]
    bottleneck: Bottleneck
    sentence: Annotated[str, _is("the result in one sentence")]


class Ratio(_Record, frozen=True):
    """The slow step divided by the fast step, with the ends of the 95 % interval."""

    low: Annotated[float, _is("low end of the interval")]
    value: Annotated[float, _is("the ratio")]
    high: Annotated[float | None, _is("high end of the interval; null: unbounded")]


class Rare(_Record, frozen=True):
    """An event that occurs, or takes long, in some of the steps only."""

    name: Annotated[str, _is("name of the event")]
    steps: Annotated[int, _is("number of steps in which it occurs or takes long")]
    each_ns: Annotated[int, _is("median time of the event in these steps")]


class Verdict(_Record, frozen=True):
    """The verdict: what the terminal and the report show first."""

    subject: Annotated[str, _is("name of the slow run, or of a single run")]
    baseline: Annotated[str | None, _is("name of the fast run; null: a single run")]
    sentence: Annotated[str, _is("the verdict in one sentence")]
    step_ns: Annotated[float, _is("clean step of subject")]
    step_low_ns: Annotated[float, _is("low end of its 95 % interval")]
    step_high_ns: Annotated[float, _is("high end of that interval")]
    ratio: Annotated[
        Ratio | None, _is("step of subject divided by that of baseline; null: a single run")
    ]
    cause: Annotated[str | None, _is("what in the code takes the time; null: unknown")]
    kind: Annotated[str | None, _is("kind of time that is named; null unless state is found")]
    bottleneck: Annotated[
        str | None, _is("kind, or waiting for the host if several waits count; null: unknown")
    ]
    evidence: Annotated[str | None, _is("counts that show the bottleneck; null: none")]
    fixes: Annotated[list[Fix], _is("fixes, best first")]
    certainty: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], _is("why certainty is not higher; empty if measured")]
    lost_ns: Annotated[
        float | None,
        _is("time by which the median timed iteration exceeds the clean step; null: none, unknown"),
    ]
    now_and_then: Annotated[list[Rare], _is("events that occur, or take long, in some steps only")]


class Document(_Record, frozen=True):
    """One diagnosis: why ``slow`` is slower than ``fast``, or what limits a single run."""

    schema_version: Annotated[int, _is("version of this document's schema")]
    slow: Annotated[str, _is("name of the slow run, or of a single run")]
    fast: Annotated[str | None, _is("name of the fast run; null: a single run")]
    slow_ns: Annotated[int, _is("step of slow")]
    fast_ns: Annotated[int | None, _is("step of fast; null: a single run")]
    difference_ns: Annotated[
        int | None,
        _is(
            "slow_ns − fast_ns, the sum of the findings' delta_ns; null: a single run, whose "
            "findings sum to slow_ns"
        ),
    ]
    steps: Annotated[
        Literal["clean", "profiled"], _is("whether slow_ns is the clean or the mean profiled step")
    ]
    state: Annotated[
        Literal["found", "none", "unknown"],
        _is(
            "found: there is a cause; none: no difference beyond noise; unknown: the profile does "
            "not show the cause"
        ),
    ]
    reason: Annotated[str | None, _is("why state is none or unknown; null: state is found")]
    verdict: Verdict
    settings: Annotated[list[Setting], _is("settings that differ; empty for a single run")]
    lacks: Annotated[list[Lack], _is("data that the profiles lack, most important first")]
    lane: Annotated[Lane, _is("rank and device of slow")]
    fast_lane: Annotated[Lane | None, _is("rank and device of fast; null: a single run")]
    straggler: Annotated[
        dict[str, Any] | None,
        _is(
            "device that the others wait for in collectives (state: found, none or unknown); "
            "null: there is one device and no communication"
        ),
    ]
    overlap: Annotated[
        dict[str, Any] | None,
        _is(
            "communication per step: its time, the time in which nothing else ran, and the share "
            "during which the device computed; null: no communication"
        ),
    ]
    busy_share: Annotated[float | None, _is("busy share of the step, 0–1; null: on a host")]
    waterfall: Annotated[
        list[Step], _is("time by kind, in the order of findings; empty for a single run")
    ]
    findings: Annotated[list[Finding], _is("all kinds of time; large savings come first")]
    roofline: Annotated[
        Roofline | None, _is("null: the work of the step or the peak rates are unknown")
    ]
    what_if: Annotated[list[WhatIf], _is("replays that were requested")]
    doubts: Annotated[list[Doubt], _is("reasons to doubt the times")]
    warnings: Annotated[list[str], _is("the doubts, one sentence each")]
    notes: Annotated[list[str], _is("facts that help to read the diagnosis")]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the output: a list of documents."""
    return msgspec.json.schema(list[Document])

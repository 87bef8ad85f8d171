"""What ``lstmprof diagnose --format json`` writes, a list of these: every field, when it is null.

The records are the schema, too: docs/diagnose.schema.json is made of them (``make docs``). Times
are nanoseconds, shares 0–1; null is unknown, or does not apply.
"""

from typing import Annotated, Any, Literal

import msgspec

VERSION = 4


def _is(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document; all its fields are always there."""


class Certainty(_Record, frozen=True):
    """How far a finding can be trusted."""

    level: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], _is("why the level is not higher; empty for 'measured'")]


class Count(_Record, frozen=True):
    """One count or length that is evidence of a finding, per step."""

    quantity: Annotated[str, _is("name of the quantity, like launches or median_kernel_ns")]
    unit: Annotated[str, _is("unit of fast and slow; empty for plain numbers")]
    fast: float | None
    slow: float | None


class Part(_Record, frozen=True):
    """One part of the ledger among a finding's time, of both steps."""

    state: Annotated[str, _is("state of the time: busy, idle or input")]
    part: Annotated[str, _is("category of busy time, or cause of idle time")]
    fast_ns: int
    slow_ns: int


class Culprit(_Record, frozen=True):
    """One op, kernel, call or range of a finding."""

    name: str
    fast_ns: int
    slow_ns: int
    fast_count: Annotated[float, _is("calls per step of the fast run")]
    slow_count: Annotated[float, _is("calls per step of the slow run")]
    delta_ns: int


class Fix(_Record, frozen=True):
    """What to change; its condition was seen in this profile."""

    name: str
    cause: Annotated[str, _is("what makes the step slow: a row of docs/causes.md")]
    seen: Annotated[str, _is("the evidence for it; may be empty")]
    fix: Annotated[str, _is("what to change")]
    condition: Annotated[str, _is("what a profile must show for this cause")]
    framework: Annotated[str | None, _is("framework of the fix; null: any")]
    saves_ns: Annotated[int | None, _is("time of the clean step that it addresses; null: unknown")]
    measured_ns: Annotated[
        int | None, _is("step time of a diagnosed run of implementation; null: no such run")
    ]
    gain_ns: Annotated[int | None, _is("step time minus measured_ns; null: not measured")]
    source: Annotated[str, _is("address of a page about the fix")]
    implementation: Annotated[
        str | None, _is("implementation to use instead, by its name in lstmprof list")
    ]
    instead: Annotated[
        str | None, _is("new work of the fix, which takes an unknown part of saves_ns")
    ]


class Finding(_Record, frozen=True):
    """What one kind of time adds to the slow step; of a run alone what it takes of the step."""

    rank: Annotated[int, _is("order in which findings are shown, from 1")]
    kind: Annotated[str, _is("kind of time, a key of lstmprof.diagnose.causes.KINDS")]
    group: Annotated[str, _is("'host' if a device waits for its host, else the kind")]
    fast_ns: int
    slow_ns: int
    delta_ns: int
    share: Annotated[
        float | None,
        _is("share of the difference, or of the step of a single run; null if that is 0"),
    ]
    saves_ns: Annotated[int, _is("time by which the step would be shorter without this finding")]
    saves_by: Annotated[
        Literal["difference", "time taken", "roofline", "replay"], _is("how saves_ns is known")
    ]
    certainty: Certainty
    reason: Annotated[
        str | None, _is("for slower calls, what makes them slower; null for other kinds")
    ]
    sentence: str
    counts: list[Count]
    parts: list[Part]
    largest: list[Culprit]
    remedies: list[Fix]


class Step(_Record, frozen=True):
    """One row of the waterfall."""

    kind: str
    fast_ns: int
    slow_ns: int
    delta_ns: int


class Setting(_Record, frozen=True):
    """One setting that differs between two runs, its values in words."""

    setting: Annotated[str, _is("name, like oneDNN, anomaly mode or an environment variable")]
    slow: str
    fast: str


class Lack(_Record, frozen=True):
    """One thing that a profile lacks."""

    run: str
    kind: str
    sentence: str
    share: Annotated[float | None, _is("share of events affected, 0–1; null: unknown")]
    hides: Annotated[
        str, _is("results that are unknown because of it; empty if they are only doubtful")
    ]
    blinds: Annotated[bool, _is("whether it hides what the time was spent on")]
    ranks: Annotated[list[int], _is("ranks that lack it, in a run of several ranks")]


class Doubt(_Record, frozen=True):
    """One reason to doubt the times of a run."""

    run: str
    kind: Annotated[str, _is("governor, loss, clocks or state")]
    fault: str
    remedy: str


class Lane(_Record, frozen=True):
    """Which of so many lanes was diagnosed; a device of null is the host."""

    rank: int | None
    device: int | None
    of: int


class Peaks(_Record, frozen=True):
    """The highest rates of the device."""

    gemm_flops_per_s: float
    copy_bytes_per_s: float


class Reach(_Record, frozen=True):
    """Categories that do the same work: busy time, and its least."""

    categories: list[str]
    busy_ns: float
    bound_ns: float | None
    share: float | None


class Roofline(_Record, frozen=True):
    """The least time of the slow run's step."""

    peaks: Peaks
    step_ns: float
    share: float | None
    memory_share: float | None
    gemm_flops_per_s: float | None
    reaches: list[Reach]


class Bottleneck(_Record, frozen=True):
    """The largest part of the ledger that a change leaves; null where no time is."""

    state: str | None
    part: str | None
    ns: int | None


class WhatIf(_Record, frozen=True):
    """The slow step replayed with one change, or forecast in another form."""

    change: str
    form: Annotated[
        str | None, _is("form of the recurrent layers: layer or compiled; null for a replay")
    ]
    error: Annotated[
        dict[str, Any] | None,
        _is("error of such forecasts: number of tests, median and worst share; null: not measured"),
    ]
    observed_ns: int
    replayed_ns: Annotated[int, _is("time of the unchanged step in the replay")]
    predicted_ns: int
    saved_ns: int
    bottleneck: Bottleneck
    sentence: str


class Ratio(_Record, frozen=True):
    """How many times as long the slow step takes, with its 95 % interval."""

    low: float
    value: float
    high: Annotated[float | None, _is("upper end of the interval; null: unbounded")]


class Rare(_Record, frozen=True):
    """An event of some of the steps."""

    name: str
    steps: Annotated[int, _is("number of steps with this event")]
    each_ns: Annotated[int, _is("median duration of the event")]


class Verdict(_Record, frozen=True):
    """What the terminal and the report show first."""

    subject: Annotated[str, _is("label of the slow run, or of the single run")]
    baseline: Annotated[str | None, _is("label of the fast run; null for a single run")]
    sentence: Annotated[str, _is("the verdict in one sentence")]
    step_ns: Annotated[float, _is("clean step of subject")]
    step_low_ns: Annotated[float, _is("lower end of the 95 % interval of step_ns")]
    step_high_ns: Annotated[float, _is("upper end of the 95 % interval of step_ns")]
    ratio: Annotated[Ratio | None, _is("step of subject / step of baseline; null for a single run")]
    cause: Annotated[str | None, _is("what in the code takes the time; null: unknown")]
    kind: Annotated[
        str | None, _is("kind of the finding that the verdict names; null unless state is found")
    ]
    bottleneck: Annotated[
        str | None, _is("kind of time, or 'waiting for the host' for several kinds of waits")
    ]
    evidence: Annotated[str | None, _is("the counts behind the bottleneck; null: none")]
    fixes: Annotated[list[Fix], _is("fixes, the best first")]
    certainty: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], _is("why the verdict is not more certain")]
    lost_ns: Annotated[
        float | None,
        _is("median timed iteration minus the clean step; null: not timed, or not longer"),
    ]
    now_and_then: Annotated[list[Rare], _is("long events that occur in only some of the steps")]


class Document(_Record, frozen=True):
    """One diagnosis: of two runs why ``slow`` is slower, of one what its step is bound by."""

    schema_version: Annotated[int, _is("version of this document's schema")]
    slow: str
    fast: Annotated[str | None, _is("name of the fast run; null for a single run")]
    slow_ns: int
    fast_ns: int | None
    difference_ns: Annotated[
        int | None,
        _is("slow_ns minus fast_ns, the sum of the findings' delta_ns; null for a single run"),
    ]
    steps: Annotated[Literal["clean", "profiled"], _is("which steps slow_ns and fast_ns measure")]
    state: Annotated[
        Literal["found", "none", "unknown"],
        _is("found: a cause; none: no difference beyond noise; unknown: the cause is unknown"),
    ]
    reason: Annotated[str | None, _is("why state is none or unknown; null if it is found")]
    verdict: Verdict
    settings: Annotated[list[Setting], _is("settings that differ; empty for a single run")]
    lacks: Annotated[list[Lack], _is("what the profiles lack, the most important first")]
    lane: Lane
    fast_lane: Lane | None
    straggler: Annotated[
        dict[str, Any] | None, _is("rank that the other ranks wait for; null for a single rank")
    ]
    overlap: Annotated[
        dict[str, Any] | None,
        _is("time of communication and computing at once; null without communication"),
    ]
    busy_share: Annotated[
        float | None, _is("share of the profiled step in which the device is busy; null on a CPU")
    ]
    waterfall: Annotated[
        list[Step],
        _is("difference by kind of time, in the order of findings; empty for a single run"),
    ]
    findings: list[Finding]
    roofline: Roofline | None
    what_if: list[WhatIf]
    doubts: list[Doubt]
    warnings: Annotated[list[str], _is("doubts as sentences")]
    notes: list[str]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what is written: a list of documents."""
    return msgspec.json.schema(list[Document])

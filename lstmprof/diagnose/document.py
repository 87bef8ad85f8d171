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
    reasons: Annotated[list[str], _is("why no further; empty of what is measured")]


class Count(_Record, frozen=True):
    """One count or length that is evidence of a finding, per step."""

    quantity: Annotated[str, _is("products, launches, median_kernel_ns …")]
    unit: Annotated[str, _is("empty of a plain number")]
    fast: float | None
    slow: float | None


class Part(_Record, frozen=True):
    """One part of the ledger among a finding's time, of both steps."""

    state: Annotated[str, _is("busy, idle or input")]
    part: Annotated[str, _is("of busy time its category, of idle time its cause")]
    fast_ns: int
    slow_ns: int


class Culprit(_Record, frozen=True):
    """One op, kernel, call or range of a finding."""

    name: str
    fast_ns: int
    slow_ns: int
    fast_count: Annotated[float, _is("calls per step")]
    slow_count: Annotated[float, _is("calls per step")]
    delta_ns: int


class Fix(_Record, frozen=True):
    """What to change; its condition was seen in this profile."""

    name: str
    cause: Annotated[str, _is("what makes the step slow: a row of docs/causes.md")]
    seen: Annotated[str, _is("the evidence for it; may be empty")]
    fix: Annotated[str, _is("what to change")]
    condition: Annotated[str, _is("what must be seen")]
    framework: Annotated[str | None, _is("null: for any")]
    saves_ns: Annotated[int | None, _is("time of the clean step that it addresses; null: unknown")]
    measured_ns: Annotated[
        int | None, _is("step of a run of that implementation beside this run; null: none")
    ]
    gain_ns: Annotated[int | None, _is("what that run takes less; null: not measured")]
    source: Annotated[str, _is("where to read of it, an address")]
    implementation: Annotated[str | None, _is("what it advises to use instead: a row of list")]
    instead: Annotated[str | None, _is("what will take some of saves_ns, unknown how much")]


class Finding(_Record, frozen=True):
    """What one kind of time adds to the slow step; of a run alone what it takes of the step."""

    rank: Annotated[int, _is("from 1: the order of all that is said")]
    kind: Annotated[str, _is("lstmprof.diagnose.causes.KINDS")]
    group: Annotated[str, _is("'host' of a device's waits for its host, else the kind")]
    fast_ns: int
    slow_ns: int
    delta_ns: int
    share: Annotated[float | None, _is("of the difference, or of the step; null where that is 0")]
    saves_ns: Annotated[int, _is("what the step would be shorter by without it")]
    saves_by: Annotated[
        Literal["difference", "time taken", "roofline", "replay"], _is("how that is known")
    ]
    certainty: Certainty
    reason: Annotated[str | None, _is("of slower calls what makes them slower; null of others")]
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

    setting: Annotated[str, _is("oneDNN, anomaly mode, a variable of the environment …")]
    slow: str
    fast: str


class Lack(_Record, frozen=True):
    """One thing that a profile lacks."""

    run: str
    kind: str
    sentence: str
    share: Annotated[float | None, _is("how much it concerns; null unknown")]
    hides: Annotated[str, _is("numbers that are not known for it, empty where only doubtful")]
    blinds: Annotated[bool, _is("whether nothing can be said of what the time was spent on")]
    ranks: Annotated[list[int], _is("that lack it, of a run of several")]


class Doubt(_Record, frozen=True):
    """One reason to doubt the times of a run."""

    run: str
    kind: Annotated[str, _is("governor, loss, clocks, state: breakdown/doubts.py")]
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
    form: Annotated[str | None, _is("layer or compiled; null of a replay")]
    error: Annotated[
        dict[str, Any] | None,
        _is("pairs, median and worst share by which such forecasts were off; null: not measured"),
    ]
    observed_ns: int
    replayed_ns: Annotated[int, _is("the unchanged step as it is replayed")]
    predicted_ns: int
    saved_ns: int
    bottleneck: Bottleneck
    sentence: str


class Ratio(_Record, frozen=True):
    """How many times as long the slow step takes, with its 95 % interval."""

    low: float
    value: float
    high: Annotated[float | None, _is("null: no end")]


class Rare(_Record, frozen=True):
    """An event of some of the steps."""

    name: str
    steps: Annotated[int, _is("that have it")]
    each_ns: Annotated[int, _is("median of them")]


class Verdict(_Record, frozen=True):
    """What the terminal and the report show first."""

    subject: Annotated[str, _is("the slow run, or the run alone")]
    baseline: Annotated[str | None, _is("the fast run; null: a run alone")]
    sentence: Annotated[str, _is("the verdict in one sentence")]
    step_ns: Annotated[float, _is("the clean step of subject")]
    step_low_ns: Annotated[float, _is("low end of its 95 % interval")]
    step_high_ns: Annotated[float, _is("high end of it")]
    ratio: Annotated[Ratio | None, _is("subject's step over baseline's; null: a run alone")]
    cause: Annotated[str | None, _is("what in the code takes the time; null: unknown")]
    kind: Annotated[str | None, _is("of the finding that is named; null unless state is found")]
    bottleneck: Annotated[str | None, _is("kind, or 'waiting for the host' if several waits count")]
    evidence: Annotated[str | None, _is("the counts behind the bottleneck; null: none")]
    fixes: Annotated[list[Fix], _is("best first")]
    certainty: Literal["measured", "likely", "unknown"]
    reasons: Annotated[list[str], _is("why it is no more certain")]
    lost_ns: Annotated[
        float | None,
        _is("what the median timed iteration took beyond the clean step; null: not timed, or none"),
    ]
    now_and_then: Annotated[list[Rare], _is("events of some of the steps that take long")]


class Document(_Record, frozen=True):
    """One diagnosis: of two runs why ``slow`` is slower, of one what its step is bound by."""

    schema_version: Annotated[int, _is("of this document")]
    slow: str
    fast: Annotated[str | None, _is("null: a run alone")]
    slow_ns: int
    fast_ns: int | None
    difference_ns: Annotated[int | None, _is("the findings' delta_ns sum to it, or to slow_ns")]
    steps: Annotated[Literal["clean", "profiled"], _is("what slow_ns and fast_ns are of")]
    state: Annotated[
        Literal["found", "none", "unknown"],
        _is("a cause was found; no difference beyond noise; could not look, or cannot be told"),
    ]
    reason: Annotated[str | None, _is("why none or unknown; null where found")]
    verdict: Verdict
    settings: Annotated[list[Setting], _is("what was set otherwise; empty of a run alone")]
    lacks: Annotated[list[Lack], _is("what the profiles lack, the gravest first")]
    lane: Lane
    fast_lane: Lane | None
    straggler: Annotated[
        dict[str, Any] | None, _is("whom the ranks wait for; null of one that runs alone")
    ]
    overlap: Annotated[
        dict[str, Any] | None, _is("communication and computing at once; null without either")
    ]
    busy_share: Annotated[float | None, _is("of the profiled step; null on a host")]
    waterfall: Annotated[list[Step], _is("in the order of the findings; empty of a run alone")]
    findings: list[Finding]
    roofline: Roofline | None
    what_if: list[WhatIf]
    doubts: list[Doubt]
    warnings: Annotated[list[str], _is("the doubts in words")]
    notes: list[str]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what is written: a list of documents."""
    return msgspec.json.schema(list[Document])

"""The document that ``lstmprof compare --format json`` writes: its fields, and when they are null.

docs/compare.schema.json is generated from these records (``make docs``). Times are in ns, shares
are between 0 and 1. Null means unknown or not applicable.
"""

from typing import Annotated, Any, Literal

import msgspec

from lstmprof.breakdown.result import Documented, doc

_State = Literal["pass", "fail", "inconclusive"]


class Limit(Documented, frozen=True):
    """One condition of --fail-if, with the measured value."""

    limit: Annotated[str, doc("condition, as given")]
    unit: Annotated[Literal["share", "ns"], doc("unit of most, value, low and high")]
    most: Annotated[float, doc("limit: larger values meet the condition, so the gate fails")]
    value: Annotated[float | None, doc("measured value; null: a step takes no time")]
    low: Annotated[
        float | None,
        doc("low end of the 95 % interval; fail if it is above most; null: a step takes no time"),
    ]
    high: Annotated[
        float | None,
        doc(
            "high end of the 95 % interval; pass if it is not above most; null: unbounded, or as "
            "for low"
        ),
    ]
    state: Annotated[_State, doc("whether the new run keeps this limit")]


class Pair(Documented, frozen=True):
    """One base run and the new run that is compared with it."""

    state: Annotated[_State, doc("worst state of the limits")]
    sentence: Annotated[str, doc("the verdict in one sentence")]
    advice: Annotated[
        str | None, doc("how to get a decision; null: not inconclusive, or no advice")
    ]
    why: Annotated[
        str | None, doc("diagnosis of the new run in one sentence; null if it did not fail")
    ]
    implementation: Annotated[str | None, doc("implementation of the new run; null: unknown")]
    label: Annotated[str | None, doc("label of the new run; null: it has none")]
    workload: Annotated[str | None, doc("workload of the new run; null: unknown")]
    base: Annotated[str, doc("name of the base run")]
    new: Annotated[str, doc("name of the new run")]
    base_ns: Annotated[int, doc("step of the base run")]
    new_ns: Annotated[int, doc("step of the new run")]
    ratio: Annotated[float | None, doc("new_ns / base_ns; null: a step takes no time")]
    ratio_low: Annotated[
        float | None, doc("low end of the 95 % interval of ratio; null: as for ratio")
    ]
    ratio_high: Annotated[
        float | None,
        doc("high end of the 95 % interval of ratio; null: unbounded, or as for ratio"),
    ]
    steps: Annotated[
        Literal["clean", "profiled"], doc("whether new_ns is the clean or the mean profiled step")
    ]
    base_rounds: Annotated[int, doc("timed processes of the base run; 1 if it was not timed")]
    new_rounds: Annotated[int, doc("timed processes of the new run; 1 if it was not timed")]
    limits: Annotated[list[Limit], doc("the conditions, in the order of fail_if")]
    warnings: Annotated[list[str], doc("reasons to doubt the times")]


class Document(Documented, frozen=True):
    """The result of the gate: whether new runs are slower than base runs."""

    schema_version: Annotated[int, doc("version of this document's schema")]
    state: Annotated[
        _State, doc("worst state of the pairs; at least inconclusive if only_base is not empty")
    ]
    exit_status: Annotated[int, doc("0: pass, 3: fail, 4: inconclusive")]
    fail_if: Annotated[list[str], doc("conditions; the gate fails if one is met")]
    pairs: Annotated[list[Pair], doc("one entry per pair of runs")]
    only_base: Annotated[list[str], doc("base runs without a new run")]
    only_new: Annotated[list[str], doc("new runs without a base run; the gate ignores them")]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document."""
    return msgspec.json.schema(Document)

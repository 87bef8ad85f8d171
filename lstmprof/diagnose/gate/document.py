"""The document that ``lstmprof compare --format json`` writes: its fields, and when they are null.

docs/compare.schema.json is generated from these records (``make docs``). Times are in ns, shares
are between 0 and 1. Null means unknown or not applicable.
"""

from typing import Annotated, Any, Literal

import msgspec

VERSION = 2

_State = Literal["pass", "fail", "inconclusive"]


def _is(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document; every field is always present."""


class Limit(_Record, frozen=True):
    """One condition of --fail-if, with the measured value."""

    limit: Annotated[str, _is("condition, as given")]
    unit: Annotated[Literal["share", "ns"], _is("unit of most, value, low and high")]
    most: Annotated[float, _is("limit: larger values meet the condition, so the gate fails")]
    value: Annotated[float | None, _is("measured value; null: a step takes no time")]
    low: Annotated[
        float | None,
        _is("low end of the 95 % interval, fail if above most; null: a step takes no time"),
    ]
    high: Annotated[
        float | None,
        _is(
            "high end of the 95 % interval, pass unless above most; null: unbounded, or as for low"
        ),
    ]
    state: Annotated[_State, _is("whether the new run keeps this limit")]


class Pair(_Record, frozen=True):
    """One base run and the new run that is compared with it."""

    state: Annotated[_State, _is("worst state of its limits")]
    sentence: Annotated[str, _is("the verdict in one sentence")]
    advice: Annotated[
        str | None, _is("how to get a decision; null: not inconclusive, or no advice")
    ]
    why: Annotated[
        str | None, _is("diagnosis of the new run in one sentence; null if it did not fail")
    ]
    implementation: Annotated[str | None, _is("implementation of the new run; null: unknown")]
    label: Annotated[str | None, _is("label of the new run; null: it has none")]
    workload: Annotated[str | None, _is("workload of the new run; null: unknown")]
    base: Annotated[str, _is("name of the base run")]
    new: Annotated[str, _is("name of the new run")]
    base_ns: Annotated[int, _is("step of the base run")]
    new_ns: Annotated[int, _is("step of the new run")]
    ratio: Annotated[float | None, _is("new_ns / base_ns; null: a step takes no time")]
    ratio_low: Annotated[float | None, _is("low end of its 95 % interval; null: as for ratio")]
    ratio_high: Annotated[
        float | None, _is("high end of its 95 % interval; null: unbounded, or as for ratio")
    ]
    steps: Annotated[
        Literal["clean", "profiled"], _is("whether new_ns is the clean or the mean profiled step")
    ]
    base_rounds: Annotated[int, _is("timed processes of the base run; 1 if it was not timed")]
    new_rounds: Annotated[int, _is("timed processes of the new run; 1 if it was not timed")]
    limits: Annotated[list[Limit], _is("the conditions, in the order of fail_if")]
    warnings: Annotated[list[str], _is("reasons to doubt the times")]


class Document(_Record, frozen=True):
    """The result of the gate: whether new runs are slower than base runs."""

    schema_version: Annotated[int, _is("version of this document's schema")]
    state: Annotated[
        _State, _is("worst state of the pairs; at least inconclusive if only_base is not empty")
    ]
    exit_status: Annotated[int, _is("0: pass, 3: fail, 4: inconclusive")]
    fail_if: Annotated[list[str], _is("conditions; the gate fails if one is met")]
    pairs: Annotated[list[Pair], _is("one entry per pair of runs")]
    only_base: Annotated[list[str], _is("base runs without a new run")]
    only_new: Annotated[list[str], _is("new runs without a base run; the gate ignores them")]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document."""
    return msgspec.json.schema(Document)

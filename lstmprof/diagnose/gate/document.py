"""What ``lstmprof compare --format json`` writes: every field, and when it is null.

The records are the schema, too: docs/compare.schema.json is made of them (``make docs``). Times
are nanoseconds, shares 0–1; null is unknown, or does not apply.
"""

from typing import Annotated, Any, Literal

import msgspec

VERSION = 2

_State = Literal["pass", "fail", "inconclusive"]


def _is(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document; all its fields are always there."""


class Limit(_Record, frozen=True):
    """One condition of --fail-if, and what was measured."""

    limit: Annotated[str, _is("condition, as given")]
    unit: Annotated[Literal["share", "ns"], _is("unit of most, value, low and high")]
    most: Annotated[float, _is("limit: larger values meet the condition, so the gate fails")]
    value: Annotated[float | None, _is("measured value; null: not comparable")]
    low: Annotated[float | None, _is("lower end of the 95 % interval; above most: fail")]
    high: Annotated[
        float | None,
        _is("upper end of the 95 % interval; not above most: pass; null: unbounded"),
    ]
    state: _State


class Pair(_Record, frozen=True):
    """One base run and the new run that is compared with it."""

    state: Annotated[_State, _is("worst state of its limits")]
    sentence: str
    advice: Annotated[str | None, _is("what would decide; null unless inconclusive")]
    why: Annotated[str | None, _is("diagnosis in a sentence; null unless fail")]
    implementation: str | None
    label: Annotated[str | None, _is("label of the new run")]
    workload: str | None
    base: Annotated[str, _is("name of the base run")]
    new: Annotated[str, _is("name of the new run")]
    base_ns: int
    new_ns: int
    ratio: Annotated[float | None, _is("new_ns / base_ns; null: not comparable")]
    ratio_low: Annotated[float | None, _is("lower end of the ratio's 95 % interval")]
    ratio_high: Annotated[
        float | None, _is("upper end of the ratio's 95 % interval; null: unbounded")
    ]
    steps: Annotated[Literal["clean", "profiled"], _is("kind of step of base_ns and new_ns")]
    base_rounds: Annotated[int, _is("number of timed processes; 0: profile only")]
    new_rounds: int
    limits: list[Limit]
    warnings: Annotated[list[str], _is("reasons to doubt the times")]


class Document(_Record, frozen=True):
    """Whether new runs pass the gate."""

    schema_version: Annotated[int, _is("version of this document's schema")]
    state: Annotated[
        _State, _is("worst state of the pairs; at least inconclusive if only_base is not empty")
    ]
    exit_status: Annotated[int, _is("0: pass, 3: fail, 4: inconclusive")]
    fail_if: Annotated[list[str], _is("conditions; the gate fails if one is met")]
    pairs: list[Pair]
    only_base: Annotated[list[str], _is("base runs without a new run")]
    only_new: Annotated[list[str], _is("new runs without a base run; the gate ignores them")]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what is written."""
    return msgspec.json.schema(Document)

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

    limit: Annotated[str, _is("as it was given")]
    unit: Annotated[Literal["share", "ns"], _is("of the four numbers; ns of a step")]
    most: Annotated[float, _is("above it the condition is met")]
    value: Annotated[float | None, _is("null: cannot be compared")]
    low: Annotated[float | None, _is("the least that it may be; fail where that is above most")]
    high: Annotated[
        float | None, _is("the most that it may be; pass where most is no less; null: unbounded")
    ]
    state: _State


class Pair(_Record, frozen=True):
    """One run of the base and the new one that is held against it."""

    state: Annotated[_State, _is("the gravest of its limits'")]
    sentence: str
    advice: Annotated[str | None, _is("what would tell; null but where inconclusive")]
    why: Annotated[str | None, _is("the diagnosis in a sentence; null but where it fails")]
    implementation: str | None
    label: Annotated[str | None, _is("of the new run")]
    workload: str | None
    base: Annotated[str, _is("name of the run")]
    new: Annotated[str, _is("name of the run")]
    base_ns: int
    new_ns: int
    ratio: Annotated[float | None, _is("new_ns over base_ns; null: cannot be compared")]
    ratio_low: Annotated[float | None, _is("the least that it may be")]
    ratio_high: Annotated[float | None, _is("the most that it may be; null: unbounded")]
    steps: Annotated[Literal["clean", "profiled"], _is("what base_ns and new_ns are of")]
    base_rounds: Annotated[int, _is("processes that were timed; 0 of a profile alone")]
    new_rounds: int
    limits: list[Limit]
    warnings: Annotated[list[str], _is("reasons to doubt the times")]


class Document(_Record, frozen=True):
    """Whether what is new keeps its limits."""

    schema_version: Annotated[int, _is("of this document")]
    state: Annotated[
        _State, _is("the gravest of the pairs'; inconclusive where only_base is not empty")
    ]
    exit_status: Annotated[int, _is("0 pass, 3 fail, 4 inconclusive")]
    fail_if: Annotated[list[str], _is("the conditions, any of which fails")]
    pairs: list[Pair]
    only_base: Annotated[list[str], _is("runs of the base that have no new one")]
    only_new: Annotated[list[str], _is("new runs that have none in the base; they decide nothing")]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what is written."""
    return msgspec.json.schema(Document)

"""What ``lstmprof check --format json`` writes: every field, and when it is null.

The records are the schema, too: docs/check.schema.json is made of them (``make docs``).
"""

from typing import Annotated, Any, Literal

import msgspec

VERSION = 1

State = Literal["ok", "warn", "fail", "not recorded"]
OK: State = "ok"
WARN: State = "warn"
FAIL: State = "fail"
NOT_RECORDED: State = "not recorded"


def _is(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document; all its fields are always there."""


class Row(_Record, frozen=True):
    """One thing that was asked of the profile of a rank."""

    rank: Annotated[int | None, _is("null: the profile says none, or it is asked of the run")]
    question: Annotated[str, _is("what was asked")]
    state: Annotated[
        State,
        _is("not recorded: the profile does not tell; fail: what rests on it cannot be trusted"),
    ]
    sentence: Annotated[str, _is("the answer, with the counts of events that it rests on")]
    share: Annotated[float | None, _is("how much it concerns, 0–1; null: no share, or not known")]


class Checked(_Record, frozen=True):
    """What was asked of the profile of one run."""

    run: Annotated[str, _is("name of the run")]
    state: Annotated[State, _is("the gravest of its rows: fail, warn or ok")]
    profile_format: Annotated[str | None, _is("kineto, xplane …; null: it is not known")]
    rows: Annotated[list[Row], _is("rank by rank, in the order of the questions")]
    record_with: Annotated[
        list[str], _is("recipes that record what was missed; their lines are in docs/recording.md")
    ]


class Document(_Record, frozen=True):
    """Whether profiles are any good."""

    schema_version: Annotated[int, _is("of this document")]
    exit_status: Annotated[int, _is("0, or 3 where a row of any run is fail")]
    runs: list[Checked]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what is written."""
    return msgspec.json.schema(Document)

"""run.json is a typed record: what is written is read, and what is wrong is told by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, strategies as st

from lstmprof.base.errors import RunError
from lstmprof.events.annotate.calls import Coverage
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.events.schema import SCHEMA_VERSION
from lstmprof.runs.fields import Counters, Hardware, Peaks, Settings, WorkloadInfo
from lstmprof.runs.metadata import RunInfo, decoded, encoded, facts, facts_table, run_info
from lstmprof.runs.run import open_run
from lstmprof.workloads import Workload

RECORDS = (RunInfo, WorkloadInfo, Hardware, Peaks, Settings, Counters)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(st.none() | st.booleans() | INT64 | TEXT, lambda x: st.lists(x, max_size=3))


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field of this type."""
    if get_origin(hint) is Annotated:
        return values(hint.__origin__)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return records(hint)
    if hint is Coverage:
        return st.builds(Coverage, *[INT64] * len(dataclasses.fields(Coverage)))
    if hint is Recorded:
        return st.builds(Recorded, **dict.fromkeys(get_type_hints(Recorded), INT64))
    if get_origin(hint) is tuple and get_args(hint)[-1] is not Ellipsis:
        return st.tuples(*map(values, get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(TEXT, values(get_args(hint)[1]), max_size=3)
    plain = {str: TEXT, int: INT64, bool: st.booleans(), type(None): st.none(), Any: JSON}
    plain[float] = st.floats(allow_nan=False, allow_infinity=False)
    return plain[hint] if hint in plain else st.one_of(*map(values, get_args(hint)))


def records(type_: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(type_, include_extras=True)
    return st.builds(type_, **{name: values(hint) for name, hint in hints.items()})


@given(records(RunInfo))
def test_what_is_written_is_read(info: RunInfo) -> None:
    info = msgspec.structs.replace(info, schema_version=SCHEMA_VERSION)
    assert decoded(encoded(info), "run.json") == info
    assert run_info(msgspec.to_builtins(info)) == info


@pytest.mark.parametrize("record", RECORDS)
def test_every_field_says_its_meaning_and_when_it_is_null(record: Any) -> None:
    for name, hint in get_type_hints(record, include_extras=True).items():
        if hint in RECORDS:
            continue
        meta = hint.__metadata__[-1]
        assert meta.description, name
        can_be_null = type(None) in get_args(hint.__origin__)
        assert bool(meta.extra["null_when"]) == can_be_null, name


def test_a_workload_has_the_fields_of_the_workload_that_runs() -> None:
    assert set(WorkloadInfo.__struct_fields__) == {f.name for f in dataclasses.fields(Workload)}


def test_every_field_has_a_column_of_its_own() -> None:
    names = [fact.column.name for fact in facts()]
    assert len(set(names)) == len(names)


def test_a_column_has_the_unit_in_which_its_name_ends() -> None:
    units = {"_ns": "ns", "_bytes": "bytes", "_j": "J", "_mhz": "MHz", "_c": "°C"}
    columns = [fact.column for fact in facts()]
    for ending, unit in units.items():
        of_unit = [column for column in columns if column.name.endswith(ending)]
        assert {column.unit for column in of_unit} == {unit}, ending


def test_unknown_is_left_out_and_never_nought() -> None:
    assert json.loads(encoded(run_info({"name": "a", "seed": None, "threads": 0}))) == {
        "name": "a",
        "threads": 0,
    }
    assert decoded(b"{}", "run.json") == RunInfo()
    assert decoded(b'{"seed": null}', "run.json").seed is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"workload": "x"}', "workload: expected object, got str"),
        ('{"hardware": "x"}', "hardware: expected object, got str"),
        ('{"hardware": {"cores": "2"}}', "hardware.cores: expected int | null, got str"),
        ('{"seed": "7"}', "seed: expected int | null, got str"),
        ('{"tf32": 1}', "tf32: expected bool | null, got int"),
        ('{"base_ns": 1180591620717411303424}', "base_ns: expected int <= 9223372036854775807"),
        ('{"notes": null}', "notes: expected array, got null"),
        ("[]", "expected object, got array"),
        ("[" * 200_000, "expected object, got array"),
        ('{"later":' + "[" * 200_000, r"is damaged (.*recursion.*)"),
        ('{"profile_metadata":' + '{"a":' * 200_000, r"is damaged (.*recursion.*)"),
        ('{"loss_first": NaN}', r"is damaged (JSON is malformed: invalid character (byte 15))"),
        ("", r"is damaged (Input data was truncated)"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_wrong_is_one_line_that_names_file_field_and_next_step(
    text: str, message: str
) -> None:
    with pytest.raises(RunError) as told:
        decoded(text.encode(), "there/run.json")
    start, _, rest = message.partition(".*")
    assert str(told.value).startswith(f"there/run.json: {start}")
    assert all(part in str(told.value) for part in rest.split(".*"))
    assert str(told.value).endswith("; capture or ingest the run again")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("base_ns", [-(2**63), 2**63 - 1])
def test_what_the_events_can_hold_run_json_can(base_ns: int) -> None:
    assert decoded(json.dumps({"base_ns": base_ns}).encode(), "run.json").base_ns == base_ns


def test_sql_has_a_row_a_run_with_what_is_known_of_it() -> None:
    info = run_info({"seed": 7, "notes": ["é", "b"], "workload": {"layers": 2}, "tf32": False})
    first, second = facts_table([("a", info), ("b", run_info({}))]).to_pylist()
    assert (first["run"], second["run"]) == ("a", "b")
    assert (first["seed"], first["layers"], first["tf32"]) == (7, 2, False)
    assert first["notes"] == '["é", "b"]'
    assert {second[name] for name in ("seed", "layers", "tf32")} == {None}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"vocabulary": 10, "batch": 3, "time_steps": 5}, 15),
        ({"vocabulary": 0, "batch": 3, "time_steps": 5}, None),
        ({"batch": 3, "time_steps": 5}, None),
        ({"vocabulary": 10, "time_steps": 5}, None),
        ({"vocabulary": 10, "batch": 3}, None),
    ],
)
def test_words_are_the_tokens_of_a_batch(fields: dict[str, int], words: int | None) -> None:
    assert WorkloadInfo(**fields).words == words


def test_what_is_no_text_is_damage() -> None:
    with pytest.raises(RunError, match=r"run\.json: is damaged \(.*can't decode"):
        decoded(b'{"name": "\xff"}', "run.json")


def test_a_run_larger_than_can_be_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "run.json").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(RunError, match=r"run\.json: is larger than 32 MiB"):
        open_run(tmp_path)


def test_a_newer_version_is_refused_by_name_whatever_its_fields_are() -> None:
    newer = json.dumps({"schema_version": SCHEMA_VERSION + 1, "seed": "of another type"}).encode()
    with pytest.raises(RunError) as told:
        decoded(newer, "run.json")
    assert str(told.value) == (
        f"run.json: was written by a newer lstmprof (schema version {SCHEMA_VERSION + 1}; this "
        f"version reads up to {SCHEMA_VERSION}); upgrade lstmprof"
    )


def test_a_field_of_a_later_writer_is_passed_over() -> None:
    info = decoded(b'{"seed": 7, "later": [1], "workload": {"cells": 3, "layers": 2}}', "run.json")
    assert (info.seed, info.workload.layers) == (7, 2)


def test_a_field_that_no_reader_knows_is_not_written() -> None:
    with pytest.raises(TypeError, match=r"unknown fields of run\.json: hw, workload\.cells$"):
        run_info({"hw": {}, "workload": {"layers": 1, "cells": 3}})


def test_a_surrogate_without_its_other_is_written_as_a_question_mark() -> None:
    info = run_info({"source_paths": ["b\udcff.json"], "profile_metadata": {"a": ["\ud800"]}})
    written = decoded(encoded(info), "run.json")
    assert written.source_paths == ("b?.json",)
    assert written.profile_metadata == {"a": ["?"]}


def test_a_run_of_an_older_version_loses_nothing() -> None:
    text = (Path(__file__).parent / "run_of_schema_2.json").read_bytes()
    written = json.loads(text)
    info = decoded(text, "run.json")
    assert info.schema_version == 2
    assert (info.workload.time_steps, info.hardware.cores, info.threads) == (20, 2, 1)
    assert info.profiled_wall_ns == tuple(written["profiled_wall_ns"])
    assert info.versions == written["versions"]
    assert without_nulls(json.loads(encoded(info))) == without_nulls(written)


def without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return {name: inner for name, inner in kept.items() if inner not in ({}, [])}

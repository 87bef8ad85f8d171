"""Runs at URLs: whole or not there, replaced on demand, fetched once."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from lstmprof.base.errors import RunError
from lstmprof.events.table import events_table
from lstmprof.runs import remote
from lstmprof.runs.directory import new_run
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import Run, open_run, runs_in, write_tables

MEMORY = fsspec.filesystem("memory")


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}/runs/one"


def run(folder: Path, dur_ns: int = 5) -> Run:
    columns = {"kind": ["op"], "name": ["mm"], "start_ns": [0], "dur_ns": [dur_ns]}
    with new_run(folder, "one", force=True) as content:
        write_tables(content, run_info({"name": "one", "base_ns": dur_ns}), events_table(columns))
    return open_run(folder / "one")


def test_what_is_uploaded_is_fetched(tmp_path: Path, url: str) -> None:
    sent = run(tmp_path)
    made = remote.uploaded(sent, url, force=False)
    assert (made.name, made.event_count, made.info) == ("one", 1, sent.info)
    (place,) = remote.run_urls_at(url.removesuffix("/one"))
    found = remote.run_at(place)
    assert found is not None
    assert found.info == sent.info
    assert found.fetched(tmp_path / "cache").events().arrow == sent.events().arrow


def test_folders_are_made_where_a_store_has_folders(tmp_path: Path) -> None:
    made = remote.uploaded(run(tmp_path), f"file://{tmp_path}/not/there/one", force=False)
    assert (made.name, made.event_count) == ("one", 1)
    assert open_run(tmp_path / "not" / "there" / "one").info == made.info


def test_a_run_that_is_there_is_replaced_only_by_force(tmp_path: Path, url: str) -> None:
    remote.uploaded(run(tmp_path), url, force=False)
    MEMORY.pipe(f"{url}/timings.parquet", b"of the old one")
    with pytest.raises(RunError, match="already exists; add --force"):
        remote.uploaded(run(tmp_path, 7), url, force=False)
    made = remote.uploaded(run(tmp_path, 7), url, force=True)
    assert made.fetched(tmp_path / "cache").info.base_ns == 7
    assert not MEMORY.exists(f"{url}/timings.parquet")


def test_an_upload_that_is_cut_short_leaves_nothing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = type(MEMORY).put_file

    def cut(system: Any, here: str, there: str) -> None:
        if there.endswith("run.json"):
            raise KeyboardInterrupt
        put(system, here, there)

    monkeypatch.setattr(type(MEMORY), "put_file", cut)
    with pytest.raises(KeyboardInterrupt):
        remote.uploaded(run(tmp_path), url, force=False)
    assert remote.run_at(url) is None
    assert not MEMORY.exists(url)


def test_a_folder_without_run_json_is_no_run_and_makes_room(tmp_path: Path, url: str) -> None:
    MEMORY.pipe(f"{url}/events.parquet", b"of an upload whose machine went down")
    assert remote.run_at(url) is None
    assert remote.run_urls_at(url.removesuffix("/one")) == []
    made = remote.uploaded(run(tmp_path), url, force=False)
    assert made.fetched(tmp_path / "cache").events().num_rows == 1


def test_a_run_that_is_replaced_while_it_is_read_is_not_taken(tmp_path: Path, url: str) -> None:
    old = remote.uploaded(run(tmp_path), url, force=False)
    remote.uploaded(run(tmp_path, 7), url, force=True)
    with pytest.raises(RunError, match="changed during the download"):
        old.fetched(tmp_path / "cache")
    assert not runs_in(tmp_path / "cache" / next((tmp_path / "cache").iterdir()).name)


@pytest.mark.parametrize("text", [b"{", b"[]"])
def test_a_damaged_run_json_is_told(url: str, text: bytes) -> None:
    MEMORY.pipe(f"{url}/run.json", text)
    with pytest.raises(RunError, match=r"run\.json.*; capture or ingest the run again"):
        remote.run_at(url)


def test_a_url_that_nobody_serves_is_told_in_one_line() -> None:
    with pytest.raises(RunError, match=r"nosuch://x/y: cannot be reached \(.*\); check the URL"):
        remote.run_at("nosuch://x/y")


def test_a_place_is_a_path_or_a_url(tmp_path: Path) -> None:
    assert remote.path_or_url("traces") == Path("traces")
    assert remote.path_or_url(f"file://{tmp_path}") == tmp_path
    assert remote.path_or_url("s3://bucket/runs/") == "s3://bucket/runs"


def test_a_run_json_that_is_too_large_is_refused_unread(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MOST_BYTES", 2**21)
    MEMORY.pipe(f"{url}/run.json", bytes(2**21 + 1))
    with pytest.raises(RunError, match=r"run\.json: is larger than 2 MiB"):
        remote.run_at(url)

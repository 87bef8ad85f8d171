"""The profiles in ``tests/profiles``, by the way that users go, say what the simulator knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulator.write_profiles import FOLDER, PROFILES, Profile, files

from lstmprof import cli

Rows = list[dict[str, Any]]
ids = [profile.file.partition(".")[0] for profile in PROFILES]
each = pytest.mark.parametrize("profile", PROFILES, ids=ids)


def lstmprof(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    code = cli.run([str(argument) for argument in arguments])
    written = capsys.readouterr()
    assert code == 0, written.err
    return written.out


def truth(profile: Profile) -> dict[str, Rows]:
    found: dict[str, Rows] = json.loads((FOLDER / profile.truth_file).read_bytes())
    return found


def only(rows: Rows, like: Rows) -> Rows:
    """``rows`` by the columns of ``like``, in its order of them."""
    return sorted(({key: row[key] for key in like[0]} for row in rows), key=str)


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=str)


@pytest.fixture
def run(profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    lstmprof(capsys, "ingest", FOLDER / profile.file, "--out", tmp_path, "--name", "run")
    return tmp_path / "run"


def test_the_committed_files_are_what_the_simulator_writes() -> None:
    written = files()
    assert {path.name for path in FOLDER.iterdir()} == set(written)
    changed = [name for name, content in written.items() if (FOLDER / name).read_bytes() != content]
    assert not changed, "cd tests; python -m simulator.write_profiles"


def test_they_are_small_and_hold_what_is_hard() -> None:
    assert all(len(content) < 60_000 for content in files().values())
    parts = {row["part"] for profile in PROFILES for row in truth(profile)["ledger"]}
    idle = {"sync", "alloc", "dispatch", "python", "launch call", "launch latency", "queued"}
    assert parts >= idle | {"profiler", "rnn", "cast", "transfer", "memset", "optimizer", "gemm"}


@each
def test_the_ledger_and_the_kernels_are_the_truth(
    profile: Profile, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, known = (
        json.loads(lstmprof(capsys, "breakdown", run, "--format", "json")),
        truth(profile),
    )
    assert only(found["ledger"], known["ledger"]) == in_order(known["ledger"])
    assert only(found["kernels"], known["kernels"]) == in_order(known["kernels"])


@each
def test_every_activity_has_its_launch(
    profile: Profile, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = (
        "SELECT a.name AS activity, a.start_ns, a.stream, l.name AS call,"
        " l.start_ns AS call_start_ns FROM events a LEFT JOIN events l ON l.event_id = a.launch_id"
        " WHERE a.kind IN ('kernel', 'memcpy', 'memset')"
    )
    known = truth(profile)["links"]
    found = json.loads(lstmprof(capsys, "query", query, run, "--format", "json"))
    assert only(found, known) == in_order(known)


@each
def test_the_launches_are_counted(
    profile: Profile, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT name, sum(linked) AS linked FROM launches WHERE linked > 0 GROUP BY name"
    calls = {(row["call"], row["call_start_ns"]) for row in truth(profile)["links"]}
    counts = {name: sum(call == name for call, _ in calls) for name, _ in calls}
    found = json.loads(lstmprof(capsys, "query", query, run, "--format", "json"))
    assert {row["name"]: row["linked"] for row in found} == counts


@each
@pytest.mark.parametrize("share", [0.002, 0.1, 0.5, 0.9, 0.999])
def test_a_damaged_copy_is_refused_in_one_line(
    profile: Profile, share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (FOLDER / profile.file).read_bytes()
    cut = tmp_path / profile.file
    cut.write_bytes(content[: int(len(content) * share)])
    code = cli.run(["ingest", str(cut), "--out", str(tmp_path / "runs")])
    written = capsys.readouterr()
    assert (code, written.out) == (1, "")
    assert len(written.err.splitlines()) == 1, written.err
    assert profile.file in written.err
    assert not list(tmp_path.glob("runs/*"))

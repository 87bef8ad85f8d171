"""What runs are called whose files have names that no folder can have, or that others have."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from kineto_documents import document, op

from lstmprof.cli import run as lstmprof
from lstmprof.formats import sources
from lstmprof.runs.cache import open_runs
from lstmprof.runs.ingest import ingest_profiles, run_names

PROFILE = document(op(1), op(2))


def ingested(word: Path, out: Path) -> list[str]:
    """The names of the runs that were written."""
    done = ingest_profiles(word, out)
    assert (done.errors, done.foreign) == ([], [])
    assert [run.name for run in done.runs] == [run.path.name for run in done.runs]
    return [run.name for run in done.runs]


def packed(path: Path, *names: bytes) -> Path:
    """An archive of members with these ``names``, of any encoding."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for name in names:
            facts = tarfile.TarInfo(os.fsdecode(name))
            facts.size = len(PROFILE)
            tar.addfile(facts, io.BytesIO(PROFILE))
    return path


def test_a_file_whose_name_is_of_no_encoding_is_read(tmp_path: Path) -> None:
    (file := tmp_path / os.fsdecode(b"b\xff.json")).write_bytes(PROFILE)
    assert ingested(file, tmp_path / "out") == ["b_"]
    (run,) = open_runs([file], tmp_path / "cache")
    assert run.name == "b_"
    assert (
        open_runs([tmp_path / "out"])[0]
        .info.source_stamps[0]
        .startswith(f"{tmp_path}/b\\xff.json|")
    )
    ingest_again = ["ingest", str(file), str(file), "--out", str(tmp_path / "out")]
    assert lstmprof(ingest_again) == 0  # of the same file, which is known again


def test_members_of_any_encoding_cost_no_other(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar", b"caf\xe9.json", b"ok.json")
    assert ingested(archive, tmp_path / "out") == ["caf_", "ok"]


def test_signs_that_cannot_be_shown_are_not_in_a_runs_name(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar", b"x\x1b]0;pwn\x07\n\x1b[31mRED.json")
    assert ingested(archive, tmp_path / "out") == ["x_]0;pwn___[31mRED"]


def test_a_run_of_several_files_is_named_by_what_their_names_begin_with(tmp_path: Path) -> None:
    (job := tmp_path / "job").mkdir()
    for name in ("lstm-1.json", "lstm-10.json", "other.json"):  # one name begins the other
        (job / name).write_bytes(PROFILE)
    assert run_names(job, sources.groups(job)) == ["lstm", "other"]


@pytest.mark.parametrize("sign", ["n", "é"])
def test_a_name_too_long_for_a_folder_is_cut(tmp_path: Path, sign: str) -> None:
    archive = packed(tmp_path / "a.tar", *(f"{sign * 300}{n}x.json".encode() for n in "ab"))
    names = ingested(archive, tmp_path / "out")
    assert len(set(names)) == 2
    assert all(240 < len(name.encode()) <= 255 and name.startswith(sign * 100) for name in names)


def test_files_whose_names_would_be_one_get_names_of_their_own(tmp_path: Path) -> None:
    (job := tmp_path / "job").mkdir()
    (job / "a.json").write_bytes(PROFILE)
    (job / "a.json.gz").write_bytes(gzip.compress(PROFILE))
    for number in (1, 2):
        (job / str(number) / "host").mkdir(parents=True)
        (job / str(number) / "host" / "b.json").write_bytes(PROFILE)
    names = ingested(job, tmp_path / "out")
    assert len(set(names)) == 4
    assert [name[:-9] for name in sorted(names)] == ["host--b", "host--b", "job--a", "job--a"]
    assert ingested(job, tmp_path / "other") == names

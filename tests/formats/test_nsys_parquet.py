"""Folders of ``nsys export --type parquetdir``: tables of SQLite exports, written as Parquet."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shared_traces
from attack import seeds

import lstmprof as lp
from lstmprof import formats
from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import sources
from lstmprof.formats.cuda import parquet

EXPORT = Path(__file__).parents[1] / "profiles" / "nsys-2025.sqlite"


def as_parquet(database: Path, folder: Path, **options: Any) -> Path:
    """The tables of ``database`` as files in ``folder``."""
    folder.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in listed.fetchall():
            cursor = connection.execute(f'SELECT * FROM "{name}"')
            columns = [described[0] for described in cursor.description]
            rows = cursor.fetchall()
            table = {c: _array([row[i] for row in rows]) for i, c in enumerate(columns)}
            pq.write_table(pa.table(table), folder / f"{name}.parquet", **options)
    return folder


def _array(values: list[Any]) -> pa.Array:
    """As Nsight Systems may type them: no number is below 0."""
    texts = any(isinstance(value, str) for value in values)
    whole = all(value is None or (isinstance(value, int) and value >= 0) for value in values)
    return pa.array(values, pa.uint64() if whole and not texts else None)


def read(folder: Path) -> Profile:
    ((source,),) = sources.groups(folder)
    return formats.read_raw(source.label, source.load)


def check_same(database: Path, folder: Path) -> None:
    read_back, exported = read(folder), formats.read(database)
    assert read_back.events.equals(exported.events)
    for name in ("format", "base_ns", "device_names", "device_facts", "accelerators", "notes",
                 "gpu_complaint", "metadata"):  # fmt: skip
        assert getattr(read_back, name) == getattr(exported, name), name


@pytest.mark.parametrize("rows", [None, 50], ids=["one row group", "several"])
def test_tables_in_parquet_are_read_as_in_sqlite(rows: int | None, tmp_path: Path) -> None:
    check_same(EXPORT, as_parquet(EXPORT, tmp_path / "report_pqtdir", row_group_size=rows))


def test_some_rows_at_a_time_they_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_CHUNK_ROWS", 7)
    check_same(EXPORT, as_parquet(EXPORT, tmp_path / "report_pqtdir"))


def test_a_table_of_every_kind_is_read(tmp_path: Path) -> None:
    database = tmp_path / "seed.sqlite"
    database.write_bytes(seeds.nsys()[0])
    check_same(database, as_parquet(database, tmp_path / "seed_pqtdir"))


def test_the_command_reads_a_folder_and_folders_of_them(tmp_path: Path) -> None:
    folder = as_parquet(EXPORT, tmp_path / "report_pqtdir")
    run = lp.read(folder)
    assert run.ledger().rows() == lp.read(EXPORT).ledger().rows()
    as_parquet(EXPORT, tmp_path / "other")
    (tmp_path / "copy.sqlite").write_bytes(EXPORT.read_bytes())
    labels = [str(s.label) for group in sources.groups(tmp_path) for s in group]
    assert sorted(labels) == sorted(
        [str(tmp_path / "copy.sqlite"), str(folder), str(tmp_path / "other")]
    )


def test_a_changed_table_is_another_profile(tmp_path: Path) -> None:
    folder = as_parquet(EXPORT, tmp_path / "report_pqtdir")
    ((before,),) = sources.groups(folder)
    (folder / "CUPTI_ACTIVITY_KIND_MEMCPY.parquet").unlink()
    ((after,),) = sources.groups(folder)
    assert before.stamp != after.stamp
    assert not any(kind == "memcpy" for kind in read(folder).events["kind"].to_pylist())


def refusal(folder: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        read(folder)
    message = str(caught.value)
    assert message.isprintable()
    return message.removeprefix(str(folder))


def test_a_damaged_table_is_told_with_the_next_step(tmp_path: Path) -> None:
    folder = as_parquet(EXPORT, tmp_path / "report_pqtdir")
    kernels = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    content = kernels.read_bytes()
    kernels.write_bytes(content[: len(content) // 2])
    again = "; export the report again: nsys export --type parquetdir"
    fault = "/CUPTI_ACTIVITY_KIND_KERNEL.parquet: is not a Parquet file, or is truncated"
    assert refusal(folder) == fault + again
    middle = len(content) // 3
    kernels.write_bytes(content[:middle] + bytes(200) + content[middle + 200 :])
    assert refusal(folder).endswith(again)


def test_a_few_bytes_that_tell_of_many_rows_are_refused(tmp_path: Path) -> None:
    folder = as_parquet(EXPORT, tmp_path / "report_pqtdir")
    many = pa.array([0]).take(pa.array([0] * 1000)).dictionary_encode()
    rows = pa.chunked_array([many] * 20_000)
    pq.write_table(pa.table({"start": rows}), folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    assert ": claims to hold 20000000 rows in its " in refusal(folder)


def test_texts_that_are_no_names_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_MOST_CHUNK_BYTES", 100)
    folder = as_parquet(EXPORT, tmp_path / "report_pqtdir")
    assert "has texts too long to be names" in refusal(folder)


def test_a_table_alone_says_to_give_the_folder(tmp_path: Path) -> None:
    folder = as_parquet(EXPORT, tmp_path / "report_pqtdir")
    with pytest.raises(ProfileError, match="give the folder that nsys export --type parquetdir"):
        formats.read(folder / "StringIds.parquet")


@shared_traces.needed
@pytest.mark.parametrize(
    "path",
    [p for p in shared_traces.profiles() if p.suffix == ".sqlite" and p.parent.name == "nsys"],
    ids=shared_traces.name,
)
def test_real_exports_read_the_same_as_parquet(path: Path, tmp_path: Path) -> None:
    folder = as_parquet(path, tmp_path / "report_pqtdir")
    try:
        formats.read(path)
    except ProfileError as refused:
        message = str(refused).removeprefix(str(path))
    else:
        check_same(path, folder)
        return
    assert refusal(folder) == message

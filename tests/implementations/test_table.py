"""The table of implementations and the folder agree."""

from pathlib import Path

from lstmprof import implementations


def test_every_file_is_in_the_table_and_every_row_has_a_file() -> None:
    folder = Path(implementations.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    rows = [row.module.rpartition(".")[2] for row in implementations.TABLE]
    assert sorted(rows) == sorted(files)
    assert len(set(rows)) == len(rows)


def test_an_alias_finds_its_row_and_names_are_unique() -> None:
    names = [name for row in implementations.TABLE for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    for row in implementations.TABLE:
        assert all(implementations.find(name) is row for name in (row.name, *row.aliases))


def test_what_a_row_cannot_do_has_a_reason() -> None:
    for row in implementations.TABLE:
        assert all(reason for reason in row.refusals().values())

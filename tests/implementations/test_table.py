"""The table of implementations and the folder agree."""

from pathlib import Path

from lstmprof import implementations


def test_every_file_is_in_the_table_and_every_row_has_a_file() -> None:
    folder = Path(implementations.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    rows = [row.module.rpartition(".")[2] for row in implementations.TABLE]
    assert sorted(rows) == sorted(files)
    assert len(set(rows)) == len(rows)

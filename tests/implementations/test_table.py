"""The table of implementations and the folder agree."""

from pathlib import Path

from lstmprof import implementations


def test_every_file_is_in_the_table_and_every_row_has_a_file() -> None:
    folder = Path(implementations.__file__).parent
    files = [path.relative_to(folder) for path in folder.rglob("*.py") if path.stem[0] != "_"]
    rows = [row.file for row in implementations.TABLE]
    assert sorted(rows) == sorted(".".join(file.with_suffix("").parts) for file in files)
    assert len(set(rows)) == len(rows)


def test_an_alias_finds_its_row_and_names_are_unique() -> None:
    names = [name for row in implementations.TABLE for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    for row in implementations.TABLE:
        assert all(implementations.find(name) is row for name in (row.name, *row.aliases))


def test_what_a_row_cannot_do_has_a_reason() -> None:
    for row in implementations.TABLE:
        assert all(reason for reason in row.refusals().values())


def test_every_row_says_how_it_computes_a_layer_on_each_device() -> None:
    for row in implementations.TABLE:
        assert {row.form_on("cpu"), row.form_on("cuda")} <= set(implementations.FORMS)
    keras = implementations.find("keras-lstm")
    assert (keras.form_on("cpu"), keras.form_on("cuda")) == ("loop", "layer op")

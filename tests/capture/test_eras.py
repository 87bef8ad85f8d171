"""What a version runs with: packages beside it, a Python that has it, the environment of both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.base.package import version_numbers
from lstmprof.capture.interpreters import environments, eras
from lstmprof.capture.interpreters.environments import environment_for
from lstmprof.implementations import TABLE


def script(folder: Path, name: str, *lines: str) -> Path:
    """A program that only says ``lines``."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    said = "\n".join(f"echo {line}" for line in lines)
    place.write_text(f"#!/bin/sh\n{said}\n" if lines else "#!/bin/sh\nexit 1\n")
    place.chmod(0o755)
    return place


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any other Python: its PATH, its pyenv and its cache are empty."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("era", eras.TABLE, ids=lambda era: era.name)
def test_a_row_begins_with_the_exact_version_that_it_is_of(era: eras.Era) -> None:
    version = eras.version_of(era.packages[0])
    assert version is not None
    assert era.has(version)
    assert eras.find(era.name) == era
    assert era.pythons


@pytest.mark.parametrize("wanted", ["tensorflow==2.8.4", "tensorflow-cpu==2.10.1"])
def test_tensorflow_2_gets_a_protobuf_that_it_allows_beside_it(wanted: str) -> None:
    era = eras.era_of_packages([wanted])
    assert era is not None
    (pin,) = (p for p in era.packages if eras.package_of(p) == "protobuf")
    assert (3, 9, 2) <= version_numbers(eras.version_of(pin) or "") < (3, 20)


def test_every_implementation_names_an_era_that_is_there() -> None:
    assert {row.era for row in TABLE} - {""} <= set(eras.NAMES)


def test_the_eras_of_theano_are_one_environment(machine: Path) -> None:
    script(machine / "bin", "python3.7", "3.7", "/usr/bin/python3.7")
    names = ("theano-1.0.5", "lasagne-0.1", "keras-2.1.6-theano")
    assert len({environment_for((), name).folder for name in names}) == 1


def test_a_version_gets_the_pins_of_the_row_that_serves_it() -> None:
    era = eras.era_of_packages(["torch==1.2.0"])
    assert era is not None
    assert era.packages == ("torch==1.2.0", "numpy==1.21.6")
    assert era.pythons == ("3.7",)
    assert eras.era_of_packages(["torch==2.9.0"]) is None
    assert eras.era_of_packages(["torch>=1.2", "nvtx"]) is None
    assert eras.era_of_packages(["tensorflow==1.15.4"]) != eras.era_of_packages(
        ["tensorflow==2.8.0"]
    )


def test_what_is_asked_for_goes_before_a_pin() -> None:
    era = eras.era_of_packages(["torch==1.4.0", "NumPy==1.19.5", "nvtx==0.2.5"])
    assert era is not None
    assert era.packages == ("torch==1.4.0", "NumPy==1.19.5", "nvtx==0.2.5")


def test_two_that_no_python_has_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"no single Python version runs torch==2\.2\.2 and Theano"
    ):
        eras.era_of_packages(["torch==2.2.2", "Theano==1.0.5"])


def test_this_python_comes_first_then_path_then_pyenvs_newest(machine: Path) -> None:
    here = "{}.{}".format(*sys.version_info)
    assert environments.python_of(["2.5", here], "it").path == str(Path(sys.executable).resolve())
    for number in ("9", "10"):
        script(machine / "pyenv" / "versions" / f"2.5.{number}" / "bin", "python", "2.5", number)
    assert environments.python_of(["2.5"], "it") == environments.Python("2.5", "10")
    script(machine / "bin", "python2.5")  # a shim that leads nowhere
    environments.find_python.cache_clear()
    assert environments.python_of(["2.5"], "it").path == "10"
    environments.find_python.cache_clear()
    script(machine / "bin", "python2.5", "2.5", "/on/path")
    assert environments.python_of(["2.5"], "it").path == "/on/path"


def test_a_python_that_is_not_to_be_had_is_one_line_with_the_next_step(machine: Path) -> None:
    with pytest.raises(CaptureError) as raised:
        environments.python_of(["2.5", "2.4"], "it")
    assert raised.value.fault == (
        "it needs Python 2.5 or 2.4, which neither PATH nor pyenv nor uv has"
    )
    assert "pyenv install 2.5" in raised.value.next_step


def test_an_interpreter_older_than_the_workers_code_is_refused_in_words(machine: Path) -> None:
    old = script(machine / "bin", "python3.6", "3.6", "/usr/bin/python3.6")
    with pytest.raises(UsageError, match=r"is Python 3\.6, but lstmprof needs Python 3\.7"):
        environments.python_at(str(old))
    with pytest.raises(UsageError, match="no such interpreter"):
        environments.python_at(str(script(machine / "bin", "broken")))


def test_an_environment_says_what_it_takes_and_lies_by_its_pins(machine: Path) -> None:
    script(machine / "bin", "python3.7", "3.7", "/usr/bin/python3.7")
    by_era = environment_for((), "torch-1.0.0")
    assert by_era == environment_for(["torch==1.0.0"])
    assert not by_era.is_made
    assert by_era.words == (
        "numpy==1.21.6 torch==1.0.0 for Python 3.7 (about 590 MB to download, 1.2 GB on disk)"
    )
    assert by_era.folder.parent == machine / "cache" / "environments"
    assert by_era.folder != environment_for(["torch==1.2.0"]).folder
    plain = environment_for(["tiny"])
    assert plain.packages == ("numpy", "tiny")
    assert plain.python == environments.this_python()

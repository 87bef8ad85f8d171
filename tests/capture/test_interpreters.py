"""Which interpreter runs what: of a wish, of an era that a row names, of each version."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from pathlib import Path

import pytest

from lstmprof import implementations
from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.capture import interpreters as module
from lstmprof.capture.harness import plan
from lstmprof.capture.interpreters import Wish, interpreters
from lstmprof.capture.request import CaptureRequest
from lstmprof.implementations import find
from lstmprof.workloads import with_overrides
from lstmprof.workloads.studies import named

TINY = with_overrides(named("1x320-ce-short"), hidden=4, batch=2, time_steps=5)
COMMON = CaptureRequest("torch-nn-lstm", TINY, device="cpu", iterations=2, peaks=False)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a Python 3.7 that makes no environment, and an installed PyTorch 2.13.0."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3.7"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && echo 3.7 && echo ' + f"{python}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))

    def version(package: str) -> str:
        if package != "torch":
            raise importlib.metadata.PackageNotFoundError(package)
        return "2.13.0+cpu"

    monkeypatch.setattr(importlib.metadata, "version", version)
    return tmp_path


def test_without_a_wish_it_is_this_one(machine: Path) -> None:
    (here,) = interpreters(find("torch-nn-lstm"), Wish())
    assert (here.python, here.label, here.environment) == (sys.executable, "", None)


def test_each_version_has_an_environment_but_the_one_that_is_here(machine: Path) -> None:
    old, new = interpreters(find("torch-nn-lstm"), Wish(versions=("1.0.0", "2.13.0")))
    assert old.environment is not None
    assert old.environment.packages == ("numpy==1.21.6", "torch==1.0.0")
    assert (old.label, old.version) == ("torch==1.0.0", "1.0.0")
    assert (new.python, new.environment) == (sys.executable, None)
    assert (new.label, new.version) == ("torch==2.13.0", "2.13.0")


def test_a_row_gets_its_library_and_keras_its_tensorflow(machine: Path) -> None:
    (of_torch,) = interpreters(find("keras-torch-lstm"), Wish(versions=("2.4.1",)))
    assert of_torch.environment is not None
    assert of_torch.environment.packages == ("keras", "numpy", "torch==2.4.1")
    (of_keras,) = interpreters(find("keras-lstm"), Wish(versions=("keras==2.13.1",)))
    assert of_keras.environment is not None
    assert of_keras.environment.packages == ("keras==2.13.1", "numpy", "tensorflow==2.13.*")


def test_a_version_of_a_rows_era_gets_what_the_era_names(machine: Path) -> None:
    theano = dataclasses.replace(find("keras-lstm"), runs_on="theano", era="keras-2.1.6-theano")
    for wish in (Wish(versions=("2.1.5",)), Wish(packages=("keras==2.1.5",))):
        (way,) = interpreters(theano, wish)
        assert way.environment is not None
        assert {"keras==2.1.5", "Theano==1.0.5"} <= set(way.environment.packages)
        assert not any(name.startswith("tensorflow") for name in way.environment.packages)
        assert way.version == "2.1.5"
    (by_tensorflow,) = interpreters(find("keras-lstm"), Wish(versions=("keras==2.1.5",)))
    assert by_tensorflow.environment is not None
    assert {"keras==2.1.5", "tensorflow==1.15.5"} <= set(by_tensorflow.environment.packages)


@pytest.mark.parametrize("version", ["newest", ">=1.4", "torch=1.4.0", "keras==new"])
def test_what_is_no_version_is_refused(machine: Path, version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        interpreters(find("torch-nn-lstm"), Wish(versions=(version,)))


def test_a_row_of_an_era_runs_in_it_unless_this_interpreter_has_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = dataclasses.replace(find("torch-nn-lstm"), era="torch-1.0.0")
    (made,) = interpreters(row, Wish())
    assert made.environment is not None
    assert made.label == ""
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.2.0")
    (here,) = interpreters(row, Wish())
    assert here.environment is None


def test_versions_and_packages_together_cannot_be_meant(machine: Path) -> None:
    with pytest.raises(UsageError, match="--versions cannot be combined with --with or --era"):
        interpreters(find("torch-nn-lstm"), Wish(versions=("1.0.0",), era="torch-1.0.0"))


def test_a_plan_has_a_run_a_version_and_says_what_does_not_run_with_one(machine: Path) -> None:
    wish = Wish(versions=("1.0.0", "2.13.0"))
    names = ["torch-nn-lstm", "torch-script", "torch-compile"]
    planned = plan.plan(names, [TINY], ["fp32"], COMMON, machine / "out", wish)
    assert [p.name.split("--")[-1] for p in planned] == ["torch==1.0.0", "torch==2.13.0"] * 3
    skips = {(p.request.implementation, p.interpreter.version): p.skip for p in planned}
    assert skips["torch-nn-lstm", "1.0.0"] is None
    assert skips["torch-compile", "1.0.0"] == "torch-compile needs torch 2.0 or newer, not 1.0.0"
    assert str(skips["torch-script", "1.0.0"]).startswith("torch-script needs torch 1.")
    assert skips["torch-compile", "2.13.0"] is None


def test_without_its_python_a_version_is_skipped_with_the_reason(machine: Path) -> None:
    (machine / "bin" / "python3.7").unlink()
    wish = Wish(versions=("1.0.0", "2.13.0"))
    old, new = plan.plan(["torch-nn-lstm"], [TINY], ["fp32"], COMMON, machine / "out", wish)
    assert "needs Python 3.7, which neither PATH" in str(old.skip)
    assert new.skip is None
    with pytest.raises(CaptureError, match=r"needs Python 3\.7"):
        plan.make_ready(old, machine / "out", force=False, progress=lambda line: None)


def test_an_environment_that_cannot_be_made_stops_no_other_run(machine: Path) -> None:
    pytest.importorskip("torch")
    wish = Wish(versions=("1.0.0", "2.13.0"))
    planned = plan.plan(["torch-nn-lstm"], [TINY], ["fp32"], COMMON, machine / "out", wish)
    said: list[str] = []
    outcomes = list(plan.run(planned, machine / "out", rounds=1, progress=said.append))
    assert isinstance(outcomes[0].result, CaptureError)
    assert "could not install" in outcomes[0].result.fault
    assert any(line.startswith("installing numpy==1.21.6 torch==1.0.0") for line in said)
    assert not isinstance(outcomes[1].result, CaptureError)


def test_the_users_label_stands_before_the_version(machine: Path) -> None:
    common = dataclasses.replace(COMMON, label="mine")
    wish = Wish(versions=("1.0.0", "2.13.0"))
    planned = plan.plan(["torch-nn-lstm"], [TINY], ["fp32"], common, machine, wish)
    assert [p.request.label for p in planned] == ["mine-torch==1.0.0", "mine-torch==2.13.0"]
    (alone,) = plan.plan(
        ["torch-nn-lstm"], [TINY], ["fp32"], common, machine, Wish(packages=("torch==1.0.0",))
    )
    assert alone.request.label == "mine"


def test_a_row_names_the_version_from_which_it_runs() -> None:
    row = dataclasses.replace(find("torch-nn-lstm"), since="1.2")
    assert row.lacks("1.1.0") == "torch-nn-lstm needs torch 1.2 or newer, not 1.1.0"
    assert row.lacks("1.15.5") is None
    assert row.lacks(None) is None
    assert implementations.version_numbers("1.15") < implementations.version_numbers("1.15.5")
    assert module.framework_package(find("keras-lstm")) == "tensorflow"

"""Sizes of a workload with several values: every combination is a capture of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lstmprof.cli import run as lstmprof

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(capsys: Said, *arguments: str) -> list[str]:
    assert lstmprof(["capture", "--impl", "torch-nn-lstm", "--plan", *arguments]) == 0
    lines = capsys.readouterr().err.splitlines()
    return [line.split("--")[1] for line in lines if line.startswith("  torch-nn-lstm--")]


def test_sizes_with_commas_or_repeated_are_combined(capsys: Said) -> None:
    expected = ["h128-b32", "h128-b16", "h512-b32", "h512-b16"]
    names = [f"1x320-ce-short-{suffix}" for suffix in expected]
    assert planned(capsys, "--hidden", "128,512", "--batch", "32", "--batch", "16") == names
    assert planned(capsys, "--hidden=128", "--hidden=512", "--batch=32, 16") == names


def test_one_combination_is_one_capture_however_often_it_is_named(capsys: Said) -> None:
    assert planned(capsys, "--hidden", "128,128") == ["1x320-ce-short-h128"]
    assert planned(capsys, "--hidden", "320,128") == ["1x320-ce-short", "1x320-ce-short-h128"]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("128,x", "Invalid value for '--hidden': '128,x' is not an integer or a list"),
        ("128,", "'128,' is not an integer"),
        ("128,0", "hidden must be at least 1, not 0"),
    ],
)
def test_a_size_that_is_none_is_one_line(sizes: str, said: str, capsys: Said) -> None:
    assert lstmprof(["capture", "--impl", "torch-nn-lstm", "--hidden", sizes, "--plan"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_name_is_for_one_capture(capsys: Said) -> None:
    words = ["capture", "--impl", "torch-nn-lstm", "--hidden", "128,512", "--name", "x", "--plan"]
    assert lstmprof(words) == 2
    assert "--name needs one capture, but the options give 2" in capsys.readouterr().err

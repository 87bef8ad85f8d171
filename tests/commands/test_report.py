"""``lstmprof report`` as a user meets it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from in_process import lstmprof
from report import runs

from lstmprof.commands import options


def report(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return lstmprof("report", *arguments, cwd=cwd)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    runs.three(tmp_path / "traces")
    return tmp_path / "traces"


def test_a_folder_of_runs_becomes_one_page_that_is_not_overwritten(traces: Path) -> None:
    command = [sys.executable, "-m", "lstmprof", "report", "traces"]
    made = subprocess.run(command, capture_output=True, text=True, cwd=traces.parent)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1].startswith("wrote report.html (3 runs, ")
    assert (traces.parent / "report.html").read_text().startswith("<!doctype html>")
    again = report("traces", cwd=traces.parent)
    assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)
    assert "--force" in again.stderr
    assert report("traces", "--force", cwd=traces.parent).returncode == 0


def test_two_runs_by_name_and_a_page_elsewhere(traces: Path) -> None:
    page = traces.parent / "a" / "pair.html"
    made = report(traces / "fast", traces / "slow", "-o", page, cwd=traces.parent)
    assert made.returncode == 0, made.stderr
    assert "2 runs" in made.stdout
    assert "torch-cell takes 4.5" in page.read_text()


def test_single_charts_are_files(traces: Path) -> None:
    folders = [f"--{f}={traces.parent / f}" for f in ("png", "svg", "json")]
    made = report(traces, *folders, cwd=traces.parent)
    assert made.returncode == 0, made.stderr
    assert not (traces.parent / "report.html").exists()
    (png,) = (traces.parent / "png").glob("times-0.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(traces.parent / "svg" / "times-0.svg")
    spec = json.loads((traces.parent / "json" / "ledger-0.json").read_text())
    assert spec["title"]["text"].startswith("Where the time goes")
    again = report(traces, folders[1], cwd=traces.parent)
    assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)


class Terminal(io.StringIO):
    """Standard error of a person who looks at it, or not."""

    def __init__(self, *, looked_at: bool) -> None:
        super().__init__()
        self._looked_at = looked_at

    def isatty(self) -> bool:
        return self._looked_at


@pytest.mark.parametrize("looked_at", [True, False])
def test_what_takes_long_says_what_it_is_at_to_who_looks(
    *, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, seconds = Terminal(looked_at=looked_at), iter([0.0, 1.0, 3.5, 3.5, 4.0, 9.0, 9.0])
    monkeypatch.setattr(sys, "stderr", terminal)
    stages = options.Stages(lambda: next(seconds))
    stages.at("soon")
    for _ in range(3):
        stages.done("runs read", 3)
    stages.at("drawing timelines")
    told = ["1 of 3 runs read …", "drawing timelines …"]
    assert terminal.getvalue().splitlines() == (told if looked_at else [])


def test_what_cannot_be_read_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    made = report("no-such-place", cwd=tmp_path)
    assert (made.returncode, made.stdout, len(made.stderr.splitlines())) == (1, "", 1)
    assert list(tmp_path.iterdir()) == []

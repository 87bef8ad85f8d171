"""What ``lstmprof run`` prints once the script is over: the verdict on the run, on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands.written_runs import step, write_run

from lstmprof.capture.script import launch
from lstmprof.capture.script.request import ScriptRequest
from lstmprof.cli import run as lstmprof


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script whose run is there as soon as it has been run; its exit status is 6."""

    def ran(
        request: ScriptRequest, report: Callable[[str], None], measured: Callable[[], None]
    ) -> int:
        write_run(tmp_path, "traces/train", step(("aten::mm", 9)), 10)
        measured()
        return 6

    monkeypatch.setattr(launch, "run_script", ran)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path / "train.py"


def test_it_ends_with_the_verdict_that_diagnose_prints(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lstmprof(["run", str(script)]) == 6
    printed = capsys.readouterr()
    assert printed.out == ""
    assert lstmprof(["diagnose", "traces/train"]) == 0
    assert printed.err == capsys.readouterr().out
    assert "10.0 ms per step" in printed.err


def test_quiet_prints_no_verdict(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lstmprof(["run", "--quiet", str(script)]) == 6
    assert capsys.readouterr().err == ""


def test_a_run_that_cannot_be_read_leaves_the_exit_status_alone(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def damaging(request: ScriptRequest, report: object, measured: Callable[[], None]) -> int:
        Path(request.place).mkdir(parents=True)
        measured()
        return 6

    monkeypatch.setattr(launch, "run_script", damaging)
    assert lstmprof(["run", str(script)]) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lstmprof: no verdict: ")

"""What ``lstmprof run`` prints once the script is over: the verdict on the run, on stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lstmprof.cli import run as lstmprof

SCRIPT = """
import torch
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(200):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
raise SystemExit(6)
"""


def test_it_ends_with_the_verdict_that_diagnose_prints_unless_it_is_to_be_quiet(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    printed = {}
    for name, options in (("loud", []), ("quiet", ["--quiet"])):
        command = [sys.executable, "-m", "lstmprof", "run", "train.py", "--name", name, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (6, "")
        assert f"lstmprof: wrote traces/{name}; " in done.stderr
        printed[name] = done.stderr
    command = [sys.executable, "-m", "lstmprof", "diagnose", "traces/loud"]
    verdict = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert verdict
    assert printed["loud"].endswith(verdict)
    assert " per step" not in printed["quiet"]


def test_a_run_to_compare_with_that_is_not_there_is_refused_before_the_script_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('ran')")
    assert lstmprof(["run", "--compare-with", "traces/none", "train.py"]) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "traces/none" in printed.err

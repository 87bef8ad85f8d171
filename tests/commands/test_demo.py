"""``lstmprof demo`` in a clone: its verdict is that of ``diagnose``, and its commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from in_process import lstmprof

TRACES = Path(__file__).resolve().parents[2] / "traces"


def test_demo_prints_what_diagnose_prints_of_the_samples() -> None:
    demo = lstmprof("demo")
    assert (demo.returncode, demo.stderr) == (0, "")
    pair = lstmprof("diagnose", TRACES / "torch-nn-lstm", TRACES / "torch-lstmcell-basic")
    verdict = pair.stdout.partition("\nMore:")[0]
    assert verdict
    assert verdict in demo.stdout


def test_the_commands_that_demo_names_work(tmp_path: Path) -> None:
    commands = re.findall(r"^  lstmprof (.*)$", lstmprof("demo").stdout, re.M)
    words = [shlex.split(command, comments=True) for command in commands]
    assert [line[0] for line in words] == ["diagnose", "breakdown", "report", "run"]
    for line in words[:2]:
        done = lstmprof(*line, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")

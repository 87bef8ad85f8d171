"""The script of docs/own_code.md runs under ``lstmprof run``, and leaves a complete run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lstmprof as lp

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own_code.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## Profile a script unchanged\n")[2]
SCRIPT = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[0]


@pytest.mark.measured
def test_the_script_of_the_page_leaves_a_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "lstmprof", "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "lstmprof: wrote traces/train; next: lstmprof diagnose traces/train" in done.stderr
    run = lp.read(tmp_path / "traces" / "train")
    assert (run.info.iterations, len(run.info.profiled_wall_ns or ())) == (20, 10)
    assert {"forward", "backward", "optimizer", "nn.Module: LSTM"} <= {
        row["name"] for row in run.table("ranges")
    }
    assert lp.diagnose(run).sentence

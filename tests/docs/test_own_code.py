"""The examples of docs/own_code.md run, and the runs that they write are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lstmprof as lp

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own_code.md"
_, _, REST = PAGE.read_text(encoding="utf-8").partition("## Profile a training loop\n")
IN_CODE = REST.partition("\n## ")[0]
EXAMPLES = {
    re.search(r'profile\("traces/(\w+)"', code)[1]: code  # type: ignore[index]
    for code in re.findall(r"```python\n(.*?)```", IN_CODE, re.DOTALL)
}
FRAMEWORKS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "jax"}


def test_each_framework_has_an_example() -> None:
    assert set(EXAMPLES) == set(FRAMEWORKS)


@pytest.mark.measured
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_example_writes_a_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[name]],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"lstmprof: wrote traces/{name}; next: " in done.stderr
    run = lp.read(tmp_path / "traces" / name)
    info = run.info
    assert (info.source, info.framework) == ("own code", FRAMEWORKS[name])
    assert (info.iterations, len(info.profiled_wall_ns or ())) == (20, 10)
    assert info.recording
    assert info.settings
    steps = run.table("steps").rows()
    assert [row["step"] for row in steps] == list(range(10))
    for row in steps:
        parts = [part["ns"] for part in run.ledger() if part["step"] == row["step"]]
        assert sum(parts) == row["dur_ns"]
    walls = info.profiled_wall_ns or ()
    shares = [row["dur_ns"] / wall for row, wall in zip(steps, walls, strict=True)]
    assert max(shares) <= 1.01
    # A preemption between the two readings of the clock is in the wall time alone.
    assert max(shares) > 0.8
    assert {part["part"] for part in run.ledger()} & {"gemm", "rnn"}

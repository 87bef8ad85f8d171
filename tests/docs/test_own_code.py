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
IN_CODE = PAGE.read_text(encoding="utf-8").partition("## In code\n")[2].partition("\n## ")[0]
EXAMPLES = {
    re.search(r'profile\("traces/(\w+)"', code)[1]: code  # type: ignore[index]
    for code in re.findall(r"```python\n(.*?)```", IN_CODE, re.DOTALL)
}
FRAMEWORKS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "jax"}


def test_each_framework_has_an_example() -> None:
    assert set(EXAMPLES) == set(FRAMEWORKS)


def _length(*stretches: tuple[int, int]) -> int:
    return sum(end - begin for begin, end in stretches)


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
    assert (info.iterations, len(info.profiled_wall_ns or ())) == (20, 3)
    assert info.recording
    assert info.settings
    steps = run.table("steps").rows()
    assert [row["step"] for row in steps] == [0, 1, 2]
    for row in steps:
        parts = [part["ns"] for part in run.ledger() if part["step"] == row["step"]]
        assert sum(parts) == row["dur_ns"]
    walls = info.profiled_wall_ns or ()
    off_ns = [_length(*step.own_ns, *step.others_ns) for step in info.profiled_off_cpu or ()]
    of_steps = list(zip(steps, walls, off_ns or [0] * len(steps), strict=True))
    assert max(row["dur_ns"] / wall for row, wall, _ in of_steps) <= 1.01, of_steps
    # What another process had of the CPU is cut out.
    assert max((row["dur_ns"] + off) / wall for row, wall, off in of_steps) > 0.8, of_steps
    assert {part["part"] for part in run.ledger()} & {"gemm", "rnn"}

"""Own code whose steps run on a GPU: they end when their kernels have, and the device is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lstmprof as lp

PROGRAM = """
import torch, lstmprof as lp
lstm = torch.nn.LSTM(64, 256, 2).cuda()
optimizer = torch.optim.SGD(lstm.parameters(), lr=0.01)
with lp.profile("mine", timed=6, steps=2) as p:
    for _ in range(150):
        with p.phase("input"):
            x = torch.randn(50, 32, 64).to("cuda")
        optimizer.zero_grad()
        lstm(x)[0].mean().backward()
        optimizer.step()
        p.step()
"""


@pytest.mark.gpu
def test_a_step_of_own_code_ends_when_its_kernels_have(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True)
    run = lp.read(tmp_path / "mine")
    assert run.info.device == "cuda:0"
    assert run.info.hardware.gpu
    windows = {window.step: window for window in run.breakdown.windows}
    events = run.stored.events().to_pylist()
    kernels = [row for row in events if row["kind"] == "kernel"]
    # The session begins with a step that does not count.
    assert {row["step"] for row in kernels} == {None, 0, 1}
    assert set(windows) == {0, 1}
    for row in kernels:
        if row["step"] is None:
            continue
        assert row["start_ns"] + row["dur_ns"] <= windows[row["step"]].end_ns
        assert row["start_ns"] >= windows[row["step"]].start_ns
    timings = run.timings()
    assert timings is not None
    busy = sum(row["dur_ns"] for row in kernels if row["step"] is not None) / 2
    assert timings.length_ns > 0.5 * busy

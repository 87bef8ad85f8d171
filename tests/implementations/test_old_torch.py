"""PyTorch since 1.0, each version in the environment of its era: the numbers, and a capture."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from implementations.in_era import interpreter_of
from implementations.test_against_reference import (
    SEED,
    TOLERANCE,
    UNUSUAL_WORKLOADS,
    WORKLOADS,
    expected,
    relative_error,
)

import lstmprof
from lstmprof import implementations
from lstmprof.base.errors import CaptureError
from lstmprof.breakdown import break_down
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.workloads import Workload

ERAS = ("torch-1.0.0", "torch-1.4.0", "torch-1.8.1", "torch-1.13.1")
ROWS = ("torch-lstmcell-basic", "torch-lstmcell-fused", "torch-nn-lstm", "torch-script")
TINY = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")

#: Run by the interpreter of an era: every outcome of the rows and networks named in a file.
PROGRAM = """
import importlib, json, sys
import numpy as np, torch
from lstmprof import implementations, workloads
from lstmprof.capture.worker.loops import torch as loop
from lstmprof.workloads import Workload

asked, place = json.load(open(sys.argv[1])), sys.argv[2]
torch.set_num_threads(1)
arrays = {}
for number, (name, fields) in enumerate(asked["cases"]):
    workload = Workload(**fields)
    file = importlib.import_module(implementations.find(name).module)
    module = file.build(workload)
    file.load(module, workloads.weights(workload, asked["seed"]))
    batch = workloads.batch(workload, asked["seed"])
    lengths = torch.from_numpy(batch.lengths)
    told = (lengths,) if workload.variable_length else ()
    outputs = module(torch.from_numpy(batch.inputs), *told)
    targets = torch.from_numpy(batch.targets)
    loss = loop.loss_of(workload, outputs, targets, lengths, file.TIME_MAJOR)
    loss.backward()
    gradients = {n: p.grad.numpy() for n, p in file.parameters(module).items()}
    arrays["%d/loss" % number] = np.array(loss.item())
    arrays["%d/outputs" % number] = outputs.detach().numpy()
    for key, value in file.canonical(module, gradients).items():
        arrays["%d/gradients/%s" % (number, key)] = value
np.savez(place, **arrays)
"""


def cases(version: str) -> list[tuple[str, Workload]]:
    """What the rows that run with ``version`` say that they can."""
    return [
        (name, workload)
        for name in ROWS
        if implementations.find(name).lacks(version) is None
        for workload in WORKLOADS + UNUSUAL_WORKLOADS
        if refusal(CaptureRequest(name, workload, device="cpu")) is None
    ]


@pytest.mark.parametrize("era", ERAS)
def test_loss_outputs_and_gradients_agree_with_the_reference(era: str, tmp_path: Path) -> None:
    python = interpreter_of(era)
    known = cases(era.rpartition("-")[2])
    (tmp_path / "lstmprof").symlink_to(Path(lstmprof.__file__).parent)
    (tmp_path / "program.py").write_text(PROGRAM)
    asked = {"seed": SEED, "cases": [(name, dataclasses.asdict(w)) for name, w in known]}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    command = [str(python), "program.py", "asked.json", "found.npz"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = np.load(tmp_path / "found.npz")
    for number, (name, workload) in enumerate(known):
        right, case = expected(workload), (name, workload.name)
        keys = {key.partition("/gradients/")[2] for key in found if key.startswith(f"{number}/g")}
        assert keys == set(right.gradients), case
        assert found[f"{number}/loss"] == pytest.approx(right.loss, rel=TOLERANCE, abs=1e-6), case
        assert relative_error(found[f"{number}/outputs"], right.outputs) <= TOLERANCE, case
        for key in keys:
            error = relative_error(found[f"{number}/gradients/{key}"], right.gradients[key])
            assert error <= TOLERANCE, (*case, key)


@pytest.mark.parametrize("era", ERAS)
def test_a_capture_has_every_nanosecond_of_its_steps(era: str, tmp_path: Path) -> None:
    python = str(interpreter_of(era))
    request = CaptureRequest("torch-lstmcell-basic", TINY, device="cpu", python=python)
    request = dataclasses.replace(request, iterations=4, warmup=1, profile_steps=2, peaks=True)
    run = capture_run(request, tmp_path, rounds=1)
    version = era.rpartition("-")[2]
    assert str((run.info.versions or {})["torch"]).partition("+")[0] == version
    old = implementations.version_numbers(version) < (1, 8, 1)
    assert run.info.profiler == ("torch.autograd.profiler" if old else "torch.profiler")
    assert run.info.profile_format == ("autograd" if old else "kineto")
    breakdown = break_down(run)
    assert len(breakdown.windows) == 2
    parts: dict[int, int] = {}
    other: dict[int, int] = {}
    for row in breakdown.ledger.to_pylist():
        parts[row["step"]] = parts.get(row["step"], 0) + row["ns"]
        if (row["state"], row["part"]) == ("busy", "other"):
            other[row["step"]] = row["ns"]
    assert parts == {w.step: w.end_ns - w.start_ns for w in breakdown.windows}
    assert not other
    phases = {row["phase"] for row in run.events().to_pylist()}
    assert {"input", "forward", "loss", "backward", "optimizer"} <= phases


def test_what_an_old_version_lacks_is_refused_in_its_words(tmp_path: Path) -> None:
    python = str(interpreter_of("torch-1.0.0"))

    def refused(name: str, **fields: Any) -> str:
        asked = CaptureRequest(name, TINY, device="cpu", python=python, iterations=1, **fields)
        with pytest.raises(CaptureError) as raised:
            capture_run(asked, tmp_path, rounds=1)
        return raised.value.fault

    assert refused("torch-compile") == "torch-compile needs torch 2.0 or newer, not 1.0.0"
    assert refused("torch-nn-lstm", precision="amp-bf16") == "torch 1.0.0 has no amp-bf16 on cpu"

"""The rows of Theano against the float64 reference, in the interpreter that has them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from implementations.in_era import interpreter_of
from implementations.test_against_reference import SEED, TOLERANCE, UNUSUAL_WORKLOADS, WORKLOADS

import lstmprof
from lstmprof import implementations
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.workloads import Workload

STEP = Path(__file__).with_name("symbolic_step.py")
#: and what an old BLAS must not choose by itself on this processor
KEPT = ("PATH", "HOME", "OPENBLAS_CORETYPE")
#: every operator in Python, as it is written: compiling them in C takes minutes
PLAIN = "cxx=,optimizer=None"
ROWS = [row for row in implementations.TABLE if row.framework == "theano"]
#: both directions, layers, masks; tokens and outputs of every step; without a head; other cells
NETWORKS = ("lengths", "ptb", "glample")
OF_LAYERS = ("lengths", "ptb", "gru", "rnn")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_loss_outputs_and_gradients(row: implementations.Implementation, tmp_path: Path) -> None:
    python = interpreter_of(row.era)
    workloads = {w.name: w for w in WORKLOADS + UNUSUAL_WORKLOADS}
    asked = [workloads[name] for name in (NETWORKS if row.by_hand else OF_LAYERS)]
    assert all(is_known(row.name, workload) for workload in asked)
    found = json.loads(ran(python, row.name, asked, tmp_path))
    for workload, errors in zip(asked, found, strict=True):
        assert errors.pop("way back") is True, workload.name
        assert max(errors.values()) <= TOLERANCE, (workload.name, errors)


def is_known(name: str, workload: Workload) -> bool:
    return not refusal(CaptureRequest(name, workload, device="cpu"))


def ran(python: Path, name: str, workloads: list[Workload], cache: Path) -> str:
    ended = subprocess.run(
        [python, STEP],
        input=json.dumps([[name, dataclasses.asdict(w), SEED] for w in workloads]),
        env={
            **{kept: os.environ[kept] for kept in KEPT if kept in os.environ},
            "PYTHONPATH": str(Path(lstmprof.__file__).parents[1]),
            "KERAS_BACKEND": "theano",
            "KERAS_HOME": str(cache),
            "LSTMPROF_CACHE": str(cache),
            "THEANO_FLAGS": PLAIN,
        },
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout

"""Rows of Chainer, MXNet and Caffe2 against the float64 reference, where they are installed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from implementations.in_era import interpreter_of

import lstmprof
from lstmprof import implementations
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.workloads import Workload

PROGRAM = Path(__file__).parent / "other_frameworks.py"
CODE = str(Path(lstmprof.__file__).parents[1])
TOLERANCE = 1e-4  # max |a − b| / max |b|, float32

WORKLOADS = (
    Workload("one-layer-ce", 1, 5, False, 3, 7, 4, 3, "ce"),
    Workload("three-layers-bidirectional-ce", 3, 4, True, 3, 6, 5, 7, "ce"),
    Workload("bidirectional-ctc", 2, 4, True, 3, 9, 5, 4, "ctc", labels=2, shortest=5),
    Workload("gru", 2, 4, True, 3, 6, 5, 3, "ce", cell="gru"),
    Workload("rnn", 2, 4, True, 3, 6, 5, 3, "ce", cell="rnn"),
    Workload("deepbench", 1, 5, False, 3, 6, 4, 5, "mean", head=False, optimizer="sgd"),
    Workload("glample", 1, 5, False, 3, 6, 4, 5, "mse", head=False, optimizer="sgd"),
    Workload("each-step", 2, 5, False, 3, 6, 4, 7, "ce", each_step=True),
    Workload("ptb", 2, 5, False, 3, 6, 4, 7, "ce", each_step=True, vocabulary=7),
    Workload("imdb", 1, 4, False, 3, 6, 5, 2, "ce", cell="gru", vocabulary=7),
    Workload("lengths", 2, 4, True, 3, 6, 5, 7, "ce", shortest=2, variable_length=True),
    Workload(
        *("ctc-lengths", 2, 4, True, 3, 9, 5, 4, "ctc"),
        **{"labels": 2, "shortest": 5, "variable_length": True},
    ),
)


@pytest.mark.parametrize("era", ["chainer-7.8.1", "mxnet-1.9.1", "caffe2-1.8.1"])
def test_loss_outputs_and_gradients(era: str) -> None:
    interpreter = interpreter_of(era)
    rows = [row.name for row in implementations.TABLE if row.era == era]
    pairs = [
        (name, workload)
        for name in rows
        for workload in WORKLOADS
        if refusal(CaptureRequest(name, workload, device="cpu")) is None
    ]
    assert len(pairs) >= 4 * len(rows)
    ended = subprocess.run(
        [interpreter, PROGRAM],
        input=json.dumps([(name, dataclasses.asdict(workload)) for name, workload in pairs]),
        env={**os.environ, "PYTHONPATH": CODE, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    answers = json.loads(ended.stdout.splitlines()[-1])
    for (name, workload), errors in zip(pairs, answers, strict=True):
        assert max(errors.values()) <= TOLERANCE, (name, workload.name, errors)

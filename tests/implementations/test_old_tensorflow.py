"""TensorFlow 1's own classes, and Keras 2, against the float64 reference, where they run."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from implementations.in_era import interpreter_of

import lstmprof
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.workloads import Workload

PROGRAM = Path(__file__).parent / "old_tensorflow.py"
#: and what an old BLAS must not choose by itself on this processor
KEPT = ("PATH", "HOME", "OPENBLAS_CORETYPE")
VARIABLES = {
    **{name: os.environ[name] for name in KEPT if name in os.environ},
    **{"PYTHONPATH": str(Path(lstmprof.__file__).parents[1]), "KERAS_BACKEND": "tensorflow"},
}
TOLERANCE = 1e-4  # max |a − b| / max |b|, float32

CE = Workload("one-layer-ce", 1, 5, False, 3, 7, 4, 3, "ce")
DEEP = Workload("two-layers-bidirectional-mse", 2, 4, True, 3, 6, 5, 7, "mse")
SGD = Workload("deepbench", 1, 5, False, 3, 6, 4, 5, "mean", head=False, optimizer="sgd")
TOKENS = Workload("ptb", 2, 5, False, 3, 6, 4, 7, "ce", each_step=True, vocabulary=7)
LENGTHS = Workload("lengths", 2, 4, True, 3, 6, 5, 7, "ce", shortest=2, variable_length=True)
CTC_LENGTHS = Workload(
    *("ctc-lengths", 1, 4, True, 3, 9, 5, 4, "ctc"),
    **{"labels": 2, "shortest": 5, "variable_length": True},
)
GRU = Workload("gru", 1, 4, True, 3, 6, 5, 3, "ce", cell="gru")
RNN = Workload("rnn", 1, 4, True, 3, 6, 5, 3, "ce", cell="rnn")

TENSORFLOW_1 = {
    "tf1-basiclstmcell": (CE, DEEP, SGD, TOKENS, CTC_LENGTHS),
    "tf1-lstmcell": (LENGTHS,),
    "tf1-lstmblockcell": (CE, CTC_LENGTHS),
    "tf1-lstmblockfusedcell": (DEEP, LENGTHS),
    "keras-lstm": (LENGTHS,),  # of the Keras within TensorFlow
}
KERAS = {
    "keras-lstm": (TOKENS, LENGTHS, GRU, RNN),
    "keras-lstm-mode1": (DEEP,),
    "keras-lstm-mode2": (CE,),
}


@pytest.mark.parametrize(
    ("era", "asked"),
    [
        ("tensorflow-1.15.5", TENSORFLOW_1),
        ("keras-2.1.6-tensorflow", KERAS),
        ("tensorflow-cpu-2.8.4", KERAS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_loss_outputs_and_gradients(era: str, asked: dict[str, tuple[Workload, ...]]) -> None:
    interpreter = interpreter_of(era)
    pairs = [(name, workload) for name, of_row in asked.items() for workload in of_row]
    for name, workload in pairs:
        assert refusal(CaptureRequest(name, workload, device="cpu")) is None
    ended = subprocess.run(
        [str(interpreter), str(PROGRAM)],
        input=json.dumps([(name, dataclasses.asdict(workload)) for name, workload in pairs]),
        env=VARIABLES,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    answers = json.loads(ended.stdout.splitlines()[-1])
    for (name, workload), errors in zip(pairs, answers, strict=True):
        assert max(errors.values()) <= TOLERANCE, (name, workload.name, errors)

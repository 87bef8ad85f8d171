"""The callbacks with the real frameworks: each example has a planted mistake, which is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from capture.trainers import python_of_trainers

import lstmprof as lp
from lstmprof.capture.callbacks import metrics_of

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {
    "keras": """
import keras, numpy as np, lstmprof as lp
cell = keras.layers.LSTMCell(64)
model = keras.Sequential([keras.layers.RNN(cell, unroll=True), keras.layers.Dense(4)])
model.compile("sgd", "mse", run_eagerly=True)  # the mistake
x, y = np.ones((640, 6, 16), "float32"), np.zeros((640, 4), "float32")
callback = lp.keras.Profile("traces/mine")
history = model.fit(x, y, batch_size=8, callbacks=[callback], verbose=0)
print(history.history["lstmprof/step_ms"])
""",
    "lightning": """
import torch, lightning as L, lstmprof as lp
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(16, 32)
    def training_step(self, batch):
        state = None
        for x in batch.expand(30, 8, 16):  # the mistake
            state = self.cell(x, state)
        return state[0].square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
callback, logger = lp.lightning.Profile("traces/mine"), L.pytorch.loggers.TensorBoardLogger("logs")
trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=logger, callbacks=[callback])
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(1600, 16), batch_size=8))
""",
    "transformers": """
import time, mlflow, torch, transformers, wandb, lstmprof as lp
class Model(torch.nn.LSTM):
    def forward(self, x):
        return {"loss": super().forward(x)[0].square().mean()}
def collate(items):
    time.sleep(0.03)  # the mistake
    return {"x": torch.stack(items)}
args = transformers.TrainingArguments("out", use_cpu=True, report_to=["tensorboard"],
    num_train_epochs=1, logging_steps=1000, save_strategy="no", disable_tqdm=True)
data = [torch.ones(20, 16)] * 900
with mlflow.start_run(), wandb.init(mode="offline"):
    callback = lp.transformers.Profile("traces/mine")
    trainer = transformers.Trainer(Model(16, 32, batch_first=True), args, data_collator=collate,
        train_dataset=data, callbacks=[callback])
    trainer.train()
""",
}
#: What the first fix, or the cause, is about.
NAMED = {"keras": "run_eagerly", "lightning": "torch.nn.LSTM", "transformers": "num_workers"}


def python_of(framework: str) -> str:
    """Return an interpreter with the framework and what lstmprof needs, or skip."""
    if framework == "keras":
        pytest.importorskip("keras")
        return sys.executable
    return python_of_trainers()


@pytest.mark.measured
@pytest.mark.parametrize("framework", EXAMPLES)
def test_a_callback_writes_a_run_that_names_the_mistake(framework: str, tmp_path: Path) -> None:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
    quiet = {"MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = subprocess.run(
        [python_of(framework), "-c", EXAMPLES[framework]],
        cwd=tmp_path,
        env={**os.environ, **one_thread, **quiet, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "lstmprof: wrote traces/mine; next: lstmprof diagnose traces/mine" in done.stderr
    run = lp.read(tmp_path / "traces" / "mine")
    document = lp.diagnose(run).to_dict()
    verdict = document["verdict"]
    said = [str(verdict["cause"]), *(fix["fix"] for fix in verdict["fixes"])]
    assert any(NAMED[framework] in words for words in said), (said, done.stderr)
    assert len(run.info.profiled_wall_ns or ()) == 10
    step_ms = str(metrics_of(document)["lstmprof/step_ms"])
    if framework == "keras":
        assert done.stdout.splitlines()[-1] == f"[{step_ms}]"
    else:
        (events,) = (
            path
            for path in tmp_path.rglob("events.out.tfevents.*")
            if b"lstmprof/step_ms" in path.read_bytes()
        )
        assert events.is_file()
    if framework == "transformers":
        (logged,) = (tmp_path / "mlruns").rglob("metrics/lstmprof/step_ms")
        assert logged.read_text().split()[1] == step_ms
        (kept,) = tmp_path.rglob("run-*.wandb")  # W&B's log of an offline run
        assert {b"lstmprof/step_ms", step_ms.encode()} <= set(
            re.findall(rb"[\w./]+", kept.read_bytes())
        )


def test_metrics_are_the_step_time_and_the_shares_of_the_diagnosis() -> None:
    run = lp.read(ROOT / "traces" / "torch-lstmcell-basic")
    document = json.loads(json.dumps(lp.diagnose(run).to_dict()))
    metrics = metrics_of(document)
    assert metrics["lstmprof/step_ms"] == document["verdict"]["step_ns"] / 1e6
    shares = {name: value for name, value in metrics.items() if name.endswith("_share")}
    assert 0.5 < shares["lstmprof/matmul_share"] < 1
    assert 0.9 < sum(shares.values()) <= 1.0001
    assert metrics_of({"verdict": {"step_ns": None}, "findings": []}) == {}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_callback_has_at_most_sixty_lines_and_its_example_fifteen(name: str) -> None:
    path = ROOT / "lstmprof" / "capture" / "callbacks" / f"{name}.py"
    assert len(path.read_text("utf-8").splitlines()) <= 60
    assert len(EXAMPLES[name].strip().splitlines()) <= 15

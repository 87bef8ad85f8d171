"""Programs that were never written for lstmprof: one command names the mistake in each, first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from capture.trainers import python_of_trainers
from implementations.in_era import interpreter_of

pytestmark = pytest.mark.measured
PROGRAMS = Path(__file__).parents[2] / "own_code"
#: One thread of each framework: the suite's machine has few cores, and others use them.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
NETWORK = ("cell", "time_steps", "batch", "inputs", "hidden", "layers", "directions")
SHORT = """\
import sys, torch
model = torch.nn.LSTM(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(3, 2, 8))[0].sum().backward()
    optimizer.step()
model(torch.ones(3, 2, 8))  # a part of no step
print("trained")
sys.exit(3)
"""


SLEEPS = """\
import sys, time, torch
model = torch.nn.LSTM(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    time.sleep(float(sys.argv[1]))
    model(torch.ones(3, 2, 8))[0].sum().backward()
    optimizer.step()
"""


LENGTHS = """\
import sys, torch
model, data = torch.nn.LSTM(8, 8), torch.ones(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(int(sys.argv[1])):
    optimizer.zero_grad()
    x = torch.ones(3 + number, 2, 8)
    model(x)[0].sum().backward()
    for _ in range(number):
        data.trace()
    optimizer.step()
model(torch.ones(90, 2, 8))  # a part of no step
"""


def ran(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lstmprof", *map(str, command)],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=1800,
    )


def diagnosed(folder: Path, name: str) -> dict[str, Any]:
    """What ``diagnose`` says of the run, once it is there."""
    told = ran(folder, "diagnose", f"traces/{name}", "--format", "json")
    assert told.returncode == 0, told.stderr
    documents: list[dict[str, Any]] = json.loads(told.stdout)
    return documents[0]


def info(folder: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "traces" / name / "run.json").read_text())
    return document


def named(folder: Path, name: str) -> dict[str, Any]:
    """Return the finding that is named as the cause."""
    document = diagnosed(folder, name)
    assert document["state"] == "found", document["reason"]
    return next(f for f in document["findings"] if f["kind"] == document["verdict"]["kind"])


@dataclass(frozen=True)
class Case:
    """A program, how it is run, and what is to be seen of it.

    ``kind`` is the bottleneck that its mistake makes, ``remedy`` the first one of that finding, and
    ``fix`` a part of what it advises.
    Where the mistake makes two bottlenecks of about one size, ``kind`` is both with a comma
    between them: the machine decides which of them is larger.
    ``network`` is of its recurrent layer: cell, time steps, batch, inputs, hidden, layers and
    directions; time steps are None if each batch has another length. ``calls`` is how often the
    layer is called per step, which shows that a step is one of the script's; None: not checked.
    ``cause`` is what the verdict says, if it names a line of the program.
    """

    name: str
    needs: str
    kind: str
    remedy: str | None
    network: tuple[Any, ...]
    argument: int = 60
    steps: int = 2
    cause: str = ""
    fix: str = ""
    calls: float | None = None

    @property
    def trainers(self) -> bool:
        """Whether the program needs packages that are not in this environment."""
        return self.needs in ("lightning", "accelerate", "transformers")

    def fits(self, network: tuple[Any, ...]) -> bool:
        """Whether these are the layer's sizes; without time steps, each batch has other ones.

        A generator may give Keras batches of any size, so the batch is unknown (None).
        """
        if self.network[1] is None and network[1] is not None:
            network = (network[0], None, *network[2:])
        return network == self.network


WAITING_FIX = "wait beside the step"
CASES = [
    Case(
        "torch_words", "torch", "sync", "ask for no value", ("lstm", 40, 20, 16, 16, 2, 1), 20, 10
    ),
    Case(
        "torch_lbfgs", "torch", "Python,dispatch", "layer in one op", ("lstm", 19, 6, 1, 16, 2, 1)
    ),
    Case(
        "torch_accumulation", "torch", "elementwise", "no anomaly mode", ("gru", 6, 4, 5, 16, 1, 2)
    ),
    Case("torch_trainer", "torch", "input", "workers", ("lstm", 10, 8, 8, 24, 1, 1), 120),
    Case(
        *(
            "keras_batches",
            "keras",
            "Python,dispatch",
            "one tf.function",
            ("lstm", 10, 8, 4, 24, 1, 1),
        ),
        calls=1,
    ),
    Case("keras_tagger", "keras", "dispatch", "pad at the end", ("lstm", 14, 32, 16, 20, 1, 2), 20),
    Case(
        "tf_tape",
        "tensorflow",
        "Python,dispatch",
        "one tf.function",
        ("gru", 10, 8, 2, 20, 1, 1),
        calls=1,
    ),
    Case(
        "tf_cells",
        "tensorflow",
        "Python,dispatch",
        "one tf.function",
        ("lstm", 9, 8, 4, 16, 1, 1),
        calls=1,
    ),
    Case(
        *("tf_function", "tensorflow", "compile", "trace once", ("lstm", 7, 8, 6, 16, 1, 1)),
        fix="pass epoch as a tf.constant",
        calls=1,
    ),
    Case(
        *("tf1_session", "tensorflow", "waiting", WAITING_FIX, ("lstm", 12, 32, 32, 64, 1, 1), 200),
        cause="tf1_session.py:41 sleeps (time.sleep)",
    ),
    Case("equinox_gru", "equinox", "dispatch", "jit the whole", ("gru", 12, 8, 2, 20, 1, 1), 200),
    Case(
        *("haiku_text", "haiku", "compile", "trace once", ("lstm", None, 8, 30, 24, 1, 1)),
        fix="keep the shape of text constant",
    ),
    Case(
        *("flax_state", "flax", "compile", "trace once", ("lstm", 10, 8, 6, 20, 1, 1)),
        fix="call jax.jit on train_step once",
    ),
    Case(
        *("nnx_series", "flax.nnx", "compile", "trace once", ("lstm", None, 8, 6, 20, 1, 1)),
        fix="keep the shape of series constant",
    ),
    Case(
        *("lightning_series", "lightning", "Python,dispatch", "layer in one op"),
        *(("lstm", 18, 8, 6, 20, 1, 1), 120),
    ),
    Case(
        *("accelerate_records", "accelerate", "input", "workers"),
        *(("lstm", 10, 8, 8, 24, 1, 1), 120),
    ),
    Case(
        *(
            "transformers_numbers",
            "transformers",
            "Python,dispatch,matmul",
            "whole sequence in one call",
        ),
        *(("lstm", 1, 8, 6, 20, 1, 1), 120),
    ),
    Case(
        *("haiku_eager", "haiku", "compile", "jit the whole", ("gru", 9, 8, 5, 16, 1, 1)),
        fix="put one jax.jit around the whole step",
        calls=1,
    ),
    Case(
        *("torch_lengths", "torch", "compile", "trace once", ("lstm", None, 8, 6, 16, 1, 1)),
        fix="keep the size of dimension 0 of series constant",
    ),
    Case(
        *("torch_annealed", "torch", "Python,dispatch", "keep it compiled"),
        *(("lstm", 12, 8, 6, 16, 1, 1), 120),
        fix="make self.steps a tensor",
        cause="torch.compile gave up on Denoiser.forward: self.steps is no longer 7",
        calls=1,
    ),
    Case(
        *("jax_sgd", "jax", "waiting", WAITING_FIX, ("lstm", 12, 8, 6, 20, 1, 1), 200),
        cause="jax_sgd.py:49 sleeps (time.sleep)",
    ),
    Case(
        *("tf_lock", "tensorflow", "waiting", WAITING_FIX, ("lstm", 7, 8, 6, 16, 1, 1), 150),
        cause="tf_lock.py:45 waits",
    ),
    Case(
        *("keras_generator", "keras", "input", "prefetch", ("lstm", 10, None, 4, 24, 1, 1), 120),
        cause="keras_generator.py:16 sleeps (time.sleep)",
    ),
]

#: Program, and its arguments after the number of steps -> the cause in the catalogue. With the
#: argument "fixed", the program has the fix.
FIXES = {
    ("torch_next",): "whole sequence in one call",
    ("torch_layer", "gru"): "LSTM on a CPU",
    ("torch_layer", "float64"): "float32",
    ("torch_layer", "projection"): "project afterwards",
    ("jax_gates",): "gates together",
    ("torch_layer", "bfloat16"): "float32 instead of bfloat16",
    ("torch_stream",): "detach the state",
    ("torch_vocabulary",): "sparse gradient",
    ("torch_memory",): "parallel form",
}


@pytest.mark.parametrize("program", FIXES, ids="-".join)
def test_a_cause_in_a_whole_program_comes_first_with_a_forecast(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    name, *more = program
    pytest.importorskip(name.partition("_")[0])
    if "bfloat16" in more and "avx512" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("oneDNN has an LSTM in bfloat16 for this CPU")
    ended = ran(
        *(tmp_path, "run", PROGRAMS / f"{name}.py", "--then", "stop", "--quiet"),
        *("--", 100, *more),
    )
    assert ended.returncode == 0, ended.stderr
    verdict = diagnosed(tmp_path, name)["verdict"]
    assert verdict["fixes"][0]["name"] == FIXES[program]
    assert verdict["fixes"][0]["saves_ns"] is not None


@pytest.mark.parametrize("count", [11, 17, 23, 30])
def test_a_training_that_ends_early_has_the_sizes_of_its_own_steps(
    count: int, tmp_path: Path
) -> None:
    (tmp_path / "lengths.py").write_text(LENGTHS)
    ended = ran(tmp_path, "run", "--quiet", "lengths.py", "--", count)
    assert ended.returncode == 0, ended.stderr
    events = pq.read_table(tmp_path / "traces" / "lengths" / "events.parquet").to_pylist()
    steps = {row["step"] for row in events} - {None}
    assert len(steps) >= 3
    for step in steps:
        within = [row for row in events if row["step"] == step and row["kind"] == "op"]
        (layer,) = (row for row in within if row["name"] == "aten::lstm")
        number = sum(row["name"] == "aten::trace" for row in within)
        assert json.loads(layer["shapes"])[0][0] == 3 + number


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_steps_layers_and_mistake_of_a_program_are_seen(case: Case, tmp_path: Path) -> None:
    python: tuple[str, ...] = ()
    if case.trainers:
        python = ("--python", python_of_trainers())
    else:
        pytest.importorskip(case.needs)
    plan = ("--timed", 4, "--warmup", 1, "--steps", case.steps, "--then", "stop", "--quiet")
    script = PROGRAMS / f"{case.name}.py"
    ended = ran(tmp_path, "run", script, *python, *plan, "--", case.argument)
    assert ended.returncode == 0, ended.stderr
    facts = info(tmp_path, case.name)
    assert (facts["source"], facts["mode"]) == ("own code", "train")
    assert len(facts["profiled_wall_ns"]) == case.steps
    first = named(tmp_path, case.name)
    if case.cause:
        assert diagnosed(tmp_path, case.name)["verdict"]["cause"] == case.cause
    remedies = [remedy["name"] for remedy in first["remedies"]]
    assert first["kind"] in case.kind.split(",")
    assert next(iter(remedies), None) == case.remedy
    assert not case.fix or case.fix in first["remedies"][0]["fix"]
    table = ran(
        *(tmp_path, "breakdown", f"traces/{case.name}", "--table", "layers", "--format", "json")
    )
    layers = json.loads(table.stdout)
    assert layers
    for layer in layers:
        network = tuple(layer[name] for name in NETWORK)
        assert network[1] is not None
        assert case.fits(network), network
        assert case.calls in (None, layer["per_step"])
        assert layer["dtype"] == "float32"
        known = case.network[2] is not None  # the batch, which tells whether it is packed
        assert layer["packed"] == (case.name == "torch_trainer" if known else None)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_the_programs_are_short_and_know_nothing_of_lstmprof(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert "lstmprof" not in text


@pytest.mark.parametrize(("steps", "timed"), [(8, 2), (10, 3), (16, 9)])
def test_eight_steps_are_enough_for_a_run(steps: int, timed: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SHORT, encoding="utf-8")
    ended = ran(tmp_path, "run", "train.py", "--quiet", "--", steps)
    assert (ended.returncode, ended.stdout) == (3, "trained\n"), ended.stderr
    thin, wrote = ended.stderr.splitlines()
    assert f"the run has {timed} timed and 3 profiled steps; these times are inaccurate" in thin
    assert wrote == "lstmprof: wrote traces/train; next: lstmprof diagnose traces/train"
    facts = info(tmp_path, "train")
    assert (len(facts["profiled_wall_ns"]), facts["iterations"]) == (3, timed)
    table = ran(tmp_path, "breakdown", "traces/train", "--table", "steps", "--format", "json")
    assert [row["step"] for row in json.loads(table.stdout)] == [0, 1, 2]


def test_a_batch_that_some_steps_wait_for_is_part_of_the_step(tmp_path: Path) -> None:
    """Each batch takes 20 ms; some are ready, because the profiler's start takes longer."""
    pytest.importorskip("torch")
    ended = ran(tmp_path, "run", PROGRAMS / "torch_queue.py", "--quiet", "--", 150)
    assert ended.returncode == 0, ended.stderr
    table = ran(tmp_path, "breakdown", "traces/torch_queue", "--format", "json")
    breakdown = json.loads(table.stdout)
    parts = {row["part"]: row["ns"] for row in breakdown["account"]}
    step_ns = sum(parts.values())
    assert 10_000_000 < step_ns < 24_000_000  # on a busy machine, fewer steps wait
    assert parts["waiting"] > 0.5 * step_ns
    verdict = diagnosed(tmp_path, "torch_queue")["verdict"]
    assert (verdict["kind"], verdict["cause"]) == ("waiting", "torch_queue.py:39 waits (.get)")


def test_a_run_after_a_fix_says_what_was_gained(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SLEEPS, encoding="utf-8")
    slow = ran(tmp_path, "run", "train.py", "--name", "slow", "--", 0.05)
    assert slow.returncode == 0, slow.stderr
    line = SLEEPS.splitlines().index("    time.sleep(float(sys.argv[1]))") + 1
    cause = diagnosed(tmp_path, "slow")["verdict"]["cause"]
    assert cause == f"train.py:{line} sleeps (time.sleep)"
    faster = ("--name", "fast", "--compare-with", "traces/slow", "--", 0.0)
    fast = ran(tmp_path, "run", "train.py", *faster)
    assert fast.returncode == 0, fast.stderr
    last = fast.stderr.splitlines()[-1]
    (gain,) = re.findall(r"real gain: ([\d.]+) ms", last)
    assert 40 < float(gain) < 60


def test_a_program_of_tensorflow_1_under_python_3_7_is_what_it_is_alone(tmp_path: Path) -> None:
    python = interpreter_of("tensorflow-1.15.5")
    path, count = PROGRAMS / "tf1_session.py", "150"
    alone = subprocess.run(
        [str(python), str(path), count], cwd=tmp_path, capture_output=True, text=True
    )
    ended = ran(tmp_path, "run", path, "--python", python, "--quiet", "--", count)
    assert (ended.returncode, alone.returncode) == (0, 0), ended.stderr
    steps = [line.split(":")[0] for line in alone.stdout.splitlines()]
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == steps
    (line,) = (one for one in ended.stderr.splitlines() if one.startswith("lstmprof: "))
    # lstmprof run has no profiler for TensorFlow 1.15; its own captures have one
    assert line.startswith("lstmprof: did not write traces/tf1_session: stopped while warming up")


def test_values_that_a_tagger_reads_word_by_word_are_its_first_finding(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = PROGRAMS / "torch_tagger.py"
    ended = ran(tmp_path, "run", path, "--timed", 6, "--warmup", 1, "--", "--epochs", 4)
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(r"^epoch \d: .* of the words are right$", ended.stdout, re.M)) == 4
    assert "lstmprof: wrote traces/torch_tagger;" in ended.stderr
    first = named(tmp_path, "torch_tagger")
    assert first["kind"] == "sync"
    assert first["remedies"][0]["name"] == "ask for no value"
    assert "whole tensors" in first["remedies"][0]["fix"]
    facts = info(tmp_path, "torch_tagger")
    assert (facts["source"], facts["framework"], facts["mode"]) == ("own code", "torch", "train")
    assert facts["command"].startswith("lstmprof run ")
    assert len(facts["profiled_wall_ns"]) == 10
    ranges = json.loads(
        ran(
            *(tmp_path, "breakdown", "traces/torch_tagger", "--table", "ranges"),
            *("--format", "json"),
        ).stdout
    )
    names = {row["name"] for row in ranges}
    assert {"step", "input", "forward", "loss", "backward", "optimizer"} <= names
    assert "nn.Module: LSTM lstm" in names


def test_masks_of_padding_in_front_are_a_classifier_s_first_finding(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    path = PROGRAMS / "keras_classifier.py"
    ended = ran(tmp_path, "run", path, "--timed", 6, "--warmup", 1, "--then", "stop", "--", 30)
    assert ended.returncode == 0, ended.stderr
    assert "accuracy 0" not in ended.stdout  # stopped before
    assert info(tmp_path, "keras_classifier")["padding"] == "front"
    assert named(tmp_path, "keras_classifier")["remedies"][0]["name"] == "pad at the end"


def test_a_character_model_without_jit_is_told_so_first(tmp_path: Path) -> None:
    pytest.importorskip("flax")
    pytest.importorskip("optax")
    path = PROGRAMS / "flax_characters.py"
    ended = ran(
        *(tmp_path, "run", path, "--timed", 2, "--warmup", 1, "--steps", 1),
        *("--then", "stop", "--", 40),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("step 0: loss ")
    assert "jax.jit" in named(tmp_path, "flax_characters")["remedies"][0]["fix"]


def test_cells_of_trees_are_no_loop_over_time(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = PROGRAMS / "torch_trees.py"
    plan = ("--timed", 4, "--warmup", 1, "--then", "stop", "--quiet")
    ended = ran(tmp_path, "run", path, *plan, "--", 120)
    assert ended.returncode == 0, ended.stderr
    tree = info(tmp_path, "torch_trees")["script_tree"]
    assert (tree["file"], tree["line"], tree["function"]) == ("torch_trees.py", 31, "forward")
    document = diagnosed(tmp_path, "torch_trees")
    assert [fix["name"] for fix in document["verdict"]["fixes"]][:1] == [
        "nodes of a level together"
    ]
    assert document["verdict"]["cause"] == document["verdict"]["fixes"][0]["cause"]


def test_a_decoder_that_draws_its_inputs_is_a_second_loop(tmp_path: Path) -> None:
    """XLA's event of the decoder's loop may end before the loop, which draws in an inner loop."""
    pytest.importorskip("flax")
    pytest.importorskip("optax")
    path = PROGRAMS / "flax_answers.py"
    plan = ("--timed", 4, "--warmup", 1, "--then", "stop", "--quiet")
    ended = ran(tmp_path, "run", path, *plan, "--", 60)
    assert ended.returncode == 0, ended.stderr
    words = ("breakdown", "traces/flax_answers", "--table", "layers", "--format", "json")
    layers = json.loads(ran(tmp_path, *words).stdout)
    networks = {tuple(layer[name] for name in NETWORK) for layer in layers}
    assert networks == {("lstm", steps, 16, 12, 40, 1, 1) for steps in (8, 7)}
    assert [layer["per_step"] for layer in layers] == [1, 1]
    assert [remedy["name"] for remedy in named(tmp_path, "flax_answers")["remedies"]] == [
        "gates together"
    ]


def test_a_gan_with_a_worker_and_accumulated_gradients_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = Path(__file__).parent / "gan.py"
    ended = ran(tmp_path, "run", path, "--timed", 4, "--warmup", 1, "--steps", 2)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("lstmprof: ")]
    assert ended.returncode == 6, ended.stderr
    assert lines == [
        "lstmprof: each call of Adam ends a step (it is called last); calls of SGD do not; if this "
        "is wrong, name the function that runs one step: --step-function NAME",
        "lstmprof: the script runs 5 backward passes per step",
        "lstmprof: wrote traces/gan; next: lstmprof diagnose traces/gan",
    ]
    assert sum(line.startswith("gan   ") for line in ended.stderr.splitlines()) == 1
    assert "USDT:" not in ended.stderr
    assert len(info(tmp_path, "gan")["profiled_wall_ns"]) == 2

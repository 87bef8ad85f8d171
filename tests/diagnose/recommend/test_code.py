"""The lines that build a network are run: they give outputs of the workload's shape, and train."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quick_compile

from lstmprof import implementations, workloads
from lstmprof.diagnose.recommend.code import TEMPLATES, code_of
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload

ONE = Workload("tiny", 1, 4, False, 2, 5, 3, 6, "ce")
EACH = Workload("each", 1, 4, False, 2, 5, 3, 6, "ctc", labels=2, shortest=4)
DEEP = Workload("deep", 2, 4, True, 2, 5, 3, 6, "ctc", labels=2, shortest=4)
GRU = Workload("gru", 1, 4, False, 2, 5, 3, 4, "mean", head=False, cell="gru")
TOKENS = Workload("tokens", 1, 4, False, 2, 5, 3, 6, "ce", vocabulary=7)
NETWORKS = (ONE, EACH, DEEP, GRU)

RUNNER = Path(__file__).with_name("lines_runner.py")
FRAMEWORKS = sorted({row.framework for row in implementations.TABLE if row.name in TEMPLATES})


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def own_lines(framework: str) -> list[tuple[Implementation, Workload, str]]:
    """(row, network, lines) of all that have lines of their own, and whose library is here."""
    rows = [row for row in implementations.TABLE if row.framework == framework]
    return [
        (row, workload, code)
        for row in rows
        if row.name in TEMPLATES and is_installed(row.library or row.framework)
        for workload in ((DEEP,) if row.library == "keras" else NETWORKS)
        if "lstmprof" not in (code := code_of(row.name, workload))
    ]


def size_of(workload: Workload, code: str) -> list[int]:
    place = [workload.time_steps, workload.batch]
    time_major = "(time, batch, features)" in code
    return [*(place if time_major else place[::-1]), workload.features]


def due(workload: Workload, code: str) -> list[int]:
    if not workload.every_step:
        return [workload.batch, workload.classes]
    return [*size_of(workload, code)[:2], workload.classes]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_lines_build_the_network_and_train_it(framework: str) -> None:
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed")
    lines = own_lines(framework)
    asked = [(code, framework, size_of(w, code)) for _, w, code in lines]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(RUNNER), framework],
        input=json.dumps(asked),
        env={**os.environ, **quick_compile.ENVIRONMENT},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    came = json.loads(ended.stdout)
    named = [f"{row.name} {workload.name}" for row, workload, _ in lines]
    shapes = {name: outcome["shape"] for name, outcome in zip(named, came, strict=True)}
    assert shapes == {n: due(w, code) for n, (_, w, code) in zip(named, lines, strict=True)}
    assert not any(outcome["untrained"] for outcome in came), dict(zip(named, came, strict=True))


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_lines_are_few_and_need_no_lstmprof(name: str) -> None:
    code = code_of(name, ONE)
    assert "lstmprof" not in code
    assert len(code.splitlines()) <= 42
    assert max(map(len, code.splitlines())) <= 100


def test_a_network_has_an_output_layer_only_where_the_workload_has_one() -> None:
    with_head, without = code_of("torch-nn-lstm", ONE), code_of("torch-nn-lstm", GRU)
    assert "torch.nn.Identity()" not in with_head
    assert "torch.nn.Identity()" in without
    assert "torch.nn.Linear" in with_head
    assert "torch.nn.Linear" not in without


def test_cudnns_weights_are_those_of_all_layers_and_directions() -> None:
    (name,) = (n for n, t in TEMPLATES.items() if "$cudnn_size" in str(t))
    shapes = workloads.parameter_shapes(DEEP)
    matrices = sum(prod(s) for n, s in shapes.items() if n.startswith("weight"))
    two_biases = 2 * 4 * DEEP.hidden * DEEP.directions * DEEP.layers
    assert f"[{matrices + two_biases}]" in code_of(name, DEEP)


@pytest.mark.parametrize("row", implementations.TABLE, ids=lambda row: row.name)
def test_what_has_no_lines_of_its_own_is_built_as_lstmprof_builds_it(row: Any) -> None:
    code = code_of(row.name, TOKENS)
    folder, _, module = row.file.rpartition(".")
    assert f"from lstmprof.implementations.{folder} import {module}\n" in code
    scope: dict[str, Any] = {}
    exec(code.partition("\n")[2].rpartition("network =")[0], scope)
    assert scope["workload"] == TOKENS


def test_the_fallback_builds() -> None:
    torch = pytest.importorskip("torch")
    scope: dict[str, Any] = {}
    exec(code_of("torch-nn-lstm", TOKENS), scope)
    tokens = torch.from_numpy(np.zeros((5, 2), np.int64))
    assert tuple(scope["network"](tokens).shape) == (2, 6)


def test_a_file_of_the_users_has_its_own_code() -> None:
    assert "your own file" in code_of("mymodel", ONE)

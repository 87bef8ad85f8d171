"""The lines that build a network are run: they give outputs of the workload's shape."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lstmprof import implementations
from lstmprof.diagnose.recommend.code import TEMPLATES, code_of
from lstmprof.workloads import Workload

ONE = Workload("tiny", 1, 4, False, 2, 5, 3, 6, "ce")
DEEP = Workload("deep", 2, 4, True, 2, 5, 3, 6, "ctc", labels=2, shortest=4)
GRU = Workload("gru", 1, 4, False, 2, 5, 3, 4, "mean", head=False, cell="gru")
TOKENS = Workload("tokens", 1, 4, False, 2, 5, 3, 6, "ce", vocabulary=7)
NETWORKS = (ONE, DEEP, GRU)

#: Runs the lines and calls what they build; prints the shape of its outputs
RUN = """
import runpy
import numpy as np
path, name, time_major, w = {path!r}, {name!r}, {time_major}, {sizes}
scope = runpy.run_path(path)
network = scope["network"]
place = w[:2] if time_major else w[1::-1]
inputs = np.zeros((*place, w[2]), np.float32)
if name == "jax":
    import jax
    if callable(network) and not hasattr(network, "init"):
        outputs = network(scope["parameters"], inputs)
    elif hasattr(network, "init"):
        outputs = network.apply(network.init(jax.random.key(0), inputs), inputs)
elif name == "torch":
    import torch
    outputs = network(torch.from_numpy(inputs))
else:
    outputs = network(inputs)
print(tuple(outputs.shape))
"""


def shape(
    row: Any, workload: Workload, folder: Path, environment: dict[str, str] | None = None
) -> Any:
    """Of the outputs of what the lines of ``row`` build, in this process or in one of its own."""
    code = code_of(row.name, workload)
    time_major = "(time, batch, features)" in code
    sizes = (workload.time_steps, workload.batch, workload.features)
    framework = "keras" if row.library == "keras" else row.framework
    path = folder / "network.py"
    path.write_text(code, encoding="utf-8")
    program = RUN.format(path=str(path), name=framework, time_major=time_major, sizes=sizes)
    if environment is None:
        said: list[Any] = []
        exec(program, {"print": said.append})
        return said[-1]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return eval(ended.stdout.splitlines()[-1])


def due(workload: Workload, code: str) -> tuple[int, ...]:
    w = workload
    if not w.every_step:
        return (w.batch, w.classes)
    if "(time, batch, features)" in code:
        return (w.time_steps, w.batch, w.classes)
    return (w.batch, w.time_steps, w.classes)


ROWS = [row for row in implementations.TABLE if row.name in TEMPLATES]
IN_PROCESS = [row for row in ROWS if row.library != "keras"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("workload", NETWORKS, ids=lambda w: w.name)
@pytest.mark.parametrize("row", IN_PROCESS, ids=lambda row: row.name)
def test_the_lines_build_the_network(
    row: Any, workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = pytest.importorskip(row.framework)
    if row.library:
        pytest.importorskip(row.library)
    if row.framework == "torch":  # compiling takes half a minute and changes no shape
        monkeypatch.setattr(framework, "compile", lambda module: module)
    code = code_of(row.name, workload)
    if "lstmprof" in code:
        pytest.skip("it builds what its file builds")
    assert len(code.splitlines()) <= 25
    assert shape(row, workload, tmp_path) == due(workload, code)


@pytest.mark.parametrize("name", ["keras-lstm-mode1", "keras-torch-lstm", "keras-jax-lstm"])
def test_kerass_lines_run_on_each_of_its_frameworks(name: str, tmp_path: Path) -> None:
    pytest.importorskip("keras")
    row = implementations.find(name)
    pytest.importorskip(row.framework)
    environment = {"KERAS_BACKEND": "", "CUDA_VISIBLE_DEVICES": "-1"}
    assert shape(row, DEEP, tmp_path, environment) == due(DEEP, code_of(name, DEEP))


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
    exec(code_of("torch-cudnn", TOKENS), scope)
    tokens = torch.from_numpy(np.zeros((5, 2), np.int64))
    assert tuple(scope["network"](tokens).shape) == (2, 6)


def test_a_file_of_the_users_has_its_own_code() -> None:
    assert "your own file" in code_of("mymodel", ONE)

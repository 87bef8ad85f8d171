"""TensorFlow's mixed precisions and XLA: near the float32 step, and not the same as it."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lstmprof import implementations, workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload

tf = pytest.importorskip("tensorflow")

CE = Workload("tiny", 1, 5, False, 3, 6, 4, 3, "ce")
TOKENS = Workload(
    *("tokens", 1, 5, True, 3, 6, 4, 3, "ce"),
    **{"vocabulary": 7, "shortest": 2, "variable_length": True},
)
#: relative to the largest element; 8 and 11 bits of mantissa over six time steps
TOLERANCE = {"amp-bf16": 5e-2, "amp-fp16": 5e-3}
FLOAT32 = 1e-5
ROWS = [row for row in implementations.TABLE if row.framework == "tensorflow"]


@pytest.fixture
def _restored() -> Iterator[None]:
    """Put the process back: both switches are the framework's own globals."""
    yield
    keras = importlib.import_module("keras")
    keras.mixed_precision.set_global_policy("float32")
    names = ("auto_mixed_precision", "auto_mixed_precision_onednn_bfloat16")
    tf.config.optimizer.set_experimental_options(dict.fromkeys(names, False))


def gradients(
    file: Any, workload: Workload = CE, xla: bool | None = None
) -> dict[str, NDArray[Any]]:
    """The gradients of the summed outputs of a loaded network."""
    from lstmprof.capture.worker.loops import tensorflow as loop

    module = file.build(workload)
    file.load(module, workloads.weights(workload, 1))
    inputs, lengths, _ = loop.batch_of(workload, 1, file.TIME_MAJOR)
    own = file.parameters(module)

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator, unused-ignore]
    def step(inputs: Any, lengths: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.cast(module(inputs, *lengths), tf.float32))
        found = tape.gradient(total, list(own.values()))
        return [tf.convert_to_tensor(gradient) for gradient in found]

    tensors = step(*tf.nest.map_structure(tf.constant, (inputs, lengths)))
    arrays = {name: tensor.numpy() for name, tensor in zip(own, tensors, strict=True)}
    shared: dict[str, NDArray[Any]] = file.canonical(module, arrays)
    return shared


def error(found: dict[str, NDArray[Any]], right: dict[str, NDArray[Any]]) -> float:
    assert set(found) == set(right)
    return max(float(np.abs(found[n] - a).max() / (np.abs(a).max() or 1)) for n, a in right.items())


def avx512() -> bool:
    """Whether this x86 CPU has AVX-512."""
    return "avx512f" in Path("/proc/cpuinfo").read_text()


def file_of(row: Implementation, **asked: Any) -> Any:
    """The row's file; skips where it refuses."""
    refused = refusal(CaptureRequest(row.name, CE, device="cpu", **asked))
    if refused:
        pytest.skip(refused)
    return importlib.import_module(row.module)


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_mixed_precision_is_near_float32_and_another(row: Implementation, precision: str) -> None:
    file = file_of(row, precision=precision)
    right = gradients(file)
    try:
        file.mixed_precision(precision)
    except CaptureError as refused:
        assert (precision, avx512()) == ("amp-bf16", False)
        pytest.skip(str(refused))
    assert FLOAT32 < error(gradients(file), right) < TOLERANCE[precision]


@pytest.mark.parametrize("workload", [CE, TOKENS], ids=lambda w: w.name)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_xla_computes_the_same(row: Implementation, workload: Workload) -> None:
    file = file_of(row, xla=True)
    assert error(gradients(file, workload, xla=True), gradients(file, workload)) < FLOAT32


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_tf32_and_compiled_ctc_are_refused_on_a_cpu(row: Implementation) -> None:
    ctc = Workload("tiny-ctc", 2, 4, True, 2, 8, 3, 4, "ctc", labels=2, shortest=5)
    for fields in ({"precision": "tf32"}, {"xla": True}):
        assert refusal(CaptureRequest(row.name, ctc, device="cpu", **fields))  # type: ignore[arg-type]

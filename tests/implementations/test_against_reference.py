"""Loss, outputs and every gradient of every implementation against the float64 reference."""

import functools
import importlib
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import quick_compile

from lstmprof import implementations, workloads
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.capture.worker import loops, reference
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload

TOLERANCE = 1e-4  # max |a − b| / max |b|, float32
SEED = 5

#: of few sizes: torch.compile compiles a cell for each of (batch, inputs, hidden)
WORKLOADS = (
    Workload("one-layer-ce", 1, 5, False, 3, 7, 4, 3, "ce"),
    Workload("one-layer-mse", 1, 5, False, 3, 7, 4, 3, "mse"),
    Workload("three-layers-bidirectional-ce", 3, 4, True, 3, 6, 5, 7, "ce"),
    Workload("bidirectional-ctc", 1, 4, True, 3, 9, 5, 4, "ctc", labels=2, shortest=5),
)
#: beyond an LSTM of features under a head: for the rows that know them
UNUSUAL_WORKLOADS = (
    Workload("gru", 2, 4, True, 3, 6, 5, 3, "ce", cell="gru"),
    Workload("rnn", 1, 4, True, 3, 6, 5, 3, "ce", cell="rnn"),
    Workload("deepbench", 1, 5, False, 3, 6, 4, 5, "mean", head=False, optimizer="sgd"),
    Workload("glample", 1, 5, False, 3, 6, 4, 5, "mse", head=False, optimizer="sgd"),
    Workload("ptb", 2, 5, False, 3, 6, 4, 7, "ce", each_step=True, vocabulary=7),
    Workload("imdb", 1, 4, False, 3, 6, 5, 2, "ce", cell="gru", vocabulary=7),
    Workload("lengths", 2, 4, True, 3, 6, 5, 7, "ce", shortest=2, variable_length=True),
    Workload(
        *("ctc-lengths", 1, 4, True, 3, 9, 5, 4, "ctc"),
        **{"labels": 2, "shortest": 5, "variable_length": True},
    ),
)

#: The cell is compiled to C++ for the first network's sizes, which takes a dozen seconds for each
#: other; of the others what differs is around it, and the cell's graph and its gradient are traced.
TRACED = "aot_eager"

#: loss, outputs, gradients; of an engine that has none no gradients
Found = tuple[float, Any, dict[str, Any] | None]


#: of torch's own making: TorchScript is deprecated, and Dynamo looks at .grad of what it traces
TORCH_WARNINGS = (
    r"ignore:.torch\.jit\.script(_method)?. is:DeprecationWarning",
    r"ignore:The \.grad attribute of a Tensor that is not a leaf:UserWarning",
)


@pytest.fixture(scope="module", autouse=True)
def _compiled_into_a_folder_of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = str(tmp_path_factory.mktemp("compiled"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes that import torch again
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # nor to try what the compiler can, with each
        yield


def relative_error(found: Any, expected: Any) -> float:
    """Against an expected zero (the reverse top layer sees one step from h = 0): found's size."""
    assert np.shape(found) == np.shape(expected)
    return float(np.abs(found - expected).max() / (np.abs(expected).max() or 1.0))


@functools.cache
def expected(workload: Workload) -> reference.ReferenceStep:
    return reference.outcome(
        workload, workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    )


def built(row: Implementation, workload: Workload) -> tuple[Any, Any, Any]:
    """The file, the loaded module, and the batch with inputs in the file's layout."""
    pytest.importorskip(row.library or row.framework)
    if row.library == "keras" and pytest.importorskip("keras").backend.backend() != row.framework:
        pytest.skip("Keras has one backend a process, and here it is another")
    file = importlib.import_module(row.module)
    module = file.build(workload)
    file.load(module, workloads.weights(workload, SEED))
    batch: Any = workloads.batch(workload, SEED)
    inputs = batch.inputs if file.TIME_MAJOR else np.ascontiguousarray(batch.inputs.swapaxes(0, 1))
    return file, module, workloads.Batch(inputs, batch.targets, batch.lengths)


def sizes(workload: Workload) -> tuple[int, int, int]:
    """What torch.compile compiles a cell for."""
    return (workload.batch, workload.features, workload.hidden)


def known_lengths(workload: Workload, batch: Any) -> tuple[Any, ...]:
    return (batch.lengths,) if workload.variable_length else ()


def torch_step(row: Implementation, workload: Workload) -> Found:
    torch = pytest.importorskip("torch")
    from lstmprof.capture.worker.loops import torch as torch_loop

    with pytest.MonkeyPatch.context() as patch:
        if row.name == "torch-compile" and sizes(workload) != sizes(WORKLOADS[0]):
            patch.setattr(torch, "compile", functools.partial(torch.compile, backend=TRACED))
        file, module, batch = built(row, workload)
    if row.name.startswith("torch-compile"):
        torch.compiler.reset()  # after 8 shapes torch.compile would run the cell uncompiled
    lengths = map(torch.from_numpy, known_lengths(workload, batch))
    outputs = module(torch.from_numpy(batch.inputs), *lengths)
    targets, lengths = torch.from_numpy(batch.targets), torch.from_numpy(batch.lengths)
    loss = torch_loop.loss_of(workload, outputs, targets, lengths, file.TIME_MAJOR)
    loss.backward()
    gradients = {name: p.grad.numpy() for name, p in file.parameters(module).items()}
    second_biases = [name for name in gradients if "bias_hh" in name]
    for name in second_biases:
        first = gradients[name.replace("bias_hh", "bias_ih")]
        assert workload.cell == "gru" or np.allclose(gradients[name], first, rtol=1e-6)
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.transpose(0, 1)
    return loss.item(), outputs.detach().numpy(), file.canonical(module, gradients)


def tensorflow_step(row: Implementation, workload: Workload) -> Found:
    tf = pytest.importorskip("tensorflow")
    from lstmprof.capture.worker.loops import tensorflow as tensorflow_loop

    tensorflow_loop.set_tf32(False)  # on a GPU it is on by default
    file, module, batch = built(row, workload)
    targets = tensorflow_loop.targets_of(workload, batch, file.TIME_MAJOR)
    own = file.parameters(module)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator, unused-ignore]
    def step(inputs: Any, lengths: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = module(inputs, *lengths)
            loss = tensorflow_loop.loss_of(workload, outputs, targets, file.TIME_MAJOR)
        gradients = tape.gradient(loss, list(own.values()))
        return loss, outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    given = (batch.inputs, known_lengths(workload, batch), targets)
    loss, outputs, tensors = step(*tf.nest.map_structure(tf.constant, given))
    gradients = {name: tensor.numpy() for name, tensor in zip(own, tensors, strict=True)}
    outputs = outputs.numpy()
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.swapaxes(0, 1)
    return float(loss), outputs, file.canonical(module, gradients)


def jax_step(row: Implementation, workload: Workload) -> Found:
    jax = pytest.importorskip("jax")
    from lstmprof.capture.worker.loops import jax as jax_loop

    file, module, batch = built(row, workload)
    targets = jax_loop.targets_of(workload, batch, file.TIME_MAJOR)

    def loss_and_outputs(arrays: Any) -> Any:
        outputs = file.apply(module, arrays, batch.inputs, *known_lengths(workload, batch))
        return jax_loop.loss_of(workload, outputs, targets, file.TIME_MAJOR), outputs

    on_cpu = jax.default_backend() == "cpu"
    with jax.default_matmul_precision("highest"):
        given = jax.value_and_grad(loss_and_outputs, has_aux=True)
        step = jax.jit(given, compiler_options=quick_compile.OPTIONS if on_cpu else None)
        (loss, outputs), gradients = step(file.parameters(module))
    outputs = np.asarray(outputs)
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.swapaxes(0, 1)
    return float(loss), outputs, file.canonical(module, gradients)


def pytensor_step(row: Implementation, workload: Workload) -> Found:
    pytensor = pytest.importorskip("pytensor")
    from lstmprof.capture.worker.loops.symbolic.pytensor import LIBRARY

    file, module, batch = built(row, workload)
    own, (inputs, targets, lengths) = file.parameters(module), LIBRARY.symbols(workload)
    known = (lengths,) if workload.variable_length else ()
    # A fifth of the time went to noting where in the code each of ten thousand nodes was made.
    with pytensor.config.change_flags(floatX="float32", traceback__limit=0):
        outputs = file.apply(module, inputs, "FAST_COMPILE", *known)
        loss = LIBRARY.loss_of(workload, outputs, targets)
        wanted = [loss, outputs, *pytensor.grad(loss, list(own.values()))]
        step = pytensor.function(
            [inputs, targets, lengths], wanted, mode="FAST_COMPILE", on_unused_input="ignore"
        )
    number, found, *gradients = step(batch.inputs, batch.targets, batch.lengths)
    return float(number), found, file.canonical(module, dict(zip(own, gradients, strict=True)))


def engine_step(row: Implementation, workload: Workload) -> Found:
    pytest.importorskip(row.framework)
    pytest.importorskip("onnx")
    loop = loops.loop_for(row.framework)
    asked = CaptureRequest(row.name, workload, "cpu", mode="forward", seed=SEED)
    trainer = loop.Trainer(asked, "cpu")
    names = [trainer.outputs, trainer.loss_name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        outputs, loss = trainer.run(trainer.engine(False), names)
    return float(loss), np.array(outputs), None


STEPS = {
    "torch": torch_step,
    "tensorflow": tensorflow_step,
    "jax": jax_step,
    "pytensor": pytensor_step,
    "onnxruntime": engine_step,
    "openvino": engine_step,
}


#: Keras's rows share one file of layers, which keras-lstm holds to every network. Its modes differ
#: from it by the products of an LSTM's and a GRU's cell, its other backends by the ops beneath.
TELLING = {
    "mode": ("one-layer-ce", "gru"),
    "backend": ("gru", "rnn", "ptb", "lengths"),
}


def tells(row: Implementation, workload: Workload) -> bool:
    """Whether what comes of ``workload`` is not held by other rows already."""
    if "-mode" in row.name:
        return workload.name in TELLING["mode"]
    if row.library == "keras" and row.framework != "tensorflow":
        return workload.name in TELLING["backend"]
    return True


def held() -> Iterator[tuple[Implementation, Workload]]:
    for row in implementations.TABLE:
        for workload in WORKLOADS + UNUSUAL_WORKLOADS:
            if tells(row, workload):
                yield row, workload


@pytest.mark.filterwarnings(*TORCH_WARNINGS)
@pytest.mark.parametrize(("row", "workload"), list(held()), ids=lambda of: of.name)
def test_loss_outputs_and_gradients(row: Implementation, workload: Workload) -> None:
    if row.framework not in STEPS:
        pytest.skip("it runs in an interpreter of its own, and is held to the reference there")
    if row.name == "torch-aot-inductor":
        pytest.skip("it compiles for a minute: below stands what it compiles")
    mode = "forward" if "train" in row.refusals() else "train"
    reason = refusal(CaptureRequest(row.name, workload, device="cpu", mode=mode))
    if reason:
        pytest.skip(reason)
    agrees(row, workload)


LSTM_WORKLOADS = [w for w in WORKLOADS + UNUSUAL_WORKLOADS if w.cell == "lstm"]


@pytest.mark.gpu
@pytest.mark.parametrize("workload", LSTM_WORKLOADS, ids=lambda w: w.name)
@pytest.mark.parametrize("name", ["tf-cudnnlstm", "jax-cudnn"])
def test_what_needs_a_gpu_agrees_on_one(name: str, workload: Workload) -> None:
    row = implementations.find(name)
    framework = pytest.importorskip(row.framework)
    if framework.__name__ == "tensorflow" and not framework.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU")
    if framework.__name__ == "jax" and framework.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    agrees(row, workload)


@pytest.mark.parametrize(
    "workload",
    [w for w in LSTM_WORKLOADS if w.name in {"three-layers-bidirectional-ce", "lengths", "ptb"}],
    ids=lambda w: w.name,
)
def test_what_jax_gives_to_cudnn_agrees_by_jaxs_own_reference(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    from jax.experimental import rnn

    def lstm(x: Any, h: Any, c: Any, weights: Any, lengths: Any, *sizes: Any) -> Any:
        inputs, hidden, layers, _, bidirectional = sizes
        unpacked = rnn.unpack_lstm_weights(weights, inputs, hidden, layers, bidirectional)
        return rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes)

    assert list(inspect.signature(rnn.lstm).parameters)[:10] == [
        *("x", "h_0", "c_0", "weights", "seq_lengths", "input_size", "hidden_size"),
        *("num_layers", "dropout", "bidirectional"),
    ]
    monkeypatch.setattr(rnn, "lstm", lstm)
    agrees(implementations.find("jax-cudnn"), workload)


def agrees(row: Implementation, workload: Workload) -> None:
    loss, outputs, gradients = STEPS[row.framework](row, workload)
    right = expected(workload)
    assert loss == pytest.approx(right.loss, rel=TOLERANCE, abs=1e-6)
    assert relative_error(outputs, right.outputs) <= TOLERANCE
    assert (gradients is None) is ("train" in row.refusals())
    if gradients is None:
        return
    assert set(gradients) == set(right.gradients)
    errors = {name: relative_error(gradients[name], right.gradients[name]) for name in gradients}
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.filterwarnings("ignore")  # torch.export has many of its own
@pytest.mark.parametrize(
    "workload",
    [w for w in WORKLOADS + UNUSUAL_WORKLOADS if w.name in {"bidirectional-ctc", "gru", "ptb"}],
    ids=lambda w: w.name,
)
def test_what_aotinductor_compiles_agrees(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    packages: dict[str, Any] = {}

    def package(exported: Any, *, package_path: str, inductor_configs: Any) -> None:
        assert inductor_configs["cpp.enable_kernel_profile"]
        packages[package_path] = exported.module()

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", package, raising=False)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", packages.pop, raising=False)
    _, module, batch = built(implementations.find("torch-aot-inductor"), workload)
    right = expected(workload)
    for _ in range(2):  # the second finds what the first compiled
        with torch.no_grad():
            outputs = module(torch.from_numpy(batch.inputs))
        assert relative_error(outputs.numpy(), right.outputs) <= TOLERANCE
    assert not packages


@pytest.mark.filterwarnings(*TORCH_WARNINGS)
@pytest.mark.parametrize("row", implementations.TABLE, ids=lambda row: row.name)
def test_the_way_back_returns_the_weights_that_were_loaded(row: Implementation) -> None:
    pytest.importorskip(row.framework)
    if row.framework in {"onnxruntime", "openvino"}:
        pytest.importorskip("onnx")
    workload = next(w for w in WORKLOADS if w.layers == 3)
    file, module, _ = built(row, workload)
    value = {"torch": lambda p: p.detach(), "pytensor": lambda p: p.get_value()}.get(row.framework)
    own = file.parameters(module).items()
    arrays = {name: np.asarray(value(p) if value else p) for name, p in own}
    shared = workloads.weights(workload, SEED)
    back = file.canonical(module, arrays)
    assert set(back) == set(shared)
    assert all(np.array_equal(back[name], shared[name]) for name in shared)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_on_its_other_backends(backend: str) -> None:
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    command = [sys.executable, "-m", "pytest", __file__, "-rs", "-k", f"keras-{backend}"]
    own = {"KERAS_BACKEND": backend, **quick_compile.ENVIRONMENT}
    ended = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert "passed" in ended.stdout
    assert "one backend a process" not in ended.stdout

"""cudnn-direct: held to cuDNN's headers, and to the float64 reference by a cuDNN on the host.

The stand-in computes what cuDNN's documentation says with another layout of the weights; the real
library is asked what it answers without a GPU, where it is installed.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cudnn_stand_in
import numpy as np
import pytest

from lstmprof import implementations, workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.capture.worker import reference
from lstmprof.capture.worker.loops import cudnn as cudnn_loop
from lstmprof.capture.worker.machine import host
from lstmprof.implementations import cudnn as _api
from lstmprof.implementations.cudnn import Cudnn, _runtime, direct
from lstmprof.implementations.cudnn._runtime import Runtime
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import named

SEED = 5
TOLERANCE = 1e-4  # max |a − b| / max |b|, float32


def network(name: str, cell: str, loss: str, **fields: Any) -> Workload:
    plain = {"layers": 1, "hidden": 5, "bidirectional": False, "features": 4, "each_step": False}
    w = {**plain, **fields}
    width = w["hidden"] * (2 if w["bidirectional"] else 1)
    return Workload(
        *(name, w["layers"], w["hidden"], w["bidirectional"], 3, 6, w["features"], width, loss),
        **{"cell": cell, "head": False, "optimizer": "sgd", "each_step": w["each_step"]},
    )


WORKLOADS = (
    *(network(f"{cell}-mean", cell, "mean") for cell in ("lstm", "gru", "rnn")),
    *(
        network(f"{cell}-3-layers-bidirectional", cell, "mse", layers=3, bidirectional=True)
        for cell in ("lstm", "gru", "rnn")
    ),
    network("lstm-wide-each-step", "lstm", "mse", features=9, hidden=2, each_step=True),
    network("gru-mean-2-layers", "gru", "mean", layers=2),
)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cudnn_stand_in.built(tmp_path_factory.mktemp("cudnn"))


@pytest.fixture
def on_the_host(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is the cuDNN that is found, on its device 0."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in))
    Cudnn.load().runtime.call("cudaSetDevice", device=0)


@functools.cache
def expected(workload: Workload) -> reference.ReferenceStep:
    return reference.outcome(
        workload, workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    )


def loaded(workload: Workload, training: bool = True, tf32: bool = False) -> tuple[Any, Any]:
    """The network with its weights and inputs, and its loss with its targets."""
    module = direct.build(workload, training, tf32)
    direct.load(module, workloads.weights(workload, SEED))
    batch: Any = workloads.batch(workload, SEED)
    module.inputs.set(batch.inputs)
    loss = cudnn_loop.loss_of(module, training, batch.targets)
    loss.upload()
    return module, loss


def stepped(workload: Workload, tf32: bool = False) -> tuple[float, Any, dict[str, Any]]:
    """Loss, outputs and gradients of one step."""
    module, loss = loaded(workload, tf32=tf32)
    module.forward()
    loss.enqueue()
    loss.backward()
    module.backward()
    gradients = direct.canonical(module, {"weights": module.gradients.array()})
    outputs = module.outputs.array()
    return loss.value(), outputs if workload.every_step else outputs[-1], gradients


def relative_error(found: Any, right: Any) -> float:
    assert np.shape(found) == np.shape(right)
    return float(np.abs(found - right).max() / (np.abs(right).max() or 1.0))


def agrees(workload: Workload, tolerance: float = TOLERANCE, tf32: bool = False) -> None:
    loss, outputs, gradients = stepped(workload, tf32)
    right = expected(workload)
    assert loss == pytest.approx(right.loss, rel=tolerance, abs=1e-6)
    assert relative_error(outputs, right.outputs) <= tolerance
    assert set(gradients) == set(right.gradients)
    errors = {n: relative_error(gradients[n], right.gradients[n]) for n in gradients}
    assert max(errors.values()) <= tolerance, errors


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_loss_outputs_and_gradients(workload: Workload) -> None:
    agrees(workload)


@pytest.mark.usefixtures("on_the_host")
def test_a_second_step_does_not_add_to_the_gradients_of_the_first() -> None:
    module, loss = loaded(WORKLOADS[3])
    found = []
    for _ in range(2):
        module.forward()
        loss.enqueue()
        loss.backward()
        module.backward()
        found.append((loss.value(), module.gradients.array()))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])
    assert np.abs(found[0][1]).max() > 0


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_inference_computes_the_same_loss(workload: Workload) -> None:
    module, loss = loaded(workload, training=False)
    module.forward()
    loss.enqueue()
    assert loss.value() == pytest.approx(expected(workload).loss, rel=TOLERANCE, abs=1e-6)


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_the_way_back_returns_the_weights_that_were_loaded(workload: Workload) -> None:
    module, _ = loaded(workload)
    shared = workloads.weights(workload, SEED)
    own = {name: buffer.array() for name, buffer in direct.parameters(module).items()}
    back = direct.canonical(module, own)
    assert set(back) == set(shared)
    assert all(np.array_equal(back[name], shared[name]) for name in shared)


@pytest.mark.usefixtures("on_the_host")
def test_a_step_of_sgd_goes_down_the_gradient() -> None:
    workload = network("sgd", "lstm", "mse")
    module, loss = loaded(workload)
    module.forward()
    loss.enqueue()
    loss.backward()
    module.backward()
    before, gradients = module.weights.array(), module.gradients.array()
    cudnn_loop.sgd(module)()
    right = before - np.float32(workload.learning_rate) * gradients
    assert np.allclose(module.weights.array(), right, rtol=1e-6, atol=0)


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize(("tf32", "math"), [(False, 3), (True, 0)])
def test_tf32_is_cudnns_default_math_and_fp32_is_fma(tf32: bool, math: int) -> None:
    module = direct.build(WORKLOADS[0], True, tf32)
    assert module.cudnn.library.standInMath(ctypes.c_void_p(module.rnn)) == math


@pytest.mark.usefixtures("on_the_host")
def test_device_memory_is_given_back_with_the_network() -> None:
    gc.collect()
    module, loss = loaded(WORKLOADS[3])
    count = module.cudnn.library.standInBlocks
    held = count()
    del module, loss
    gc.collect()
    assert count() < held
    before = count()
    loaded(WORKLOADS[3])
    gc.collect()
    assert count() == before


@pytest.mark.usefixtures("on_the_host")
def test_a_failure_names_the_function_and_says_what_cudnn_says() -> None:
    module = direct.build(WORKLOADS[0])
    with pytest.raises(CaptureError) as failed:  # no forward before it
        module.backward()
    assert failed.value.fault == (
        "cudnnRNNBackwardData_v8 failed: CUDNN_STATUS_BAD_PARAM"
        " (r->state == 1 && !d_hy && !d_hx && !cx && !d_cy && !d_cx)"
    )
    assert "CUDNN_LOGLEVEL_DBG" in failed.value.next_step
    with pytest.raises(CaptureError, match=r"cudaSetDevice failed: invalid device ordinal"):
        module.cudnn.runtime.call("cudaSetDevice", device=7)
    with pytest.raises(CaptureError, match=r"out of memory: cudaMalloc; try a smaller --batch"):
        module.buffer((1 << 31,))


def test_a_library_that_is_nowhere_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(CaptureError) as missing:
        _runtime.loaded("libno-such.so.9", "nvidia-no-such")
    assert missing.value.fault.startswith("could not load libno-such.so.9: ")
    assert missing.value.next_step.startswith(f"install nvidia-no-such in {sys.executable}, or")
    (tmp_path / "libbroken.so").write_text("no library")
    with pytest.raises(CaptureError, match=r"could not load .*libbroken\.so: .*libbroken\.so"):
        _runtime.loaded("libbroken.so", "nvidia-no-such")


def test_a_library_is_looked_for_in_the_environment_then_in_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "site" / "nvidia" / "cudnn" / "lib"
    named_first = tmp_path / "named"
    for folder in (wheel, named_first):
        folder.mkdir(parents=True)
        (folder / "libx.so.9").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert list(_runtime.library_places("libx.so.9")) == [str(wheel / "libx.so.9"), "libx.so.9"]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(named_first))
    assert next(_runtime.library_places("libx.so.9")) == str(named_first / "libx.so.9")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (CaptureRequest("cudnn-direct", named("glample-h128-b32"), "cpu"), "NVIDIA GPUs only"),
        (CaptureRequest("cudnn-direct", named("1x320-ce-short")), "ce: it needs an output layer"),
        (CaptureRequest("cudnn-direct", named("4x320-ctc-long")), "ctc: it needs an output layer"),
        (CaptureRequest("cudnn-direct", Workload("w", 1, 4, False, 2, 3, 4, 2, "mse")), "head"),
        (
            CaptureRequest(
                "cudnn-direct", Workload("w", 1, 4, False, 2, 3, 4, 4, "mse", head=False)
            ),
            "adam: cuDNN has no division",
        ),
        (
            CaptureRequest("cudnn-direct", named("glample-h128-b32"), precision="amp-fp16"),
            "no automatic mixed precision",
        ),
    ],
)
def test_what_cudnn_cannot_do_is_refused_with_the_reason(
    request_: CaptureRequest, reason: str
) -> None:
    refused = refusal(request_)
    assert refused is not None
    assert reason in refused


def test_every_network_of_deepbench_and_glample_is_taken() -> None:
    from lstmprof.workloads.studies import NAMED

    theirs = [w for w in NAMED if w.name.startswith(("deepbench", "glample"))]
    assert theirs
    for precision in ("fp32", "tf32"):
        for mode in ("train", "forward"):
            for w in theirs:
                request = CaptureRequest("cudnn-direct", w, "cuda:0", precision, mode)
                assert refusal(request) is None


# ---- against NVIDIA's own files, where they are installed


def of_nvidia(pattern: str) -> list[Path]:
    return [p for entry in sys.path for p in Path(entry).glob(f"nvidia/*/{pattern}")]


def header_text(*patterns: str) -> str:
    found = [path for pattern in patterns for path in of_nvidia(f"include/{pattern}")]
    if not found:
        pytest.skip(f"no wheel with {patterns[0]} is installed")
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in found)
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


LETTERS = {"size_t": "z", "float": "f", "unsigned long long": "q", "uint32_t": "u"}
POINTERS = re.compile(r"cudnn(\w+Descriptor|Handle)_t|cuda(Stream|Event)_t")


def declared(text: str, function: str) -> str:
    """The parameters of ``function``'s declaration, written as in a prototype."""
    match = re.search(rf"\b{function}\s*\(([^()]*)\)\s*;", text)
    assert match, f"{function} is not declared"
    return " ".join(written(p) for p in match[1].split(",") if p.strip() not in ("", "void"))


def written(parameter: str) -> str:
    """``size_t workSpaceSize`` as ``workSpaceSize:z``; a pointer, or a handle, by its name."""
    words = parameter.replace("*", " * ").replace("[]", " * ").split()
    *kind, name = [word for word in words if word not in ("*", "const")]
    if "*" in words or POINTERS.fullmatch(" ".join(kind)):
        return name
    return f"{name}:{LETTERS.get(' '.join(kind), 'i')}"


def test_cudnns_prototypes_are_its_headers() -> None:
    text = header_text("cudnn_graph.h", "cudnn_ops.h", "cudnn_adv.h")
    assert {name: declared(text, name) for name in Cudnn.prototypes} == Cudnn.prototypes


def test_the_runtimes_prototypes_are_its_headers() -> None:
    text = re.sub(r"__dv\(0\)", "", header_text("cuda_runtime_api.h"))
    assert {name: declared(text, name) for name in Runtime.prototypes} == Runtime.prototypes


def test_cudnns_constants_are_its_headers() -> None:
    text = header_text("cudnn_graph.h", "cudnn_ops.h", "cudnn_adv.h")
    ours = {n: value for n, value in vars(_api).items() if n.startswith("CUDNN_")}
    assert len(ours) > 20
    for name, value in ours.items():
        match = re.search(rf"\b{name}(?: CUDNN_DEPRECATED_ENUM)?[\s=(]+(\d+)(U << 0)?\b", text)
        assert match, f"{name} is not in the headers"
        assert int(match[1]) == value


def test_the_real_library_takes_our_descriptors_without_a_gpu() -> None:
    if not of_nvidia("lib/libcudnn.so.9"):
        pytest.skip("no wheel with libcudnn.so.9 is installed")
    cudnn = Cudnn.load()
    assert cudnn.version >= 90000
    workload = WORKLOADS[3]
    for shape in ((6, 3, 5), (1, 6, 3, 10), (1, 1, 1, 134_250_496)):
        assert cudnn.tensor_size(cudnn.tensor(shape)) == np.prod(shape)
    assert _api.data_descriptor(cudnn, workload, 10)
    with pytest.raises(CaptureError, match=r"cudnnSetTensorNdDescriptor failed: .*BAD_PARAM"):
        cudnn.tensor((0, 0, 0))
    if not host.cuda_devices():
        with pytest.raises(CaptureError, match=r"cudnnCreate failed: CUDNN_STATUS_NOT_INITIAL"):
            direct.build(workload)


def test_the_driver_tells_a_device_s_name_and_memory(stand_in: Path) -> None:
    script = "from lstmprof.implementations.cudnn import _runtime as c;"
    script += "print([(c.device_name(n), c.device_memory_bytes(n)) for n in (0, 1)])"
    environment = {**os.environ, "LD_LIBRARY_PATH": os.fspath(stand_in)}
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == f"[('Stand-in', {1 << 32}), (None, None)]\n"


# ---- on a GPU


def needs_a_gpu() -> None:
    if not host.cuda_devices():
        pytest.skip("the driver shows no CUDA device")


@pytest.mark.gpu
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_a_gpu_agrees_with_the_reference(workload: Workload) -> None:
    needs_a_gpu()
    agrees(workload)


@pytest.mark.gpu
def test_tf32_on_a_gpu_is_near_the_reference() -> None:
    needs_a_gpu()
    agrees(network("tf32", "lstm", "mean", hidden=64, features=64), 2e-2, tf32=True)


@pytest.mark.gpu
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_torch_computes_the_same_on_a_gpu(cell: str) -> None:
    needs_a_gpu()
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    from lstmprof.implementations.torch import nn_lstm as torch_cudnn

    workload = network(cell, cell, "mean", layers=2, bidirectional=True, hidden=32)
    theirs = torch_cudnn.build(workload)
    torch_cudnn.load(theirs, workloads.weights(workload, SEED))
    theirs.cuda()
    batch: Any = workloads.batch(workload, SEED)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        outputs = theirs(torch.from_numpy(batch.inputs).cuda())
        outputs.mean().backward()
    _, found, gradients = stepped(workload)
    assert relative_error(found, outputs.detach().cpu().numpy()) < TOLERANCE
    arrays = {n: p.grad.cpu().numpy() for n, p in torch_cudnn.parameters(theirs).items()}
    for name, right in torch_cudnn.canonical(theirs, arrays).items():
        assert relative_error(gradients[name], right) < TOLERANCE


def test_the_row_is_in_the_table() -> None:
    assert implementations.find("cudnn-direct").framework == "cudnn"

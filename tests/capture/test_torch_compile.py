"""torch.compile in a worker: what it needs, and where it leaves what it compiled."""

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

from lstmprof import implementations, workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")


def test_a_missing_compiler_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("CXX", "/no/c++")
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(elsewhere))
    request = CaptureRequest("torch-compile", CE, device="cpu")
    with pytest.raises(
        CaptureError, match=r"^torch.compile found no C\+\+ compiler; install g\+\+"
    ):
        capture(request, tmp_path / "scratch", lambda line: None)
    assert not list(elsewhere.iterdir())


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script:DeprecationWarning",
    "ignore:.torch.jit.script:FutureWarning",
    "ignore:The .grad:UserWarning",
)
def test_a_compiled_network_runs_its_layer_as_one_op() -> None:
    torch = pytest.importorskip("torch")
    file = importlib.import_module(implementations.find("torch-compile-layer").module)
    workload = Workload("every-step", 1, 4, False, 2, 5, 3, 4, "mean", head=False)
    module = file.build(workload)
    inputs: Any = workloads.batch(workload, 0).inputs
    module(torch.from_numpy(inputs))
    with torch.profiler.profile() as profile:
        module(torch.from_numpy(inputs))
    names = [event.name for event in profile.events()]
    assert module._compiled_call_impl is not None
    assert names.count("aten::lstm") == 1


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_an_exported_program_tells_what_its_library_does_not() -> None:
    torch = pytest.importorskip("torch")
    file = importlib.import_module(implementations.find("torch-aot-inductor").module)
    workload = Workload("two-ways", 2, 4, True, 2, 5, 3, 6, "ce")
    module = file.build(workload)
    assert list(file.op_inputs(module)) == []  # nothing is compiled yet
    plain = file.nn_lstm.Network(workload).eval()
    with torch.no_grad():
        inputs = torch.from_numpy(workloads.batch(workload, 0).inputs)
        module.exported = torch.export.export(plain, (inputs,))
    first = (file.LAYER, [[5, 2, 3], [16, 3], [16, 4]], ["float32"] * 3)
    second = (file.LAYER, [[5, 2, 8], [16, 8], [16, 4]], ["float32"] * 3)
    head = (file.PRODUCT, [[2, 8], [8, 6]], ["float32"] * 2)
    assert list(file.op_inputs(module)) == [first, first, second, second, head]


@pytest.mark.parametrize(("device", "layers", "matmuls"), [("cpu", 1, 0), ("cuda", 0, 12)])
def test_inductor_keeps_a_layer_as_one_op_on_a_cpu_alone(
    device: str, layers: int, matmuls: int
) -> None:
    """torch-aot-inductor is refused on a GPU because it would be a loop of 6 time steps there."""
    torch = pytest.importorskip("torch")
    if device == "cuda" and torch.version.cuda and not torch.cuda.is_available():
        pytest.skip("this build of torch asks the driver for a GPU even if its tensors are fake")
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def layer(inputs: Any, states: Any, weights: Any) -> Any:
        flags = True, 1, 0.0, False, False, False  # biases, layers, dropout, training and more
        return torch.ops.aten.lstm.input(inputs, states, weights, *flags)

    with FakeTensorMode(), torch.no_grad():
        states = [torch.empty(1, 3, 4, device=device) for _ in range(2)]
        weights = [torch.empty(*s, device=device) for s in ((16, 8), (16, 4), (16,), (16,))]
        given = torch.empty(6, 3, 8, device=device), states, weights
        graph = make_fx(layer, decomposition_table=select_decomp_table())(*given).graph
    names = [str(node.target) for node in graph.nodes]
    assert sum("rnn" in name for name in names) == layers
    assert sum(name.startswith(("aten.mm", "aten.addmm")) for name in names) == matmuls
    assert (device in implementations.find("torch-aot-inductor").refusals()) is not bool(layers)


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning])
def test_torchscript_is_used_without_its_warning(
    category: type[Warning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch 2.13 and 2.14 warn of torch.jit.script in these categories."""
    torch = pytest.importorskip("torch")
    script = torch.jit.script

    def warning(module: Any) -> Any:
        warnings.warn("`torch.jit.script` is deprecated", category, stacklevel=2)
        return script(module)

    monkeypatch.setattr(torch.jit, "script", warning)
    file = importlib.import_module(implementations.find("torch-script").module)
    assert list(file.parameters(file.build(CE)))

"""The JAX loop's own parts, and what its profile on a CPU shows."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quick_compile

from lstmprof import formats, implementations, workloads
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.capture.worker import reference
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
UNUSUAL = (
    Workload("glample", 1, 4, False, 3, 6, 4, 4, "mse", head=False, optimizer="sgd"),
    Workload("imdb", 1, 4, False, 3, 6, 5, 2, "ce", cell="gru", vocabulary=7),
    Workload(
        *("ptb", 2, 4, False, 3, 6, 4, 7, "ce"),
        **{"each_step": True, "vocabulary": 7, "optimizer": "sgd"},
    ),
    Workload("lengths", 2, 4, True, 5, 6, 5, 3, "ce", shortest=2, variable_length=True),
)


@pytest.mark.parametrize("torchs", ["Adam", "SGD"])
def test_five_steps_of_an_optimizer_are_torchs(torchs: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    from lstmprof.capture.worker.loops import jax as loop

    workload = dataclasses.replace(CE, optimizer=torchs.lower())
    random = np.random.RandomState(3)
    start = {"w": random.randn(4, 3).astype(np.float32), "b": random.randn(3).astype(np.float32)}
    theirs = {name: torch.tensor(array, requires_grad=True) for name, array in start.items()}
    optimizer = getattr(torch.optim, torchs)(theirs.values(), lr=CE.learning_rate)
    state: Any = loop.initial_state(workload, start)
    for _ in range(5):
        gradients = {n: random.randn(*a.shape).astype(np.float32) for n, a in start.items()}
        state = loop.updated(workload, state, gradients)
        for name, tensor in theirs.items():
            tensor.grad = torch.from_numpy(gradients[name])
        optimizer.step()
    for name, tensor in theirs.items():
        expected = tensor.detach().numpy()
        assert np.abs(np.asarray(state["parameters"][name]) - expected).max() < 1e-6
        assert np.abs(expected - start[name]).max() > 1e-4


@pytest.fixture
def _settings_as_before() -> Iterator[None]:
    jax = pytest.importorskip("jax")
    names = ("jax_default_matmul_precision", "jax_default_device")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("_settings_as_before")
@pytest.mark.parametrize(("precision", "asked"), [("fp32", "HIGHEST"), ("tf32", "HIGH")])
@pytest.mark.parametrize("name", ["jax-scan", "flax-lstm", "equinox-lstm", "haiku-lstm"])
def test_a_precision_is_asked_of_every_product(name: str, precision: str, asked: str) -> None:
    from lstmprof.capture.worker.loops import jax as worker_jax

    pytest.importorskip(implementations.find(name).library or "jax")
    trainer = worker_jax.Trainer(CaptureRequest(name, CE, precision=precision), "cpu")
    lowered = trainer.function.lower(trainer.state, trainer.inputs, trainer.targets)
    products = [line for line in lowered.as_text().splitlines() if "dot_general" in line]
    assert len(products) > 5  # of both passes
    assert all(f"precision = [{asked}, {asked}]" in line for line in products)


@pytest.mark.usefixtures("_settings_as_before")
@pytest.mark.parametrize("workload", UNUSUAL, ids=lambda w: w.name)
@pytest.mark.parametrize("name", ["jax-scan", "flax-lstm"])
def test_the_loop_feeds_an_unusual_network_as_the_reference(
    name: str, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    from lstmprof.capture.worker import profiling
    from lstmprof.capture.worker.loops import jax as worker_jax

    request = CaptureRequest(name, workload, "cpu")
    reason = refusal(request)
    if reason:
        pytest.skip(reason)
    monkeypatch.setattr(
        jax, "jit", functools.partial(jax.jit, compiler_options=quick_compile.OPTIONS)
    )
    trainer = worker_jax.Trainer(request, "cpu")
    losses = [trainer.loss(trainer.step(profiling.no_ranges)) for _ in range(3)]
    shared = workloads.weights(workload, request.seed)
    right = reference.outcome(workload, shared, workloads.batch(workload, request.seed))
    assert losses[0] == pytest.approx(right.loss, rel=1e-5)
    assert losses[2] < losses[1] < losses[0]


def test_tf32_is_refused_on_a_cpu_alone() -> None:
    request = CaptureRequest("jax-scan", CE, "cuda:0", precision="tf32")
    assert refusal(request) is None
    assert refusal(dataclasses.replace(request, device="cpu")) is not None


@pytest.mark.measured
def test_a_profile_has_steps_phases_and_a_ledger_of_products_and_elements(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    workload = Workload("small-ce", 1, 64, False, 16, 20, 32, 3, "ce")
    asked = CaptureRequest(
        "jax-scan", workload, "cpu", iterations=2, warmup=1, profile_steps=2, peaks=False
    )
    (profile,) = capture(asked, tmp_path / "capture", lambda line: None).profiles
    events = annotated(formats.read(profile).events, captured=True)
    assert not [n for n in events.column("name").to_pylist() if n.startswith("$")]

    names, kinds = (events.column(column).to_pylist() for column in ("name", "kind"))
    assert list(zip(kinds, names, strict=True)).count(("range", "program")) == 2
    found = windows(events, captured=True)
    assert [window.step for window in found] == [0, 1]
    rows = ledger(events, found).to_pylist()
    length_ns = sum(window.end_ns - window.start_ns for window in found)
    busy_ns = dict.fromkeys(("gemm", "pointwise", "other"), 0)
    for row in (row for row in rows if row["state"] == "busy"):
        busy_ns[row["part"]] = busy_ns.get(row["part"], 0) + row["ns"]
    assert sum(row["ns"] for row in rows) == length_ns
    all_ns = sum(busy_ns.values())  # of the step others may have had any share
    assert busy_ns["gemm"] > 0.05 * all_ns
    assert busy_ns["pointwise"] > 0.01 * all_ns
    assert busy_ns["other"] <= 0.02 * all_ns

    computing = [r for r in events.to_pylist() if r["kind"] == "op" and r["category"] == "gemm"]
    assert {row["phase"] for row in computing} == {"forward", "backward"}
    assert {"input", "optimizer"} <= set(events.column("phase").to_pylist())


@pytest.mark.parametrize(
    ("platform", "version"),
    [("PJRT C API\ncuda 13000", "13.0"), ("cuda 12090", "12.9"), ("PJRT C API\nrocm", None)],
)
def test_the_version_of_cuda_is_read_from_the_platform_s(
    platform: str, version: str | None
) -> None:
    pytest.importorskip("jax")
    from lstmprof.capture.worker.profilers import jax as worker_jax

    assert worker_jax.cuda_version(platform) == version

"""Mistakes in a few lines of PyTorch: each is named in its profile, and not in one of its like."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from diagnose.torch_profiles import advice, profiled, reads_like_its_example

import lstmprof as lp
from lstmprof.capture import captured_run
from lstmprof.capture.own import session as own_session
from lstmprof.capture.worker import profiling
from lstmprof.diagnose.remedies import Advice

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.measured

TIME, BATCH, FEATURES, HIDDEN = 16, 8, 16, 32
Step = Callable[[], object]
Build = Callable[[], Step]


def sequences(*shape: int) -> Any:
    return torch.randn(*(shape or (TIME, BATCH, FEATURES)))


def training(model: Any, loss: Callable[[], Any]) -> Step:
    """A step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def layer(*, batch_first: bool = False) -> Any:
    return torch.nn.LSTM(FEATURES, HIDDEN, batch_first=batch_first)


def over_packed(model: Any, inputs: Any, lengths: list[int]) -> Any:
    pack, pad = torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence
    outputs, _ = model(pack(inputs, torch.tensor(lengths)))
    return pad(outputs)[0].square().mean()


def packed() -> Step:
    model, inputs = layer(), sequences()
    return training(model, lambda: over_packed(model, inputs, list(range(TIME, TIME - BATCH, -1))))


def packed_to_one_length() -> Step:
    model, inputs = layer(), sequences()
    return training(model, lambda: over_packed(model, inputs, [TIME] * BATCH))


def little_of_it_packed() -> Step:
    model, large = layer(), torch.nn.Linear(512, 512)
    inputs, others = sequences(4, 2, FEATURES), sequences(2048, 512)

    def loss() -> Any:
        return over_packed(model, inputs, [4, 3]) + large(large(others)).square().mean()

    return training(torch.nn.ModuleList([model, large]), loss)


def padded() -> Step:
    model, inputs = layer(), sequences()
    return training(model, lambda: model(inputs)[0].square().mean())


def sequence_by_sequence() -> Step:
    model, inputs = layer(), sequences()

    def loss() -> Any:
        each = (model(inputs[: TIME - i, i : i + 1])[0] for i in range(BATCH))
        return sum(outputs.square().mean() for outputs in each)

    return training(model, loss)


def stack_for_one_sequence() -> Step:
    stack = torch.nn.ModuleList([torch.nn.LSTM(HIDDEN, HIDDEN) for _ in range(4)])
    inputs = sequences(TIME, 1, HIDDEN)

    def loss() -> Any:
        outputs = inputs
        for model in stack:
            outputs, _ = model(outputs)
        return outputs.square().mean()

    return training(stack, loss)


def one_sequence_time_step_by_time_step() -> Step:
    model, inputs = layer(), sequences(TIME, 1, FEATURES)

    def loss() -> Any:
        state, total = None, torch.zeros(())
        for x in inputs.unbind(0):
            outputs, state = model(x[None], state)
            total = total + outputs.square().mean()
        return total

    return training(model, loss)


def by_cell(
    watch: Callable[[Any], None] = lambda h: None, checkpointed: bool = False
) -> tuple[Any, Callable[[], Any]]:
    """An LSTMCell over time, and the loss of it."""
    from torch.utils.checkpoint import checkpoint

    cell, inputs = torch.nn.LSTMCell(FEATURES, HIDDEN), sequences()

    def loss() -> Any:
        h = c = torch.zeros(BATCH, HIDDEN)
        total = torch.zeros(())
        for x in inputs.unbind(0):
            if checkpointed:
                h, c = checkpoint(lambda *given: cell(given[0], given[1:]), x, h, c,
                                  use_reentrant=False)  # fmt: skip
            else:
                h, c = cell(x, (h, c))
            watch(h)
            total = total + h.square().mean()
        return total

    return cell, loss


def cells() -> Step:
    return training(*by_cell())


def look(gradient: Any) -> None:
    """What someone who looks for a fault wants to know of a gradient."""
    size = gradient.abs()
    assert all(float(f(size)) >= 0 for f in (torch.max, torch.mean, torch.sum, torch.median))
    assert torch.isfinite(gradient).all()


def hooked() -> Step:
    return training(*by_cell(lambda h: h.register_hook(look)))


def hooked_module() -> Step:
    cell, loss = by_cell()

    def look_at_all(module: Any, given: Any, gradients: Any) -> None:
        for gradient in (*given, *gradients):
            if gradient is not None:
                look(gradient)

    cell.register_full_backward_hook(look_at_all)
    return training(cell, loss)


def checkpointed() -> Step:
    return training(*by_cell(checkpointed=True))


def differentiated_twice() -> Step:
    model, loss = by_cell()

    def penalised() -> Any:
        gradients = torch.autograd.grad(loss(), list(model.parameters()), create_graph=True)
        return sum(gradient.square().sum() for gradient in gradients)

    return training(model, penalised)


def anomalous() -> Step:
    step = cells()

    def watched() -> None:
        with torch.autograd.set_detect_anomaly(True):
            step()

    return watched


def looks_for_nan_once() -> Step:
    model, loss = by_cell()

    def checked() -> Any:
        value = loss()
        assert not torch.isnan(value).any()
        return value

    return training(model, checked)


class ByHand(torch.nn.Module):  # type: ignore[misc]
    """An LSTM of separate operations, with a forget gate's bias of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.nn.Linear(FEATURES + HIDDEN, 4 * HIDDEN)

    def forward(self, inputs):  # type: ignore[no-untyped-def]
        """All hidden states."""
        h = torch.zeros(inputs.size(1), self.gates.out_features // 4)
        c = h
        states = []
        for t in range(inputs.size(0)):
            i, f, g, o = self.gates(torch.cat([inputs[t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states)


def by_hand() -> Step:
    model, inputs = ByHand(), sequences()
    return training(model, lambda: model(inputs).square().mean())


def scripted() -> Step:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DeprecationWarning in 2.13, FutureWarning in 2.14
        model, inputs = torch.jit.script(ByHand()), sequences()
    return training(model, lambda: model(inputs).square().mean())


def gated_in_depth() -> Step:
    """A highway network: as many sigmoids as tanh."""
    model, inputs = torch.nn.Linear(HIDDEN, HIDDEN), sequences(BATCH, HIDDEN)

    def loss() -> Any:
        h = inputs
        for _ in range(TIME):
            gate = torch.sigmoid(model(h))
            h = gate * torch.tanh(model(h)) + (1 - gate) * h
        return h.square().mean()

    return training(model, loss)


def forward_alone(model: Any, inputs: Any) -> Step:
    def step() -> None:
        with torch.no_grad():
            model(inputs)

    return step


def kept_state(*, detached: bool) -> Step:
    """A layer whose last state is the next batch's first one; weights are updated by hand."""
    model, inputs = layer(), sequences()
    states: list[Any] = [None]

    def step() -> None:
        outputs, state = model(inputs, states[0])
        states[0] = tuple(part.detach() for part in state) if detached else state
        outputs.square().mean().backward(retain_graph=True)
        for weight in model.parameters():
            weight.data.add_(weight.grad, alpha=-1e-3)

    return step


def off_library(kind: str, **options: Any) -> Build:
    """A layer in PyTorch for which a CPU has no op of a library."""

    def build() -> Step:
        model = getattr(torch.nn, kind)(FEATURES, HIDDEN, **options)
        inputs = sequences().to(options.get("dtype", torch.float32))
        return training(model, lambda: model(inputs)[0].square().mean())

    return build


def large_rnn() -> Step:
    """Most of its time is matmuls."""
    model, inputs = torch.nn.RNN(256, 256), sequences(8, 512, 256)
    return training(model, lambda: model(inputs)[0].square().mean())


def compiled() -> Step:
    """nn.LSTM in code that torch.compile made, as if without oneDNN; quick to compile."""
    model, inputs = layer(), sequences(8, BATCH, FEATURES)
    forward = torch.compile(model, backend="aot_eager")
    step = training(model, lambda: forward(inputs)[0].square().mean())

    def traced() -> None:
        allow = torch._dynamo.config.patch(allow_rnn=True)
        with torch.backends.mkldnn.flags(enabled=False), allow:
            step()

    return traced


def compiled_around() -> Step:
    """torch.compile leaves nn.LSTM as it is."""
    model, inputs = layer(), sequences(8, BATCH, FEATURES)
    forward = torch.compile(lambda: model(inputs)[0].square().mean(), backend="aot_eager")
    return training(model, forward)


def bfloat16_without_onednn() -> Step:
    """As on a CPU for which oneDNN has no LSTM in bfloat16."""
    step = off_library("LSTM", dtype=torch.bfloat16)()

    def without() -> None:
        with torch.backends.mkldnn.flags(enabled=False):
            step()

    return without


def batch_first() -> Step:
    return forward_alone(torch.nn.LSTM(512, 2, batch_first=True), sequences(64, 60, 512))


def time_first() -> Step:
    return forward_alone(torch.nn.LSTM(512, 2), sequences(60, 64, 512))


def indexed() -> Step:
    cell, inputs = torch.nn.LSTMCell(64, 8), sequences(64, 32, 64).requires_grad_()

    def loss() -> Any:
        h = c = torch.zeros(32, 8)
        for t in range(len(inputs)):
            h, c = cell(inputs[t], (h, c))
        return h.square().mean()

    return training(cell, loss)


def unbound() -> Step:
    cell, inputs = torch.nn.LSTMCell(64, 8), sequences(64, 32, 64).requires_grad_()

    def loss() -> Any:
        h = c = torch.zeros(32, 8)
        for x in inputs.unbind(0):
            h, c = cell(x, (h, c))
        return h.square().mean()

    return training(cell, loss)


def underflowing() -> Step:
    """Weights so small that the gradient vanishes within some twenty time steps."""
    model, inputs = ByHand(), sequences(100, 16, FEATURES)
    with torch.no_grad():
        model.gates.weight.mul_(0.05)
        model.gates.bias.zero_()
    return training(model, lambda: model(inputs)[-1].square().mean())


def underflowing_to_zero() -> Step:
    step = underflowing()

    def flushed() -> None:
        torch.set_flush_denormal(True)
        try:
            step()
        finally:
            torch.set_flush_denormal(False)

    return flushed


def long_by_hand() -> Step:
    model, inputs = ByHand(), sequences(100, 16, FEATURES)
    return training(model, lambda: model(inputs).square().mean())


def filled_slice_by_slice() -> Step:
    """Sequences put into one padded tensor by assignment."""
    model, inputs = torch.nn.Linear(FEATURES, HIDDEN), sequences(200, 32, FEATURES)

    def loss() -> Any:
        hidden = model(inputs)
        padded = torch.zeros(200, 32, HIDDEN)
        for i in range(32):
            padded[: 200 - i, i] = hidden[: 200 - i, i]
        return padded.square().mean()

    return training(model, loss)


def masked_at_once() -> Step:
    model, inputs = torch.nn.Linear(FEATURES, HIDDEN), sequences(200, 32, FEATURES)
    lengths = 200 - torch.arange(32)
    mask = (torch.arange(200)[:, None] < lengths)[..., None]
    return training(model, lambda: (model(inputs) * mask).square().mean())


def looked_up(rows: int, *, sparse: bool = False, tied: bool = False) -> Step:
    """Adam on a table of ``rows`` rows and a layer; ``tied`` weights are the output's, too."""
    table, model = torch.nn.Embedding(rows, HIDDEN, sparse=sparse), torch.nn.LSTM(HIDDEN, HIDDEN)
    ids = torch.randint(0, rows, (TIME, BATCH))
    of_table = torch.optim.SparseAdam if sparse else torch.optim.Adam
    optimizers = (of_table(list(table.parameters())), torch.optim.Adam(model.parameters()))

    def step() -> None:
        outputs = model(table(ids))[0]
        outputs = torch.nn.functional.linear(outputs, table.weight) if tied else outputs
        outputs.square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def large_table() -> Step:
    return looked_up(20_000)


def small_table() -> Step:
    return looked_up(200)


def sparse_table() -> Step:
    return looked_up(20_000, sparse=True)


def tied_table() -> Step:
    return looked_up(20_000, tied=True)


#: Remedy → (the mistake, what looks like it and is none).
MISTAKES: dict[str, tuple[Build, tuple[Build, ...]]] = {
    "pad instead of pack": (packed, (packed_to_one_length, little_of_it_packed, padded)),
    "batch the sequences": (
        sequence_by_sequence,
        (stack_for_one_sequence, one_sequence_time_step_by_time_step, padded),
    ),
    "whole sequence in one call": (
        one_sequence_time_step_by_time_step,
        (stack_for_one_sequence, sequence_by_sequence, padded, cells),
    ),
    "detach the state": (
        lambda: kept_state(detached=False),
        (lambda: kept_state(detached=True), padded),
    ),
    "float32": (off_library("LSTM", dtype=torch.float64), (padded, packed)),
    "float32 instead of bfloat16": (
        bfloat16_without_onednn,
        (padded, packed, off_library("GRU", dtype=torch.bfloat16)),
    ),
    "project afterwards": (off_library("LSTM", proj_size=16), (padded, packed)),
    "LSTM on a CPU": (off_library("GRU"), (padded, packed, cells, large_rnn)),
    "layer outside compiled code": (compiled, (compiled_around, off_library("LSTM", proj_size=16))),
    "sparse gradient": (large_table, (small_table, sparse_table, tied_table)),
    "no gradient hooks": (hooked, (cells, anomalous)),
    "compute once": (checkpointed, (cells, differentiated_twice)),
    "no anomaly mode": (anomalous, (cells, looks_for_nan_once)),
    "no TorchScript": (scripted, (by_hand,)),
    "layer in one op": (by_hand, (gated_in_depth, packed, padded)),
    "time first": (batch_first, (time_first,)),
    "flush denormals": (underflowing, (underflowing_to_zero, long_by_hand)),
    "unbind before the loop": (indexed, (unbound,)),
    "slice at once": (filled_slice_by_slice, (masked_at_once, packed, unbound)),
}
#: Named among others: what else these profiles show is no mistake of the test, but true too.
NOT_FIRST = {
    "flush denormals",
    "time first",
    "layer outside compiled code",
    "unbind before the loop",
}


#: Which op takes most, and is named, is another from time to time.
OTHER_OPS = {"no gradient hooks"}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """On a busy machine threads that share a product wait for each other, and all else is small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def advice_on(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Build], dict[str, Advice]]:
    """The advice on a profile of these steps; each is made once."""
    made: dict[Build, dict[str, Advice]] = {}

    def of(build: Build) -> dict[str, Advice]:
        if build not in made:
            path = tmp_path_factory.mktemp(build.__name__) / "profile.pt.trace.json"
            torch.manual_seed(0)
            made[build] = advice(profiled(path, build()))
        return made[build]

    return of


def denormals_are_slow() -> bool:
    """Whether this CPU computes with denormal numbers as slowly as most do: not AMD's since Zen."""

    def least_ns(scale: float) -> int:
        left, right = torch.full((64, 64), scale), torch.full((64, 64), 0.5)
        took_ns = []
        for _ in range(50):
            began_ns = time.perf_counter_ns()
            torch.mm(left, right)
            took_ns.append(time.perf_counter_ns() - began_ns)
        return min(took_ns)

    return least_ns(1e-39) > 10 * least_ns(1.0)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_its_profile(
    name: str, advice_on: Callable[[Build], dict[str, Advice]]
) -> None:
    if name == "flush denormals" and not denormals_are_slow():
        pytest.skip("this CPU computes with denormal numbers as fast as with others")
    given = advice_on(MISTAKES[name][0])
    assert name in given
    assert name in NOT_FIRST or name == next(iter(given))
    assert name in OTHER_OPS or reads_like_its_example(given[name])


@pytest.mark.parametrize(
    ("name", "like"),
    [(name, like) for name, (_, all_like) in MISTAKES.items() for like in all_like],
)
def test_a_mistake_is_not_named_in_a_profile_of_its_like(
    name: str, like: Build, advice_on: Callable[[Build], dict[str, Advice]]
) -> None:
    assert name not in advice_on(like)


class mLSTMCell(torch.nn.Module):  # noqa: N801 as its authors call it
    """The cell with a matrix as memory (arXiv:2405.04517), time step by time step or at once."""

    def __init__(self, *, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once

    def forward(self, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
        """Attend from q to k and v (batch, time, units) with log gates (batch, time, 1)."""
        if self.at_once:
            decay = f.cumsum(1)
            gates = (decay - decay.transpose(1, 2) + i.transpose(1, 2)).exp().tril()
            scores = (q @ k.transpose(1, 2)) * gates
            return scores @ v / scores.sum(2, keepdim=True).abs().clamp(min=1)
        memory, norm, outputs = (
            torch.zeros(*q.shape[::2], q.shape[2]),
            q.new_zeros(q[:, 0].shape),
            [],
        )
        for t in range(q.shape[1]):
            keep, write = f[:, t].exp(), i[:, t].exp()
            memory = keep[..., None] * memory + write[..., None] * k[:, t, :, None] * v[:, t, None]
            norm = keep * norm + write * k[:, t]
            size = (norm * q[:, t]).sum(1, keepdim=True).abs().clamp(min=1)
            outputs.append((q[:, t, None] @ memory)[:, 0] / size)
        return torch.stack(outputs, 1)


def test_a_network_with_a_parallel_form_that_runs_step_by_step(tmp_path: Path) -> None:
    q, k, v = (sequences(4, 64, 16) for _ in range(3))
    i, f = sequences(4, 64, 1), torch.nn.functional.logsigmoid(sequences(4, 64, 1))
    looped, at_once = mLSTMCell(at_once=False), mLSTMCell(at_once=True)
    assert torch.allclose(looped(q, k, v, i, f), at_once(q, k, v, i, f), atol=1e-3)
    for cell in (looped, at_once):
        path = tmp_path / f"{cell.at_once}.pt.trace.json"
        given = advice(profiled(path, lambda cell=cell: cell(q, k, v, i, f), with_stack=True))
        assert ("parallel form" in given) != cell.at_once
        assert cell.at_once or reads_like_its_example(given["parallel form"])


def test_hooks_of_a_module_are_hooks_on_gradients(
    advice_on: Callable[[Build], dict[str, Advice]],
) -> None:
    assert "no gradient hooks" in advice_on(hooked_module)


def test_more_threads_than_cpus_are_named_where_a_program_was_measured_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As advice, or beside an unknown cause if they took too much of each other's CPU."""
    monkeypatch.setattr(profiling, "THROWAWAY_NS", 0)
    monkeypatch.setattr(
        own_session, "write_in_child", lambda folder, _: captured_run.written(Path(folder))
    )

    def words(threads: int) -> str:
        torch.set_num_threads(threads)
        step = by_hand()
        place = tmp_path / str(threads)
        with lp.profile(place, framework="torch", warmup=1, timed=2, steps=1) as measuring:
            while not measuring.measured:
                step()
                measuring.step()
        (diagnosis,) = lp.diagnose([lp.read(place)])
        return "\n".join([diagnosis.outcome.advice, *(a.seen for a in diagnosis.remedies)])

    cpus = len(os.sched_getaffinity(0))
    assert f"{cpus + 3} threads share {cpus} CPU" in words(cpus + 3)
    assert "threads share" not in words(1)

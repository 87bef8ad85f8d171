"""Pairs of PyTorch training steps: one with a mistake, one with its fix, by the fix's name."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

TIME, BATCH, FEATURES, HIDDEN = 50, 16, 64, 128
Step = Callable[[], object]
Loss = Callable[[], Any]


def training(model: Any, loss: Loss, optimizer: Any = None) -> Step:
    """Return a training step that minimises ``loss()``; the default optimizer is SGD."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def inputs(*shape: int) -> Any:
    """Return random sequences of ``shape``, by default (time, batch, features)."""
    return torch.randn(*(shape or (TIME, BATCH, FEATURES)))


class ByHand(torch.nn.Module):
    """An LSTM written in separate ops."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.nn.Linear(FEATURES + HIDDEN, 4 * HIDDEN)

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the hidden states of all time steps."""
        h = torch.zeros(x.size(1), self.gates.out_features // 4)
        c = h
        states = []
        for t in range(x.size(0)):
            i, f, g, o = self.gates(torch.cat([x[t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states)


def over(model: Any, x: Any) -> Step:
    """Return a step that trains ``model`` on ``x``; the loss uses its first output."""

    def loss() -> Any:
        out = model(x)
        return (out[0] if isinstance(out, tuple) else out).square().mean()

    return training(model, loss)


def by_cell(
    cell: Any, x: Any, call: Callable[..., Any] | None = None, watch: Callable[[Any], Any] = id
) -> Loss:
    """Return a loss function that runs ``cell`` over the time steps of ``x``.

    ``call`` is called instead of ``cell``, if given; ``watch`` is called on each hidden state.
    """
    call = call or cell

    def loss() -> Any:
        state = None
        total = torch.zeros(())
        for t in range(x.size(0)):
            state = call(x[t], state)
            h = state[0] if isinstance(state, tuple) else state
            watch(h)
            total = total + h.square().mean()
        return total

    return loss


def lstm() -> Any:
    """Return a new nn.LSTM."""
    return torch.nn.LSTM(FEATURES, HIDDEN)


def cells(**more: Any) -> Step:
    """Return a step with an LSTMCell in a loop; ``more`` are arguments of ``by_cell``."""
    cell = torch.nn.LSTMCell(FEATURES, HIDDEN)
    return training(cell, by_cell(cell, inputs(), **more))


def one_time_step_per_call() -> Step:
    """Return a step that calls nn.LSTM once per time step."""
    model, x = lstm(), inputs()

    def loss() -> Any:
        state, total = None, torch.zeros(())
        for t in range(TIME):
            out, state = model(x[t : t + 1], state)
            total = total + out.square().mean()
        return total

    return training(model, loss)


def packed(lengths: Iterable[int] | None) -> Step:
    """Return a step with packed sequences of ``lengths``, or, if None, with padded ones."""
    model, x = lstm(), inputs()
    if lengths is None:
        return over(model, x)
    sizes = torch.tensor(list(lengths))

    def loss() -> Any:
        out, _ = model(torch.nn.utils.rnn.pack_padded_sequence(x, sizes))
        return torch.nn.utils.rnn.pad_packed_sequence(out)[0].square().mean()

    return training(model, loss)


def one_by_one() -> Step:
    """Return a step that calls nn.LSTM once per sequence of the batch."""
    model, x = lstm(), inputs()

    def loss() -> Any:
        outs = (model(x[: TIME - i, i : i + 1])[0] for i in range(BATCH))
        return sum(out.square().mean() for out in outs)

    return training(model, loss)


def hooked() -> Step:
    """Return a step with a hook on every hidden state that reads its gradient."""

    def look(gradient: Any) -> None:
        size = gradient.abs()
        assert float(size.max()) >= 0
        assert float(size.mean()) >= 0

    return cells(watch=lambda h: h.register_hook(look))


def checkpointed() -> Step:
    """Return a step with checkpointing, which computes each cell again in the backward pass."""
    cell = torch.nn.LSTMCell(FEATURES, HIDDEN)

    def call(x: Any, state: Any) -> Any:
        return checkpoint(cell, x, state, use_reentrant=False)

    return training(cell, by_cell(cell, inputs(), call))


def anomalous() -> Step:
    """Return a step in anomaly mode, which searches every gradient for NaN."""
    step = cells()

    def watched() -> None:
        with torch.autograd.set_detect_anomaly(True):
            step()

    return watched


def scripted() -> Step:
    """Return a step with the hand-written LSTM in TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return over(torch.jit.script(ByHand()), inputs())


def compiled() -> Step:
    """Return a step with the hand-written LSTM under torch.compile."""
    return over(torch.compile(ByHand()), inputs(12, BATCH, FEATURES))


def indexed(unbind: bool) -> Step:
    """Return a step that splits its inputs by time step with ``x[t]``, or with ``unbind``."""
    cell, x = torch.nn.LSTMCell(FEATURES, HIDDEN), inputs(100, 64, FEATURES).requires_grad_()

    def loss() -> Any:
        h = c = torch.zeros(64, HIDDEN)
        for step in x.unbind(0) if unbind else (x[t] for t in range(len(x))):
            h, c = cell(step, (h, c))
        return h.square().mean()

    return training(cell, loss)


def layout(batch_first: bool) -> Step:
    """Return a forward pass of nn.LSTM with the batch first or the time first."""
    model = torch.nn.LSTM(512, 2, batch_first=batch_first)
    x = inputs(64, 60, 512) if batch_first else inputs(60, 64, 512)

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


def optimized(**options: Any) -> Step:
    """Return a step that trains eight small layers with Adam and these ``options``."""
    model, x = torch.nn.LSTM(32, 32, num_layers=8), inputs(10, BATCH, 32)
    adam = torch.optim.Adam(model.parameters(), **options)
    return training(model, lambda: model(x)[0].square().mean(), adam)


PAIRS: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "layer in one op": (cells, lambda: over(lstm(), inputs())),
    "layer in one op (written by hand)": (
        lambda: over(ByHand(), inputs()),
        lambda: over(lstm(), inputs()),
    ),
    "layer in one op (GRUCell)": (
        lambda: training(cell := torch.nn.GRUCell(FEATURES, HIDDEN), by_cell(cell, inputs())),
        lambda: over(torch.nn.GRU(FEATURES, HIDDEN), inputs()),
    ),
    "whole sequence in one call": (one_time_step_per_call, lambda: over(lstm(), inputs())),
    "pad instead of pack": (lambda: packed(range(TIME, TIME - BATCH, -1)), lambda: packed(None)),
    "batch the sequences": (one_by_one, lambda: packed(None)),
    "no gradient hooks": (hooked, cells),
    "compute once": (checkpointed, cells),
    "no anomaly mode": (anomalous, cells),
    "no TorchScript": (scripted, lambda: over(lstm(), inputs())),
    "no value in the loop": (lambda: cells(watch=lambda h: h.sum().item()), cells),
    "unbind before the loop": (lambda: indexed(False), lambda: indexed(True)),
    "time first": (lambda: layout(True), lambda: layout(False)),
    "fused optimizer": (lambda: optimized(foreach=False), lambda: optimized(fused=True)),
    # Last: lstmprof records no sizes of layers in a process that has compiled something.
    "fused cell": (lambda: over(ByHand(), inputs(12, BATCH, FEATURES)), compiled),
}

"""Cells with more than an LSTM's equations: real small captures of PyTorch on this CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from causes import NOTES

import lstmprof as lp
from lstmprof.diagnose.remedies import Advice

torch = pytest.importorskip("torch")
nn, Tensor = torch.nn, torch.Tensor

STEPS, BATCH, INPUTS, HIDDEN = 12, 6, 10, 16


class Network(nn.Module):
    """An LSTM written in operators, with what ``variant`` adds."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.into = nn.Linear(INPUTS, 4 * HIDDEN)
        self.again = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.norm = nn.LayerNorm(4 * HIDDEN)
        self.peepholes = nn.ParameterList([nn.Parameter(torch.ones(HIDDEN)) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(BATCH, HIDDEN)
        for now in x.unbind(0):
            gates = self.into(now) + self.again(h)
            if self.variant == "normalised":
                gates = self.norm(gates)
            i, f, g, o = gates.chunk(4, 1)
            if self.variant == "peepholes":
                i, f = i + self.peepholes[0] * c, f + self.peepholes[1] * c
            new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            if self.variant == "zoneout":
                new = torch.where(torch.rand_like(c) < 0.1, c, new)
            c = new
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


def advice(folder: Path, variant: str) -> dict[str, Advice]:
    """The advice on a profile of three training steps, by name."""
    torch.manual_seed(0)
    network = Network(variant)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    x = torch.randn(STEPS, BATCH, INPUTS)

    def step() -> None:
        optimizer.zero_grad()
        network(x).sum().backward()
        optimizer.step()

    step()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("train"):
                step()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    (diagnosis,) = lp.diagnose([lp.read(path)])
    return {advice.name: advice for advice in diagnosis.remedies}


@pytest.mark.parametrize(
    ("variant", "word"),
    [("normalised", "normalisation"), ("peepholes", "peepholes"), ("zoneout", "random numbers")],
)
def test_what_a_cell_adds_keeps_it_from_the_layer_op(
    tmp_path: Path, variant: str, word: str
) -> None:
    given = advice(tmp_path, variant)
    assert word in given["fuse the cell"].seen
    assert "torch.compile" in given["fuse the cell"].fix
    assert "layer in one op" not in given


def test_the_catalogue_has_the_evidence_of_layer_normalisation(tmp_path: Path) -> None:
    given = advice(tmp_path, "normalised")["fuse the cell"]
    assert given.seen == NOTES[given.name]["example"]["seen"]


def test_a_plain_cell_adds_nothing(tmp_path: Path) -> None:
    assert "fuse the cell" not in advice(tmp_path, "plain")

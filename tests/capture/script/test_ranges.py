"""PyTorch's ranges of a profiled step, in order and nested, and nothing left behind after it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lstmprof.capture.script.ranges import MOST_CALLS, TorchRanges

torch = pytest.importorskip("torch")


class Phases:
    """Notes where ranges begin and end, the nested ones indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.lines.append("  " * self.depth + name)
        self.depth += 1
        yield
        self.depth -= 1


def called(do: Callable[..., Any], *arguments: Any) -> Any:
    return do(*arguments)


@pytest.fixture
def phases() -> Phases:
    return Phases()


@pytest.fixture
def ranges(phases: Phases, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchRanges]:
    """In profiled steps; its hooks are those of the whole process."""
    # Other tests of this process may have compiled a module.
    monkeypatch.setattr(sys.modules[TorchRanges.__module__], "has_compiled", lambda: False)
    found = TorchRanges(torch, phases, called)
    found.set(True)
    yield found
    found.set(False)


def trained(ranges: TorchRanges, model: Any, loss: Any) -> None:
    """A step: forward, loss, backward, optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss(model(torch.ones(2, 3)), torch.ones(2, 3)).backward()
    ranges.open("optimizer", "optimizer")
    optimizer.step()
    ranges.close("optimizer")


def test_a_profiled_step_has_its_phases_and_modules_once_loops_are_known(
    phases: Phases, ranges: TorchRanges
) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            for _ in range(MOST_CALLS + 1):
                x = self.cell(x)
            return self.head(x)

    model, loss = Model(), torch.nn.MSELoss()
    trained(ranges, model, loss)
    assert phases.lines == ["forward", "loss", "backward", "optimizer"]
    phases.lines.clear()
    ranges.set(True)
    trained(ranges, model, loss)
    assert phases.lines == [
        *("forward", "  nn.Module: Model", "    nn.Module: Linear head"),
        *("loss", "  nn.Module: MSELoss", "backward", "optimizer"),
    ]
    assert (ranges.backwards, ranges.steps) == (2, 2)


def test_steps_that_are_not_profiled_have_no_hook() -> None:
    backward, phases = torch.autograd.backward, Phases()
    ranges = TorchRanges(torch, phases, called)
    ranges.set(True)
    assert torch.autograd.backward is not backward
    ranges.set(False)
    assert torch.autograd.backward is backward
    trained(ranges, torch.nn.Linear(3, 3), torch.nn.MSELoss())
    assert phases.lines == []


def test_a_step_that_ends_inside_a_range_ends_the_range(
    phases: Phases, ranges: TorchRanges
) -> None:
    ranges.open("outer", "backward")
    ranges.open("inner", "optimizer")
    ranges.close(None)
    ranges.close("outer")
    assert phases.depth == 0


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="this PyTorch has no torch.compile")
def test_what_is_compiled_in_a_profiled_step_has_no_hook_in_its_graph(
    phases: Phases, ranges: TorchRanges
) -> None:
    found = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.head(x)

    def backend(graph: Any, _: Any) -> Any:
        found.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    model = Model()
    model.compile(backend=backend)
    model(torch.ones(2, 3))
    assert found == [[torch._C._nn.linear]]
    assert phases.lines == []

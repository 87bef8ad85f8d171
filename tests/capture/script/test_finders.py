"""Where steps end in each framework, as its hooks tell: without a profiler, on tiny stand-ins."""

from __future__ import annotations

import contextlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lstmprof.capture.request import ScriptRequest
from lstmprof.capture.script import compiled, finders, program
from lstmprof.capture.script.sizes import GraphSizes


class Steps:
    """Notes what it is told."""

    functions = optimizers = 0
    over = False

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begins(self, source: str) -> None:
        self.told.append(f"{source} begins")

    def counts(self, source: str) -> bool:
        return True

    def safely(self, do: Callable[..., Any], *args: Any) -> Any:
        with contextlib.suppress(TypeError, AttributeError):
            return do(*args)

    def ends(self, source: str, who: Any = None, outcome: Any = None, follows: bool = True) -> None:
        self.told.append((source, outcome, follows))


def attached(steps: Steps, function: str | None = None, **modules: Any) -> dict[str, Any]:
    """The facts of modules that were looked at when they were imported."""
    facts: dict[str, Any] = {}
    request = ScriptRequest("train.py", "traces/train", step_function=function)
    attach = finders.attachments(request, steps, lambda begins: None, facts, GraphSizes())  # type: ignore[arg-type]
    for name, module in modules.items():
        attach[name.replace("__", ".")](module)
    return facts


def jax_and_optax() -> tuple[Any, Any]:
    """Stand-ins: what jit makes traces its function at its first call."""

    class Compiled:
        def __init__(self, function: Any) -> None:
            self.__wrapped__, self.traced = function, False

        def __call__(self, value: int) -> int:
            if not self.traced:
                self.__wrapped__(value)
            self.traced = True
            return value + 1

        def lower(self) -> str:
            return "lowered"

    jax = types.ModuleType("jax")
    jax.__dict__.update(
        jit=Compiled,
        grad=lambda function: lambda value: function(value) * 10,
        core=types.SimpleNamespace(Tracer=Compiled),
        tree_util=types.SimpleNamespace(tree_leaves=lambda tree: [tree]),
    )
    return jax, types.SimpleNamespace(apply_updates=lambda value: value)


Watched = tuple[Any, Any, Steps]


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """JAX and optax as a script that is watched sees them, and its steps."""
    steps = Steps()
    jax, optax = jax_and_optax()
    attached(steps, jax=jax, optax=optax)
    monkeypatch.setitem(sys.modules, "jax", jax)
    return jax, optax, steps


def test_updates_that_nothing_compiles_end_a_step_of_jax(jax: Watched) -> None:
    _, optax, steps = jax
    assert optax.apply_updates(7) == 7
    assert steps.told == [("jax", 7, True)]


def test_the_outermost_compiled_function_that_updates_is_the_step_of_jax(jax: Watched) -> None:
    framework, optax, steps = jax
    inner = framework.jit(optax.apply_updates)

    def train(value: int) -> int:
        return int(inner(framework.grad(abs)(value)))

    step, evaluate = framework.jit(train), framework.jit(lambda value: value)
    assert [step(1), evaluate(1), step(2)] == [2, 2, 3]
    assert steps.told == [("jax", 2, True), ("jax", 3, True)]
    assert step.lower() == "lowered"


def test_a_compiled_function_that_computes_gradients_is_the_step_without_optax(
    jax: Watched,
) -> None:
    framework, _, steps = jax
    update = framework.jit(lambda value: framework.grad(abs)(value))
    assert [update(1), framework.grad(framework.grad(abs))(4), update(2)] == [2, 400, 3]
    assert steps.told == [("jax gradient", outcome, True) for outcome in (2, 400, 3)]


def test_what_is_only_traced_ends_no_step(jax: Watched) -> None:
    framework, optax, steps = jax
    optax.apply_updates(framework.core.Tracer(abs))
    assert steps.told == []


def test_a_function_keeps_its_name_when_it_is_compiled_anew() -> None:
    def step_of(rate: float) -> Any:
        return lambda value: value * rate

    names = {compiled.name_of(step_of(rate)) for rate in (0.1, 0.2)}
    assert len(names) == 1
    assert re.fullmatch(r"<lambda> \(test_finders.py:\d+\)", names.pop())
    assert re.fullmatch(r"test_finders.py:\d+", compiled.caller())


@pytest.mark.parametrize(
    ("passes", "reset", "ends"),
    [
        ("every pass", lambda n: True, [2, 3, 4, 5, 6, 7, 8]),
        ("every third pass", lambda n: n % 3 == 0, [6]),
        ("every third pass, to zero", lambda n: n % 3 == 0, [6]),
        ("never", lambda n: False, []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_backward_pass_that_begins_with_no_gradients_ends_a_step(
    passes: str, reset: Callable[[int], bool], ends: list[int]
) -> None:
    torch = pytest.importorskip("torch")
    steps = Steps()
    autograd = types.SimpleNamespace(backward=torch.autograd.backward)
    attached(steps, torch__autograd=autograd)
    weight, ended = torch.ones(3, requires_grad=True), []
    for number in range(9):
        if reset(number) and weight.grad is not None:
            weight.grad.data.zero_()
            weight.grad = weight.grad if "zero" in passes else None
        steps.told.clear()
        autograd.backward((weight**2).sum())
        ended += [number] * len(steps.told)
    assert ended == ends


def test_backward_passes_end_no_step_where_there_is_an_optimizer() -> None:
    torch = pytest.importorskip("torch")
    steps = Steps()
    autograd = types.SimpleNamespace(backward=torch.autograd.backward)
    optimizer = types.SimpleNamespace(Optimizer=type("Optimizer", (), {"step": lambda self: None}))
    attached(steps, torch__autograd=autograd, torch__optim__optimizer=optimizer)
    made = optimizer.Optimizer()
    for _ in range(9):
        autograd.backward(torch.ones(3, requires_grad=True).sum())
    assert steps.told == []
    made.step()
    assert steps.told == [("torch", None, True)]


class Graph:
    """A graph of TensorFlow 1, whose nodes are taken as they are."""

    def as_graph_element(self, node: Any) -> Any:
        return node


def node(name: str, kind: str, *inputs: Any) -> Any:
    reads = [types.SimpleNamespace(op=each) for each in inputs]
    return types.SimpleNamespace(name=name, type=kind, inputs=reads, control_inputs=[])


def test_a_session_that_runs_what_trains_ends_a_step() -> None:
    class Session:
        graph = Graph()

        def run(self, fetches: Any) -> str:
            return "run"

    steps = Steps()
    attached(
        steps,
        tensorflow__python__client__session=types.SimpleNamespace(BaseSession=Session),
    )
    loss = node("loss", "Mean", node("gradients/while_grad/size", "Const"))
    train = node("train", "NoOp", node("update", "ResourceApplyAdam", loss))
    by_hand = node("store", "Assign", node("gradients/loss_grad/mul", "Mul", loss))
    for fetches in (node("init", "Assign"), loss, [train, loss], {"a": (loss, by_hand)}, object()):
        assert Session().run(fetches) == "run"
    assert steps.told == [("tensorflow", None, True)] * 2


def test_a_named_function_is_the_step_and_nothing_else_is() -> None:
    steps = Steps()
    module = types.SimpleNamespace(__name__="mine", train=lambda value: value * 2)
    attached(steps, "mine:train", mine=module)
    assert module.train(4) == 8
    assert steps.told == ["function begins", ("function", 8, False)]
    assert steps.functions == 1
    request = ScriptRequest("a.py", "a", step_function="step")
    attach = finders.attachments(request, steps, lambda begins: None, {}, GraphSizes())  # type: ignore[arg-type]
    assert "torch.optim.optimizer" not in attach


def test_a_method_that_is_marked_is_still_a_method() -> None:
    steps = Steps()

    class Trainer:
        size = 3

        def step(self, value: int) -> int:
            return self.size * value

    module = types.SimpleNamespace(Trainer=Trainer)
    assert program.mark_attribute(module, "Trainer.step", steps) == 1
    assert Trainer().step(2) == 6
    assert program.mark_attribute(module, "Trainer.missing", steps) == 0


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([[0, 0, 5], [0, 4, 5]], "front"),
        ([[5, 0, 0], [5, 4, 0]], "behind"),
        ([[0, 1, 2], [1, 2, 0]], None),
        ([[1, 2, 3], [4, 5, 6]], None),
    ],
)
def test_padding_is_seen_where_sequences_are_filled_up_on_one_side(
    rows: list[list[int]], told: str | None
) -> None:
    assert finders.padding_of(np.array(rows)) == told
    assert finders.padding_of(np.array(rows, dtype="float32")) is None
    assert finders.padding_of(rows) is None

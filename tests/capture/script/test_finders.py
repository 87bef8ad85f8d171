"""Where steps end in each framework, as its hooks tell: without a profiler, on tiny stand-ins."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from lstmprof.capture.script import finders, marking
from lstmprof.capture.script.request import ScriptRequest


class Steps:
    """Notes what it is told."""

    functions = 0

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begins(self, source: str) -> None:
        self.told.append(f"{source} begins")

    def ends(self, source: str, who: Any = None, outcome: Any = None, follows: bool = True) -> None:
        self.told.append((source, outcome, follows))


def attached(steps: Steps, function: str | None = None, **modules: Any) -> dict[str, Any]:
    """The facts of modules that were looked at when they were imported."""
    facts: dict[str, Any] = {}
    request = ScriptRequest("train.py", "traces/train", step_function=function)
    attach = finders.attachments(request, steps, lambda begins: None, facts)  # type: ignore[arg-type]
    for name, module in modules.items():
        attach[name.replace("__", ".")](module)
    return facts


def jax_and_optax() -> tuple[Any, Any]:
    """Stand-ins: what jit makes traces its function at its first call."""

    class Compiled:
        def __init__(self, function: Any) -> None:
            self.function, self.traced = function, False

        def __call__(self, value: int) -> int:
            if not self.traced:
                self.function(value)
            self.traced = True
            return value + 1

        def lower(self) -> str:
            return "lowered"

    return (
        types.SimpleNamespace(jit=Compiled),
        types.SimpleNamespace(apply_updates=lambda value: value),
    )


def test_updates_that_nothing_compiles_end_a_step_of_jax() -> None:
    steps = Steps()
    jax, optax = jax_and_optax()
    attached(steps, jax=jax, optax=optax)
    assert optax.apply_updates(7) == 7
    assert steps.told == [("jax", 7, True)]


def test_the_outermost_compiled_function_that_updates_is_the_step_of_jax() -> None:
    steps = Steps()
    jax, optax = jax_and_optax()
    attached(steps, jax=jax, optax=optax)
    inner = jax.jit(optax.apply_updates)
    step, evaluate = jax.jit(lambda value: inner(value)), jax.jit(lambda value: value)
    assert [step(1), evaluate(1), step(2)] == [2, 2, 3]
    assert steps.told == [("jax", 2, True), ("jax", 3, True)]
    assert step.lower() == "lowered"


def test_a_named_function_is_the_step_and_nothing_else_is() -> None:
    steps = Steps()
    module = types.SimpleNamespace(__name__="mine", train=lambda value: value * 2)
    attached(steps, "mine:train", mine=module)
    assert module.train(4) == 8
    assert steps.told == ["function begins", ("function", 8, False)]
    assert steps.functions == 1
    assert "torch.optim.optimizer" not in finders.attachments(
        ScriptRequest("a.py", "a", step_function="step"),
        steps,
        lambda begins: None,
        {},  # type: ignore[arg-type]
    )


def test_a_method_that_is_marked_is_still_a_method() -> None:
    steps = Steps()

    class Trainer:
        size = 3

        def step(self, value: int) -> int:
            return self.size * value

    module = types.SimpleNamespace(Trainer=Trainer)
    assert marking.mark_attribute(module, "Trainer.step", steps) == 1
    assert Trainer().step(2) == 6
    assert marking.mark_attribute(module, "Trainer.missing", steps) == 0


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

"""Why a function of a script is compiled again, as JAX and TensorFlow really do it."""

from __future__ import annotations

from typing import Any

import pytest

from lstmprof.capture.own.recompiled import Call, Recompilations
from lstmprof.capture.script import compiled


class Watched:
    """Calls functions as a script does, and has what was noted of them."""

    def __init__(self, framework: str) -> None:
        self.package = pytest.importorskip(framework)
        self.facts: dict[str, Any] = {}
        count = "_cache_size" if framework == "jax" else "experimental_get_tracing_count"
        self.again = Recompilations(
            self.facts,
            compiled.jax_leaves if framework == "jax" else compiled.tensorflow_leaves,
            lambda function: getattr(function, count)(),
            every_value=framework != "jax",
        )

    def call(self, function: Any, *args: Any, static: tuple[Any, ...] = ()) -> Any:
        """Call ``function``; return what is noted of it so far, None if nothing."""
        before = self.again.count(function)
        function(*args)
        self.again.called("step (train.py:3)", Call(function, args, {}, static), before)
        noted = self.facts.get("recompiled")
        if noted is None:
            return None
        (entry,) = noted
        assert entry["function"] == "step"
        return tuple(
            entry.get(name) for name in ("times", "changed", "argument", "before", "after")
        )


def scaled(state: dict[str, Any], rate: Any) -> Any:
    return state["x"] * rate


def test_shapes_dtypes_and_structures_compile_a_function_of_jax_again() -> None:
    jax = Watched("jax")
    ones = jax.package.numpy.ones
    step = jax.package.jit(lambda state, rate: scaled(state, rate))
    assert jax.call(step, {"x": ones((2, 3))}, 0.1) is None
    assert jax.call(step, {"x": ones((2, 3))}, 0.2) is None
    longer = (1, "shape", "state", "(2, 3)", "(4, 3)")
    assert jax.call(step, {"x": ones((4, 3))}, 0.3) == longer
    assert jax.call(step, {"x": ones((2, 3))}, 0.4) == longer
    whole = {"x": ones((4, 3), "int32")}
    assert jax.call(step, whole, 0.5) == (2, "dtype", "state", "float32", "int32")
    more = {**whole, "y": ones(1)}
    assert jax.call(step, more, 0.5) == (3, "structure", "state", None, None)


@pytest.mark.parametrize("static", [{"static_argnums": (1,)}, {"static_argnames": ("rate",)}])
def test_values_of_static_arguments_compile_a_function_of_jax_again(static: dict[str, Any]) -> None:
    jax = Watched("jax")
    # JAX shares what it compiled among all functions that are made of one Python function.
    step = jax.package.jit(lambda state, rate: scaled(state, rate), **static)
    (names,) = static.values()
    state = {"x": jax.package.numpy.ones(3)}
    assert jax.call(step, state, 1, static=names) is None
    assert jax.call(step, state, 2, static=names) == (1, "value", "rate", "1", "2")


def test_a_function_of_jax_that_the_script_makes_anew_is_known_by_its_place() -> None:
    jax = Watched("jax")
    state = {"x": jax.package.numpy.ones(3)}
    for times in range(3):
        step = jax.package.jit(lambda state, rate: scaled(state, rate))
        assert jax.call(step, state, 1) == (
            (times, "function", None, None, None) if times else None
        )


def test_values_and_shapes_trace_a_function_of_tensorflow_again() -> None:
    tensorflow = Watched("tensorflow")
    ones, step = tensorflow.package.ones, tensorflow.package.function(scaled)
    assert tensorflow.call(step, {"x": ones(3)}, 1.0) is None
    assert tensorflow.call(step, {"x": ones(3)}, 1.0) is None
    value = (1, "value", "rate", "1.0", "2.0")
    assert tensorflow.call(step, {"x": ones(3)}, 2.0) == value
    assert tensorflow.call(step, {"x": ones(3)}, 1.0) == value
    shape = (2, "shape", "state", "(3,)", "(4,)")
    assert tensorflow.call(step, {"x": ones(4)}, 2.0) == shape


def test_a_function_that_does_not_tell_how_often_it_was_compiled_is_left_out() -> None:
    jax = Watched("jax")
    assert jax.again.count(abs) is None
    assert [jax.call(abs, number) for number in (1, -2)] == [None, None]

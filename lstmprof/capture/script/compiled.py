"""Find out which compiled function (``jax.jit``, ``tf.function``) is a script's step.

A compiled function runs its Python code only while the framework traces the function. If the traced
code computes gradients or updates parameters, the outermost compiled function is the step. Then
each call of this function ends a step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Tuple, Union

from lstmprof.capture.own.recompiled import Call, Recompilations
from lstmprof.capture.script.program import WatchedCallable
from lstmprof.capture.script.sizes import GraphSizes
from lstmprof.capture.script.steps import SOURCES, Steps

#: Packages to skip in a call stack, to find the line of the user's script.
_LIBRARIES = (
    *("jax", "jaxlib", "equinox", "optax", "flax", "haiku", "tensorflow", "keras"),
    *("torch", "lstmprof"),
)


class CompiledCalls(threading.local):
    """Names of the compiled functions that a thread is running, outermost first."""

    def __init__(self) -> None:
        self.names: List[str] = []
        self.gradients = 0  # nesting depth of running gradient functions


class Program:
    """Finds out which compiled functions are training steps."""

    def __init__(
        self, steps: Steps, is_abstract: Callable[[Any], bool], again: Recompilations
    ) -> None:
        self._steps, self._is_abstract, self._again = steps, is_abstract, again
        self._calls = CompiledCalls()
        self._trained_by: Dict[str, str] = {}

    def call(self, name: str, call: Call, run: Callable[..., Any]) -> Any:
        """Call a compiled function; end a step if the function is outermost and trains."""
        names = self._calls.names
        notes = not names and not self._steps.over
        before = self._again.count(call.function) if notes else None
        names.append(name)
        try:
            result = run(*call.args, **call.kwargs)
        finally:
            names.pop()
        if notes and self._again.count(call.function) != before:
            with contextlib.suppress(Exception):  # an argument of an unusual kind
                self._again.called(name, call, before)
        if not names and name in self._trained_by:
            self._steps.ends(self._trained_by[name], name, outcome=result)
        return result

    def is_step(self, name: str) -> bool:
        """Return whether a function trains and was not called by a compiled function."""
        return not self._calls.names and name in self._trained_by

    def trains(self, source: str, who: Any, outcome: Any) -> None:
        """Record that the running code updates parameters or computes gradients."""
        self._steps.safely(self._trains, source, who, outcome)

    def _trains(self, source: str, who: Any, outcome: Any) -> None:
        if self._calls.names:
            outermost = self._calls.names[0]
            before = self._trained_by.get(outermost)
            if before is None or SOURCES[source] > SOURCES[before]:
                self._trained_by[outermost] = source
        elif not self._is_abstract(outcome):
            self._steps.ends(source, who, outcome=outcome)

    def gradients(self, source: str, function: Any) -> Any:
        """Wrap a function that computes gradients, to notice its calls."""

        @functools.wraps(function)
        def computed(*args: Any, **kwargs: Any) -> Any:
            calls = self._calls
            calls.gradients += 1
            try:
                result = function(*args, **kwargs)
            finally:
                calls.gradients -= 1
            if not calls.gradients:
                self.trains(source, caller(), result)
            return result

        return computed


class _Jitted(WatchedCallable):
    def __init__(self, program: Program, function: Any, static: Tuple[Any, ...]) -> None:
        super().__init__(function)
        self.__dict__.update(_program=program, _title=name_of(function), _static=static)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        function = own["__wrapped__"]
        call = Call(function, args, kwargs, own["_static"])
        return own["_program"].call(own["_title"], call, function)


def watch_jax(program: Program, jax: Any) -> None:
    """Wrap ``jax.jit``, ``jax.grad`` etc., to notice calls of the returned functions."""

    def compiling(compile_function: Any) -> Any:
        @functools.wraps(compile_function)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            made = compile_function(*args, **kwargs)
            static = (*_listed(kwargs, "static_argnums"), *_listed(kwargs, "static_argnames"))
            if hasattr(made, "lower"):
                return _Jitted(program, made, static)
            return lambda function: _Jitted(program, made(function), static)  # used as a decorator

        return compiled

    def differentiating(make: Any) -> Any:
        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            return program.gradients("jax gradient", make(*args, **kwargs))

        return made

    for name, around in (
        ("jit", compiling),
        ("pmap", compiling),
        ("grad", differentiating),
        ("value_and_grad", differentiating),
    ):
        if hasattr(jax, name):
            setattr(jax, name, around(getattr(jax, name)))


def _listed(options: Dict[str, Any], name: str) -> Tuple[Any, ...]:
    """Return an option of ``jax.jit`` as a tuple: ``static_argnums=1`` -> ``(1,)``."""
    value = options.get(name)
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)


def watch_updates(program: Program, package: Any) -> None:
    """Wrap ``apply_updates`` of optax or equinox, to notice updates of parameters."""
    apply_updates = package.apply_updates

    @functools.wraps(apply_updates)
    def applied(*args: Any, **kwargs: Any) -> Any:
        result = apply_updates(*args, **kwargs)
        program.trains("jax", caller(), result)
        return result

    package.apply_updates = applied


def watch_functions(program: Program, sizes: GraphSizes, module: Any) -> None:
    """Wrap ``tf.function`` objects, to notice their calls."""
    call = module.Function.__call__

    @functools.wraps(call)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = name_of(getattr(self, "_python_function", self))
        result = program.call(name, Call(self, args, kwargs), functools.partial(call, self))
        if program.is_step(name):
            sizes.function = self
        return result

    module.Function.__call__ = called


def watch_tapes(program: Program, module: Any) -> None:
    tape = module.GradientTape
    tape.gradient = program.gradients("tensorflow gradient", tape.gradient)


def jax_leaves(tree: Any) -> Any:
    return sys.modules["jax"].tree_util.tree_leaves(tree)


def tensorflow_leaves(structure: Any) -> Any:
    return sys.modules["tensorflow"].nest.flatten(structure)


def has_tracers(outcome: Any) -> bool:
    """Return whether a result contains tracers, because JAX is only tracing."""
    jax = sys.modules["jax"]
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax_leaves(outcome))


def builds_a_graph(outcome: Any) -> bool:
    return not sys.modules["tensorflow"].executing_eagerly()


def name_of(function: Any) -> str:
    """Return a function's name and line: ``train_step (train.py:31)``."""
    code = getattr(function, "__code__", None)
    while code is None and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
        code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or type(function).__name__
    name = name.rpartition("<locals>.")[2]
    return (
        name if code is None else "{} ({})".format(name, _file_and_line(code, code.co_firstlineno))
    )


def caller() -> str:
    """Return the line of the script that is running now: ``train.py:31``."""
    frame: Union[Any, None] = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _LIBRARIES:
            break
        frame = frame.f_back
    return "" if frame is None else _file_and_line(frame.f_code, frame.f_lineno)


def _file_and_line(code: Any, line: int) -> str:
    return "{}:{}".format(os.path.basename(code.co_filename), line)

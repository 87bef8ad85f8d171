"""Where the steps of a script end, seen by hooks of its framework: one finder a framework.

PyTorch: the calls of every optimizer's ``step``. Keras: the ends of train batches, as its callbacks
are told of them. JAX: the calls of ``optax.apply_updates``; of one that is traced, from then on
those of the outermost ``jax.jit`` around it. Sources: torch/optim/optimizer.py
(``profile_hook_step``), keras/src/callbacks/callback_list.py, optax/_src/update.py.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Set

from lstmprof.capture.script.marking import Seen, mark_attribute, placed
from lstmprof.capture.script.request import ScriptRequest
from lstmprof.capture.script.steps import Steps

Attach = Callable[[Any], None]
#: Of a token or a feature that fills a sequence up.
_FILLING = 0
#: Sequences of a batch that are looked at.
_LOOKED_AT = 512


def attachments(
    request: ScriptRequest, steps: Steps, optimizing: Callable[[bool], None], facts: Dict[str, Any]
) -> Dict[str, Attach]:
    """What is done to each module as soon as it was imported.

    ``optimizing`` is told when an optimizer of PyTorch begins to step and when it has; ``facts``
    get what is seen on the way.
    """
    keras = {"keras.src.models.model": functools.partial(_look_at_padding, facts)}
    module, name = placed(request.step_function)
    if module is not None and name is not None:

        def mark(imported: Any) -> None:
            steps.functions += mark_attribute(imported, str(name), steps)

        return {**keras, module: mark}
    if name is not None:
        return dict(keras)
    jitted = _Compiled(steps)
    return {
        **keras,
        "torch.optim.optimizer": functools.partial(_watch_torch, steps, optimizing),
        "keras.src.callbacks.callback_list": functools.partial(_watch_keras, steps),
        "jax": jitted.watch_jit,
        "optax": jitted.watch_updates,
    }


def _watch_torch(steps: Steps, optimizing: Callable[[bool], None], module: Any) -> None:
    """``module`` is torch.optim.optimizer: wrap ``step`` of each class once there is one of it.

    torch's own hooks after a step run inside its range ``Optimizer.step``, where none can end.
    """
    init = module.Optimizer.__init__
    stepping: Set[int] = set()

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        steps.optimizers += 1
        step = type(self).step
        if not getattr(step, "watched", False):
            type(self).step = _watched(step, stepping, steps, optimizing)

    module.Optimizer.__init__ = made


def _watched(
    step: Any, stepping: Set[int], steps: Steps, optimizing: Callable[[bool], None]
) -> Any:
    """``step`` of a class of optimizers; one that calls its parent's steps once."""

    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in stepping:
            return step(self, *args, **kwargs)
        stepping.add(id(self))
        optimizing(True)
        try:
            result = step(self, *args, **kwargs)
        finally:
            stepping.discard(id(self))
            optimizing(False)
        steps.ends("torch", self)
        return result

    stepped.watched = True  # type: ignore[attr-defined]
    return stepped


def _watch_keras(steps: Steps, module: Any) -> None:
    """``module`` is that of Keras's CallbackList.

    The last batch of an epoch is followed by what is done between epochs, no step.
    """
    of = module.CallbackList
    begins, ends = of.on_train_batch_begin, of.on_train_batch_end

    @functools.wraps(begins)
    def batch_begins(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begins(self, *args, **kwargs)
        steps.begins("keras")
        return result

    @functools.wraps(ends)
    def batch_ended(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = ends(self, batch, *args, **kwargs)
        of_epoch = (getattr(self, "params", None) or {}).get("steps")
        steps.ends("keras", follows=of_epoch is not None and batch + 1 < of_epoch)
        return result

    of.on_train_batch_begin, of.on_train_batch_end = batch_begins, batch_ended


def _look_at_padding(facts: Dict[str, Any], module: Any) -> None:
    """``module`` is that of Keras's Model: where the sequences that it masks are filled up."""
    fit = module.Model.fit

    @functools.wraps(fit)
    def looked_at(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        masks = any(getattr(layer, "mask_zero", False) for layer in getattr(self, "layers", ()))
        facts["padding"] = padding_of(x) if masks else None
        return fit(self, x, *args, **kwargs)

    module.Model.fit = looked_at


def padding_of(x: Any) -> Any:
    """``front`` or ``behind``, where sequences of token numbers are filled up; None unknown."""
    if getattr(x, "ndim", None) != 2 or getattr(getattr(x, "dtype", None), "kind", "") not in "iu":
        return None
    first, last = (x[:_LOOKED_AT, place] == _FILLING for place in (0, -1))
    front, behind = (int((one & ~other).sum()) for one, other in ((first, last), (last, first)))
    if bool(front) == bool(behind):
        return None
    return "front" if front else "behind"


class _Compiled:
    """The functions that ``jax.jit`` makes, and which of them updates parameters."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._calls: List[_Jitted] = []

    def watch_jit(self, jax: Any) -> None:
        """Have every function that a script compiles tell of its calls."""
        jit = jax.jit

        @functools.wraps(jit)
        def jitted(*args: Any, **kwargs: Any) -> Any:
            made = jit(*args, **kwargs)
            if hasattr(made, "lower"):
                return _Jitted(self, made)
            return lambda function: _Jitted(self, made(function))  # a decorator, given options

        jax.jit = jitted

    def watch_updates(self, optax: Any) -> None:
        """Have ``optax.apply_updates`` tell which function is the step, or end one itself."""
        apply_updates = optax.apply_updates

        @functools.wraps(apply_updates)
        def applied(*args: Any, **kwargs: Any) -> Any:
            result = apply_updates(*args, **kwargs)
            if self._calls:
                self._calls[0].__dict__["updates"] = True
            else:
                self._steps.ends("jax", outcome=result)
            return result

        optax.apply_updates = applied

    def call(self, jitted: _Jitted, function: Any, args: Any, kwargs: Any) -> Any:
        """The result of a compiled function; a step ends if it is the outermost that updates."""
        self._calls.append(jitted)
        try:
            result = function(*args, **kwargs)
        finally:
            self._calls.pop()
        if not self._calls and jitted.__dict__.get("updates"):
            self._steps.ends("jax", outcome=result)
        return result


class _Jitted(Seen):
    """A function that ``jax.jit`` made."""

    def __init__(self, compiled: _Compiled, function: Any) -> None:
        super().__init__(function)
        self.__dict__["_compiled"] = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        return own["_compiled"].call(self, own["__wrapped__"], args, kwargs)

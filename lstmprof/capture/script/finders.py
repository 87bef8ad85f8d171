"""Find where the steps of a script end, by hooks in its framework.

PyTorch: an optimizer's ``step``, or a backward pass if there is no optimizer. Keras: a training
batch. TensorFlow 1: a ``Session.run`` that updates parameters. JAX and tf.function: ``compiled``.
Sources: torch/optim/optimizer.py (``profile_hook_step``), keras/src/callbacks/callback_list.py.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from lstmprof.capture.own.recompiled import Recompilations
from lstmprof.capture.request import ScriptRequest
from lstmprof.capture.script import compiled
from lstmprof.capture.script.program import mark_attribute, split_step_function
from lstmprof.capture.script.sizes import GraphSizes, KerasLayers
from lstmprof.capture.script.steps import Steps

Attach = Callable[[Any], None]
#: Token or feature value that counts as padding.
_FILLING = 0
#: Largest number of sequences in which lstmprof looks for padding.
_LOOKED_AT = 512
#: Default batch size of Keras's ``fit``.
_KERAS_BATCH = 32
#: Number of backward passes without a gradient reset after which each pass is a step.
_MOST_PASSES = 32
#: Pattern of TensorFlow 1 op types that update parameters.
_UPDATES = re.compile(r"(Resource)?(Sparse)?Apply\w+|AssignSub\w*")
#: Pattern of op types that assign; only an assignment computed from gradients is an update.
_ASSIGNS = re.compile(r"Assign(Add|Variable|AddVariable)?(Op)?")
#: Pattern of the node names that ``tf.gradients`` makes; forward nodes may have such names, too.
_OF_GRADIENTS = re.compile(r"(?:^|/)gradients(?:_\d+)?/")


def attachments(
    request: ScriptRequest,
    steps: Steps,
    optimizing: Callable[[bool], None],
    facts: Dict[str, Any],
    sizes: GraphSizes,
) -> Dict[str, Attach]:
    """Return {module name: function to call after the module's import}."""
    layers = KerasLayers(steps)
    keras = {
        "keras.src.models.model": functools.partial(_watch_fit, facts, sizes),
        "keras.src.layers.rnn.lstm": functools.partial(layers.watch, "LSTM"),
        "keras.src.layers.rnn.gru": functools.partial(layers.watch, "GRU"),
    }
    module, name = split_step_function(request.step_function)
    if module is not None and name is not None:

        def mark(imported: Any) -> None:
            steps.functions += mark_attribute(imported, str(name), steps)

        return {**keras, module: mark}
    if name is not None:
        return dict(keras)
    jax = compiled.Program(
        steps,
        compiled.has_tracers,
        Recompilations(facts, compiled.jax_leaves, lambda f: f._cache_size(), every_value=False),
    )
    tensorflow = compiled.Program(
        steps,
        compiled.builds_a_graph,
        Recompilations(
            facts,
            compiled.tensorflow_leaves,
            lambda f: f.experimental_get_tracing_count(),
            every_value=True,
        ),
    )
    eager = "tensorflow.python.eager."
    updates = functools.partial(compiled.watch_updates, jax)
    functions = functools.partial(compiled.watch_functions, tensorflow, sizes)

    def watch_model(module: Any) -> None:
        _watch_fit(facts, sizes, module)
        _watch_train_on_batch(steps, module)

    return {
        **keras,
        "keras.src.models.model": watch_model,
        "keras.src.callbacks.callback_list": functools.partial(_watch_keras, steps),
        "keras.src.optimizers.base_optimizer": functools.partial(
            _watch_keras_optimizers, steps, {"jax": jax, "tensorflow": tensorflow}
        ),
        "torch.optim.optimizer": functools.partial(_watch_torch, steps, optimizing),
        "torch.autograd": _Backward(steps).watch,
        "jax": functools.partial(compiled.watch_jax, jax),
        "optax": updates,
        "equinox": updates,
        eager + "polymorphic_function.polymorphic_function": functions,
        eager + "def_function": functions,  # before TensorFlow 2.11
        eager + "backprop": functools.partial(compiled.watch_tapes, tensorflow),
        "tensorflow.python.client.session": functools.partial(_watch_sessions, steps, sizes),
    }


def _watch_torch(steps: Steps, optimizing: Callable[[bool], None], module: Any) -> None:
    """Let each call of an optimizer's ``step`` end a training step."""
    init = module.Optimizer.__init__
    stepping: Set[int] = set()

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        steps.optimizers += 1
        step = type(self).step
        # wrap ``step``, because PyTorch's own hooks run before the range ``Optimizer.step`` ends
        if not getattr(step, "watched", False):
            type(self).step = _watched(step, stepping, steps, optimizing)

    module.Optimizer.__init__ = made


def _watched(
    step: Any, stepping: Set[int], steps: Steps, optimizing: Callable[[bool], None]
) -> Any:
    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        # count only the outer call if an optimizer's ``step`` calls its parent class's ``step``
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
    """Make each training batch of Keras a step, by hooking into the callbacks."""
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
        # begin no step after an epoch's last batch, so that no step includes work between epochs
        steps.ends("keras", follows=of_epoch is not None and batch + 1 < of_epoch)
        return result

    of.on_train_batch_begin, of.on_train_batch_end = batch_begins, batch_ended


def _watch_train_on_batch(steps: Steps, module: Any) -> None:
    """Let each call of a Keras model's ``train_on_batch`` end a step."""
    train = module.Model.train_on_batch

    @functools.wraps(train)
    def trained(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = train(self, *args, **kwargs)
        steps.ends("keras", self)
        return result

    module.Model.train_on_batch = trained


def _watch_keras_optimizers(
    steps: Steps, programs: Dict[str, compiled.Program], module: Any
) -> None:
    """Let each ``apply`` of a Keras optimizer end a step, for custom loops."""
    apply = module.BaseOptimizer.apply

    @functools.wraps(apply)
    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = apply(self, *args, **kwargs)
        backend = sys.modules["keras"].config.backend()
        if backend in programs:
            programs[backend].trains(backend, self, list(self.variables))
        else:
            steps.ends(backend, self)
        return result

    module.BaseOptimizer.apply = applied


def _watch_sessions(steps: Steps, sizes: GraphSizes, module: Any) -> None:
    """Let each TensorFlow 1 ``Session.run`` that updates parameters end a step."""
    run = module.BaseSession.run
    trained_by: Dict[Any, Optional[str]] = {}

    def training_node(graph: Any, fetches: Any) -> Optional[str]:
        nodes = list(_fetched(graph, fetches))
        key = (id(graph), tuple(node.name for node in nodes))
        if key not in trained_by:
            trained_by[key] = next((node.name for node in nodes if _trains(node)), None)
        return trained_by[key]

    @functools.wraps(run)
    def ran(self: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, fetches, *args, **kwargs)
        name = None
        if steps.counts("tensorflow"):
            with contextlib.suppress(Exception):  # a fetch of an unknown kind
                name = training_node(self.graph, fetches)
        if name is not None:
            sizes.graph = self.graph
            steps.ends("tensorflow", name)
        return result

    module.BaseSession.run = ran


def _fetched(graph: Any, fetches: Any) -> Iterator[Any]:
    """Yield the graph nodes that ``Session.run`` fetches: ``{"ops": [train]}``."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        for fetch in fetches:
            yield from _fetched(graph, fetch)
        return
    sparse = getattr(fetches, "values", None)  # a tensor; for an op it is a method
    node = graph.as_graph_element(fetches if sparse is None or callable(sparse) else sparse)
    yield getattr(node, "op", node)


def _trains(node: Any) -> bool:
    """Return whether running this graph node updates parameters."""
    nodes, seen = [node], set()  # type: List[Any], Set[str]
    assigns = has_gradients = False
    while nodes:
        node = nodes.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        assigns |= bool(_ASSIGNS.fullmatch(node.type))
        has_gradients |= bool(_OF_GRADIENTS.search(node.name))
        if _UPDATES.fullmatch(node.type) or (assigns and has_gradients):
            return True
        nodes.extend(each.op for each in node.inputs)
        nodes.extend(node.control_inputs)
    return False


def _watch_fit(facts: Dict[str, Any], sizes: GraphSizes, module: Any) -> None:
    """Record the padding and the batch size of the data in Keras's ``fit``."""
    fit = module.Model.fit

    @functools.wraps(fit)
    def fitted(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        masks = any(getattr(layer, "mask_zero", False) for layer in getattr(self, "layers", ()))
        facts["padding"] = padding_of(x) if masks else None
        if hasattr(x, "shape"):
            batch = kwargs.get("batch_size") or (args[1] if len(args) > 1 else None)
            sizes.batch = batch or _KERAS_BATCH
        return fit(self, x, *args, **kwargs)

    module.Model.fit = fitted


def padding_of(x: Any) -> Any:
    """Return where tokens (batch, time) are padded: ``front``, ``behind`` or None."""
    if getattr(x, "ndim", None) != 2 or getattr(getattr(x, "dtype", None), "kind", "") not in "iu":
        return None
    first, last = (x[:_LOOKED_AT, place] == _FILLING for place in (0, -1))
    front, behind = (int((side & ~other).sum()) for side, other in ((first, last), (last, first)))
    if bool(front) == bool(behind):
        return None
    return "front" if front else "behind"


class _Backward:
    """Finds the steps of a PyTorch script without an optimizer, by gradient resets."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._parameter: Any = None
        self._resets: List[int] = []  # numbers of the passes before which gradients were reset
        self._passes = 0
        self._per_step = 0  # until their number per step is known, no step ends

    def watch(self, autograd: Any) -> None:
        backward = autograd.backward

        @functools.wraps(backward)
        def passed(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._steps.optimizers or not self._steps.counts("torch gradient"):
                return backward(tensors, *args, **kwargs)
            if not self._per_step:
                self._steps.safely(self._observe, tensors)
            result = backward(tensors, *args, **kwargs)
            self._ends()
            return result

        autograd.backward = passed

    def _observe(self, tensors: Any) -> None:
        """Note whether the script reset the gradients before this backward pass."""
        if self._parameter is None:
            loss = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
            self._parameter = next(_parameters(loss.grad_fn), None)
        gradient = getattr(self._parameter, "grad", None)
        if gradient is None or not bool((gradient != 0).any()):
            self._resets.append(self._passes)
        # count the passes after the second reset, because the first step may be incomplete
        if len(self._resets) == 3:
            self._per_step = self._resets[2] - self._resets[1]
            self._passes = 0
        elif self._passes - (self._resets or [0])[-1] >= _MOST_PASSES:
            self._per_step = 1

    def _ends(self) -> None:
        self._passes += 1
        if self._per_step and (self._passes - 1) % self._per_step == 0:
            self._steps.ends("torch gradient")


def _parameters(node: Any) -> Iterator[Any]:
    """Yield the parameters in an autograd graph."""
    nodes, seen = [node], set()  # type: List[Any], Set[Any]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        nodes.extend(following for following, _ in node.next_functions)

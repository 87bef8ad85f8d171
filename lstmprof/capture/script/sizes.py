"""Record the sizes of recurrent layers in TensorFlow.

The graph of a compiled step contains the sizes. In an eager step, lstmprof adds a range with the
sizes to each call of a Keras layer.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any, ContextManager, List, Optional

from lstmprof.capture.script.steps import Steps
from lstmprof.capture.worker.shapes import OpInputs

#: Keras layer class -> number of gates.
_GATES = {"LSTM": 4, "GRU": 3}
_NOTHING = contextlib.nullcontext()  # type: ContextManager[Any]


class GraphSizes:
    """Reads the input shapes of ops from the graph of the step."""

    def __init__(self) -> None:
        self.function: Any = None
        self.graph: Any = None  # the graph of a TensorFlow 1 session
        # batch size from Keras's ``fit``, because Keras's graph leaves the batch size open
        self.batch: Optional[int] = None

    def inputs(self) -> List[OpInputs]:
        """Return the ops' input shapes that all graphs of the step have in common."""
        from lstmprof.capture.worker.shapes import inputs_of, nodes_of

        traced: List[Any] = getattr(self.function, "_list_all_concrete_functions", list)()
        listed = [self.graph] if self.graph is not None else [each.graph for each in traced]
        graphs = [list(inputs_of(nodes_of(graph), self.batch)) for graph in listed]
        others = [{repr(inputs) for inputs in graph} for graph in graphs[1:]]
        return [
            inputs
            for inputs in (graphs[0] if graphs else ())
            if all(repr(inputs) in graph for graph in others)
        ]


class KerasLayers:
    """Puts ranges with sizes around Keras's LSTM and GRU in eager mode."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._calls = threading.local()  # ``within``: whether a layer runs now

    def watch(self, name: str, module: Any) -> None:
        for of in (getattr(module, name), getattr(module, name + "Cell")):
            of.__call__ = self._wrapped(of.__call__, name)

    def _wrapped(self, call: Any, name: str) -> Any:
        @functools.wraps(call)
        def called(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._steps.profiling or getattr(self._calls, "within", False):
                return call(layer, *args, **kwargs)
            with self._range(name, layer, args):
                self._calls.within = True
                try:
                    return call(layer, *args, **kwargs)
                finally:
                    self._calls.within = False

        return called

    def _range(self, name: str, layer: Any, args: Any) -> ContextManager[Any]:
        with contextlib.suppress(Exception):  # an input of an unusual kind
            tensorflow = sys.modules["tensorflow"]
            if tensorflow.executing_eagerly() and not tensorflow.is_symbolic_tensor(args[0]):
                inputs, outputs = list(args[0].shape), _GATES[name] * layer.units
                shapes = inputs, [inputs[-1], outputs], [layer.units, outputs]
                listed = (layer.compute_dtype + str(shape).replace(" ", "") for shape in shapes)
                title = "keras.layers.{} {}".format(name, layer.name)
                named: ContextManager[Any] = tensorflow.profiler.experimental.Trace(
                    title, shape="({})".format(";".join(listed))
                )
                return named
        return _NOTHING

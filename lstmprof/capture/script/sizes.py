"""Record the sizes of recurrent layers as op inputs, from calls of modules or from a graph.

A profile without shapes does not show the number of time steps of a layer. The input of the layer's
module shows it, and noting that costs one list entry per call. A compiled TensorFlow step has the
sizes in its graph. ``breakdown.recurrent`` reads these inputs as if the profiler had recorded them.
Source: torch/nn/modules/rnn.py.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, NamedTuple, Optional

from lstmprof.capture.worker.shapes import OpInputs, StepInputs

#: The profiler's name of the element type of a packed sequence's batch sizes.
_BATCH_SIZES = "long int"


class _LayerCall(NamedTuple):
    """One call of a recurrent module, in the profiled step number ``step``."""

    step: int
    module: Any
    shape: Any
    batch_sizes: Any  # for a packed sequence: the number of sequences per time step
    dtype: str


class ModuleSizes:
    """The calls of recurrent modules in profiled steps."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        rnn = torch.nn.modules.rnn
        self._recurrent = (rnn.RNNBase, rnn.RNNCellBase)
        self._calls: List[_LayerCall] = []

    def note(self, step: int, module: Any, arguments: Any) -> None:
        """Note that ``module`` is called with these arguments, if it is recurrent."""
        if not isinstance(module, self._recurrent) or not arguments:
            return
        data, batch_sizes = arguments[0], None
        if isinstance(data, self._torch.nn.utils.rnn.PackedSequence):
            data, batch_sizes = data.data, data.batch_sizes
        self._calls.append(_LayerCall(step, module, data.shape, batch_sizes, self._dtype(data)))

    def of_steps(self, first: int, count: int) -> Iterator[StepInputs]:
        """Yield (op name, shapes, types, step) of each recurrent op in ``count`` profiled steps
        from number ``first`` on; the yielded step counts from 0.
        """
        for call in self._calls:
            if first <= call.step < first + count:
                name, shapes, dtypes = (
                    _of_cell(call) if hasattr(call.module, "weight_ih") else _of_layer(call)
                )
                yield name, shapes, dtypes, call.step - first

    def _dtype(self, data: Any) -> str:
        """Return the type in which the op computes, as the profiler names it: ``float16``."""
        dtype = data.dtype
        with contextlib.suppress(Exception):  # autocast has had several interfaces
            kind = data.device.type
            if self._torch.is_autocast_enabled(kind):
                dtype = self._torch.get_autocast_dtype(kind)
        return str(dtype).replace("torch.", "")


class GraphSizes:
    """The inputs of the nodes of the ``tf.function`` that is the step, or of a session's graph."""

    def __init__(self) -> None:
        self.function: Any = None
        self.graph: Any = None  # the graph of a TensorFlow 1 session
        # batch size given to Keras's fit, because its graph leaves the batch size open
        self.batch: Optional[int] = None

    def inputs(self) -> List[OpInputs]:
        """Return the inputs of ops that are equal in all graphs of the function.

        TensorFlow may trace a function several times, which makes several graphs.
        """
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


def _of_layer(call: _LayerCall) -> OpInputs:
    """Return (op name, shapes, types) of ``aten::lstm`` or a similar op; its inputs are data,
    states, weights.
    """
    module, data = call.module, list(call.shape)
    weights = [list(weight.shape) for layer in module.all_weights for weight in layer]
    directions = 2 if module.bidirectional else 1
    width = getattr(module, "proj_size", 0) or module.hidden_size
    shapes, dtypes = [data], [call.dtype]  # type: List[Any], List[str]
    if call.batch_sizes is not None:
        batch = int(call.batch_sizes[0])
        shapes.append(list(call.batch_sizes.shape))
        dtypes.append(_BATCH_SIZES)
    elif len(data) == 3:
        batch = data[0 if module.batch_first else 1]
    else:  # a single sequence, which the op gets as a batch of one
        batch, place = 1, 0 if module.batch_first else 1
        data.insert(place, 1)
    state = [module.num_layers * directions, batch, width]
    memory = [*state[:2], module.hidden_size]
    shapes += [[state, memory] if module.mode == "LSTM" else state, weights]
    return "aten::" + module.mode.lower(), shapes, dtypes


def _of_cell(call: _LayerCall) -> OpInputs:
    """Return (op name, shapes, types) of ``aten::lstm_cell`` or a similar op; its inputs are data,
    state, two weights.
    """
    module, data = call.module, list(call.shape)
    if len(data) == 1:  # a single input, which the op gets as a batch of one
        data.insert(0, 1)
    state: Any = [data[0], module.hidden_size]
    weights = [list(weight.shape) for weight in (module.weight_ih, module.weight_hh)]
    gates = weights[0][0] // module.hidden_size
    kind = {4: "lstm", 3: "gru"}.get(gates) or "rnn_" + module.nonlinearity
    shapes = [data, [state, state] if kind == "lstm" else state, *weights]
    return "aten::{}_cell".format(kind), shapes, [call.dtype]

"""Record the sizes of recurrent layers and embeddings from calls of PyTorch's modules.

A profile without shapes does not show how many time steps a layer has. The shape of the layer's
input shows the number, and costs only one list entry per call. Source: torch/nn/modules/rnn.py.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lstmprof.capture.worker.shapes import OpInputs, StepInputs

#: Element type of a packed sequence's ``batch_sizes``, as PyTorch's profiles name the type.
_BATCH_SIZES = "long int"


class _LayerCall(NamedTuple):
    """One call of a recurrent or embedding module in a profiled step."""

    step: int
    module: Any
    shape: Any
    batch_sizes: Any  # sequences per time step, of a packed sequence
    dtype: str


class ModuleSizes:
    """Records sizes at each call of PyTorch's recurrent and embedding modules."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        names = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "Embedding")
        self._modules = [getattr(torch.nn, name) for name in names]
        self._calls: list[_LayerCall] = []
        self._begun = self._ended = 0  # profiled steps
        self._undo: list[Callable[[], None]] = []
        self._thread: int | None = None

    def step_begins(self, profiling: bool) -> None:
        """Record the modules' calls if this step is profiled, else stop recording."""
        if not profiling:
            self.close()
            return
        self._begun += 1
        # add no wrappers after torch.compile, because torch.compile would recompile the model
        if not self._undo and not has_compiled():
            self._thread = threading.get_ident()
            for module in self._modules:
                self._undo.append(functools.partial(setattr, module, "forward", module.forward))
                # wrap ``forward``, because hooks miss direct calls of ``forward``, as in AWD-LSTM
                module.forward = self._noted(module.forward)

    def step_ends(self) -> None:
        self._ended = self._begun

    def close(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _noted(self, forward: Any) -> Any:
        @functools.wraps(forward)
        def called(module: Any, *arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == self._thread:
                with contextlib.suppress(Exception):  # the training goes on without this size
                    self._add(module, arguments or tuple(named.values()))
            return forward(module, *arguments, **named)

        return called

    def _add(self, module: Any, arguments: Any) -> None:
        data, batch_sizes = arguments[0], None
        if isinstance(data, self._torch.nn.utils.rnn.PackedSequence):
            data, batch_sizes = data.data, data.batch_sizes
        dtype = self._dtype(data)
        self._calls.append(_LayerCall(self._begun, module, data.shape, batch_sizes, dtype))

    def inputs(self, count: int, later: int) -> Iterator[StepInputs]:
        """Yield (op, input shapes, dtypes, step) of the calls in the run's profiled steps."""
        # compute the run's first profiled step; the last ``later`` steps are not in the run
        first = self._ended - later - count + 1
        for call in self._calls:
            if first <= call.step < first + count:
                op = _cell_op if hasattr(call.module, "weight_ih") else _layer_op
                op = _look_up if hasattr(call.module, "num_embeddings") else op
                name, shapes, dtypes = op(call)
                yield name, shapes, dtypes, call.step - first

    def _dtype(self, data: Any) -> str:
        """Return the op's compute type in the profiler's spelling, such as ``float16``."""
        dtype = data.dtype
        with contextlib.suppress(Exception):  # autocast has had several interfaces
            kind = data.device.type
            if self._torch.is_autocast_enabled(kind):
                dtype = self._torch.get_autocast_dtype(kind)
        return str(dtype).replace("torch.", "")


def _layer_op(call: _LayerCall) -> OpInputs:
    """Return (op, input shapes, dtypes) of a layer's call, as in a PyTorch profile."""
    module, data = call.module, list(call.shape)
    weights = [list(weight.shape) for layer in module.all_weights for weight in layer]
    directions = 2 if module.bidirectional else 1
    width = getattr(module, "proj_size", 0) or module.hidden_size
    shapes: list[Any] = [data]
    dtypes = [call.dtype]
    if call.batch_sizes is not None:
        batch = int(call.batch_sizes[0])
        shapes.append(list(call.batch_sizes.shape))
        dtypes.append(_BATCH_SIZES)
    elif len(data) == 3:
        batch = data[0 if module.batch_first else 1]
    else:  # a single sequence: the op gets a batch of one
        batch, place = 1, 0 if module.batch_first else 1
        data.insert(place, 1)
    state = [module.num_layers * directions, batch, width]
    memory = [*state[:2], module.hidden_size]
    # add two numbers for which PyTorch's profiler records only empty shapes
    counts = [module.num_layers, directions]
    shapes += [[state, memory] if module.mode == "LSTM" else state, weights, counts]
    return "aten::" + module.mode.lower(), shapes, dtypes


def _look_up(call: _LayerCall) -> OpInputs:
    """Return (op, input shapes, dtypes) of an embedding, as in a PyTorch profile."""
    weight = call.module.weight
    dtypes = [str(weight.dtype).replace("torch.", ""), call.dtype]
    return "aten::embedding", [list(weight.shape), list(call.shape)], dtypes


def _cell_op(call: _LayerCall) -> OpInputs:
    """Return (op, input shapes, dtypes) of a cell's call, as in a PyTorch profile."""
    module, data = call.module, list(call.shape)
    if len(data) == 1:  # a single input: the op gets a batch of one
        data.insert(0, 1)
    state: Any = [data[0], module.hidden_size]
    weights = [list(weight.shape) for weight in (module.weight_ih, module.weight_hh)]
    gates = weights[0][0] // module.hidden_size
    kind = {4: "lstm", 3: "gru"}.get(gates) or "rnn_" + module.nonlinearity
    shapes = [data, [state, state] if kind == "lstm" else state, *weights]
    return f"aten::{kind}_cell", shapes, [call.dtype]


def has_compiled() -> bool:
    """Return whether torch.compile has compiled something in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))

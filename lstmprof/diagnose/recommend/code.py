"""Python code that builds an implementation's network, for users to paste into their program.

The code imports lstmprof only if no template fits the implementation and the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

from lstmprof import implementations
from lstmprof.diagnose.recommend import templates
from lstmprof.workloads import Workload

_AS_BUILT = """\
from lstmprof.implementations.$folder import $module
from lstmprof.workloads import Workload

workload = Workload(
$fields)
network = $module.build(workload)  # the file lstmprof/implementations/$folder/$module.py
"""

#: Features of a network beyond one forward LSTM layer with a head: ``layers``, ``gru``…
_Extras = frozenset[str]
_ONE: _Extras = frozenset()
_FORWARD: _Extras = _ONE | {"layers"}
_LSTMS: _Extras = _FORWARD | {"directions"}
_WITH_HEAD: _Extras = _LSTMS | {"gru"}
_ALL: _Extras = _WITH_HEAD | {"rnn", "no head"}

#: Implementation → (template of its code, features that the template supports, such as ``gru``).
TEMPLATES: Mapping[str, tuple[str, _Extras]] = {
    "torch-lstmcell-basic": (templates.BY_HAND, _ONE),
    "torch-lstmcell-fused": (templates.CELL, _ONE),
    "torch-nn-lstm": (templates.LAYER, _ALL),
    "torch-script": (templates.SCRIPTED, _ONE),
    "torch-compile": (templates.COMPILED_CELL, _ONE),
    "torch-compile-layer": (templates.COMPILED_LAYER, _ALL),
    "torch-aot-inductor": (templates.EXPORTED_LAYER, _ALL),
    "tf-lstmcell": (templates.WHILE_LOOP, _ONE),
    "tf-basiclstmcell": (templates.DYNAMIC_RNN, _ONE),
    "tf-lstmblockcell": (templates.BLOCK_CELL, _ONE),
    "tf-lstmblockfusedcell": (templates.BLOCK_LAYER, _ONE),
    "tf-cudnnlstm": (templates.CUDNN_LAYER, _LSTMS),
    "keras-lstm": (templates.KERAS, _ALL),
    "keras-lstm-mode1": (templates.KERAS, _ALL),
    "keras-lstm-mode2": (templates.KERAS, _ALL),
    "jax-scan": (templates.SCAN, _ONE),
    "flax-lstm": (templates.FLAX, _WITH_HEAD),
    "equinox-lstm": (templates.EQUINOX, _ONE),
    "haiku-lstm": (templates.HAIKU, _FORWARD),
    "jax-cudnn": (templates.CUDNN, _LSTMS),
    "keras-torch-lstm": (templates.KERAS, _ALL),
    "keras-jax-lstm": (templates.KERAS, _ALL),
    "pytensor-scan": (templates.PYTENSOR, _ONE),
    "onnxruntime-lstm": (templates.ONNX_RUNTIME, _ONE),
    "openvino-lstm": (templates.OPENVINO, _ONE),
}
#: Implementation → more arguments for its Keras layer, as code.
_MODES = {f"keras-lstm-mode{mode}": f", implementation={mode}, use_cudnn=False" for mode in (1, 2)}


def code_of(implementation: str, workload: Workload) -> str:
    """Return Python code that builds the network with this implementation."""
    row = implementations.ROWS.get(implementation)
    if row is None:
        return f"# {implementation} is your own file: it has the code\n"
    template, supported = TEMPLATES.get(row.name, ("", _ALL))
    plain = not workload.vocabulary and not workload.variable_length
    if not template or not plain or not _extras(workload) <= supported:
        return _as_built(row.file, workload)
    return Template(template).substitute(_values(row.name, row.framework, workload))


def _extras(w: Workload) -> set[str]:
    """Return features beyond one forward LSTM layer with a head: ``{"gru"}``."""
    has = {"layers": w.layers > 1, "directions": w.bidirectional, "no head": not w.head}
    return {extra for extra, is_there in has.items() if is_there} | {w.cell} - {"lstm"}


def _as_built(file: str, workload: Workload) -> str:
    folder, _, module = file.rpartition(".")
    folder, module = (folder, module) if folder else (file, "__init__")
    given = [f"{name}={value!r}" for name, value in vars(workload).items() if value is not None]
    lines = [", ".join(given[at : at + 4]) for at in range(0, len(given), 4)]
    fields = "".join(f"    {line},\n" for line in lines)
    return Template(_AS_BUILT).substitute(folder=folder, module=module, fields=fields)


def _values(name: str, framework: str, w: Workload) -> dict[str, object]:
    cell, width = w.cell.upper(), w.directions * w.hidden
    head = f"torch.nn.Linear({width}, {w.classes}, bias=False)"
    return {
        "cell": cell,
        "width": width,
        "batch": w.batch,
        "directions": w.directions,
        "direction": "bidirectional" if w.bidirectional else "unidirectional",
        "cudnn_size": _cudnn_size(w),
        "features": w.features,
        "hidden": w.hidden,
        "layers": w.layers,
        "bidirectional": w.bidirectional,
        "classes": w.classes,
        "time_steps": w.time_steps,
        "torch_head": head if w.head else "torch.nn.Identity()",
        "seen": "outputs" if w.every_step else "outputs[-1]",
        "seen_batch_major": "outputs" if w.every_step else "outputs[:, -1]",
        "stacked": "torch.stack(outputs)" if w.every_step else "h",
        "tf_stacked": "outputs.stack()" if w.every_step else "h",
        "equinox_head": (
            "jax.vmap(self.head)(outputs)" if w.every_step else "self.head(outputs[-1])"
        ),
        # ONNX's LSTM returns all time steps, then the last time step; "" skips an output
        "onnx_outputs": '["seen"]' if w.every_step else '["", "seen"]',
        "onnx_axis": int(w.every_step),
        "backend": framework,
        "keras_layers": "\n".join(_keras_layers(name, w)),
        "flax_layer": _flax_layer(w),
    }


def _cudnn_size(w: Workload) -> int:
    """Count the numbers in cuDNN's weight array, with its two biases per gate."""
    inputs = [w.features, *(w.directions * w.hidden for _ in range(w.layers - 1))]
    return sum(w.directions * 4 * w.hidden * (size + w.hidden + 2) for size in inputs)


def _keras_layers(name: str, w: Workload) -> list[str]:
    called = {"lstm": "LSTM", "gru": "GRU", "rnn": "SimpleRNN"}[w.cell]
    mode = _MODES.get(name, "") if w.cell != "rnn" else ""
    lines = []
    for number in range(w.layers):
        every = w.every_step or number < w.layers - 1
        layer = f"keras.layers.{called}({w.hidden}, return_sequences={every}{mode})"
        lines.append(
            f"    keras.layers.Bidirectional({layer})," if w.bidirectional else f"    {layer},"
        )
    head = [f"    keras.layers.Dense({w.classes}, use_bias=False),"] if w.head else []
    return lines + head


def _flax_layer(w: Workload) -> str:
    cell = {"lstm": "OptimizedLSTMCell", "gru": "GRUCell"}.get(w.cell, "SimpleCell")
    layer = f"linen.RNN(linen.{cell}({w.hidden}))"
    return f"linen.Bidirectional({layer}, {layer})" if w.bidirectional else layer

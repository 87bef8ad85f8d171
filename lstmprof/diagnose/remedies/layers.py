"""What a recurrent layer can do otherwise: in one op, on cuDNN, on its fast kernels.

Why a layer does not run on cuDNN, or not on its fast kernels, is told by the conditions of the
documentation of keras.layers.LSTM and GRU ("requirements to use the cuDNN implementation"), of
torch/nn (``_cudnn_rnn``: packed sequences) and of use_persist_common_heuristics and
use_rnn_persist_small_h in aten/src/ATen/native/cudnn/RNN.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lstmprof import implementations
from lstmprof.diagnose.counts import counted
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import Told, each, often, times_called, total
from lstmprof.diagnose.step_profile import StepProfile, labels, total_ns
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP
from lstmprof.numbers import count, cropped, listed, milliseconds
from lstmprof.runs.metadata import WorkloadInfo

_INDEXING = re.compile(r"(?:Select|Slice|Index)Backward|aten::(?:select|slice)_backward")
#: So many backward passes of indexing into tensors of one shape are those of a loop.
_LOOPED = 8
#: Ops that compute one time step of a cell, as every framework names them.
_CELL_OP = re.compile(
    r"(?:^|:)_?(?:thnn_fused_)?(?:lstm|gru|rnn_(?:tanh|relu))_cell$|\b(?:LSTM|GRU)BlockCell"
)
#: A cell in TensorFlow's loop over time steps, its own or Keras's.
_CELL_IN_LOOP = re.compile(r"while/.*\b(?:basic_)?(?:lstm|gru)_cell\w*/")
#: Of each framework what runs a layer in one op: on a GPU, on a CPU; our row, the user's word.
_ONE_OP = {
    "torch": (("torch-cudnn", "torch.nn.LSTM"),) * 2,
    "tensorflow": (
        ("tf-cudnnlstm", "keras.layers.LSTM under its cuDNN conditions"),
        ("tf-lstmblockfusedcell", "BlockLSTM (LSTMBlockFusedCell in TensorFlow 1)"),
    ),
}
#: What an op inside a cell of Keras says of the layer's options.
_KERAS = (
    (
        r"(?:lstm|gru)_cell\w*/(?:hard_sigmoid|clip_by_value|Relu6)",
        "recurrent_activation='sigmoid'",
    ),
    (r"(?:lstm|gru)_cell\w*/(?:Relu|Elu|Selu|Softplus|Softsign)\b", "activation='tanh'"),
    (r"(?:lstm|gru)_cell\w*/.*(?:dropout|random_uniform)", "recurrent_dropout=0"),
)
_UNROLLED = re.compile(r"(?<![a-z_])(?:lstm|gru)_cell_\d+/")
_LOOP = re.compile(r"(?:lstm|gru)\w*/.*while", re.IGNORECASE)
#: A cell of Keras; TensorFlow's own are called basic_lstm_cell or stand in a scope rnn.
_KERAS_CELL = re.compile(r"(?<![a-z_])(?:lstm|gru)_cell\w*/")
_LAYER = re.compile(r"aten::(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)")
#: torch's limits of hidden units for cuDNN's kernels that keep small layers' weights (LSTM, GRU).
_SMALL = {"forward": 192, "train": 128}


def keras_without_cudnn(f: Finding) -> Told | None:
    """A layer of Keras on a GPU fails conditions of its cuDNN path."""
    unmet = unmet_by_keras(f.slow)
    return Told(f"Keras runs this layer on cuDNN only with {listed(unmet)}") if unmet else None


def layer_in_one_op(f: Finding) -> Told | None:
    """The cells run one by one where the framework has the whole layer in one op."""
    one_op = _ONE_OP.get(f.slow.framework or "")
    if one_op is None or form_of(f.slow) not in (LOOP, CELL_OP):
        return None
    fused = [c for c in f.fast.contributors if c.part == "rnn"] if f.fast else []
    example = ""
    if f.fast and fused:
        names = listed(sorted({cropped(str(c.name)) for c in fused})[:2])
        took = milliseconds(total_ns(fused))
        example = f"; of {labels(f.fast, f.slow)[0]} {names} take {took} ms{each(f.fast)}"
    row, word = one_op[f.slow.device is None]
    if f.slow.implementation is None:
        unless = "unless the output of a time step is the input of the next"
        return Told(f"{word} runs all time steps of a layer in one op, {unless}{example}")
    return Told(f"run all time steps of a layer in one op: {row}, {word}{example}")


def form_of(profile: StepProfile) -> str | None:
    """How a run computes its layers: by its row, or by its ops; None where neither tells."""
    row = implementations.ROWS.get(profile.implementation or "")
    if row is not None:
        return row.form_on("cpu" if profile.device is None else "cuda")
    if any(_CELL_OP.search(op["name"]) for op in profile.rows("ops")):
        return CELL_OP
    if any(_CELL_IN_LOOP.search(op["name"]) for op in profile.rows("ops")):
        return LOOP
    return LAYER_OP if any(c.part == "rnn" for c in profile.contributors) else None


def products_to_hoist(f: Finding) -> Told | None:
    """So many products a cell that the inputs' are among them: they depend on no earlier step.

    Only who writes the cell can take them out of it.
    """
    needed = 1 if f.slow.info.mode == "forward" else 2
    products = each_cell(f.slow, "products")
    if products < needed + 0.9 or not _written_by_hand(f.slow):
        return None
    after = "" if needed == 1 else ", and those of the weights' gradients in one after it"
    return Told(
        f"it has {count(products)} products a time step where {needed} depend on the time step "
        f"before: take the inputs' product of all time steps at once before the loop{after}"
    )


def _written_by_hand(profile: StepProfile) -> bool:
    row = implementations.ROWS.get(profile.implementation or "")
    return row is not None and row.by_hand


def each_cell(profile: StepProfile, name: str) -> float:
    """A count for each cell; 0 unknown."""
    return counted(profile, name) / profile.cells if profile.cells else 0.0


def indexed_time_steps(f: Finding) -> Told | None:
    """The backward pass of indexing fills a whole gradient with zeros in every time step."""
    ops = f.slow.rows("ops")
    calls = next((r for r in ops if r["name"] == "aten::select_backward"), None)
    if calls is None or not any(_INDEXING.search(r["name"]) for r in ops):
        return None
    times, steps = calls["count"] / f.slow.steps, f.slow.time_steps
    looped = times >= steps - 1 if steps else f.slow.seen.selected >= _LOOPED
    if not looped:
        return None
    spent = "host_total_ns" if f.slow.device is None else "device_total_ns"
    took = calls.get(spent)
    return Told(
        "x[t] in the loop has a backward pass that fills and adds a whole sequence in every time "
        "step: take x.unbind(0) once before the loop",
        None if took is None else round(took / f.slow.steps),
    )


def unfused_cell(f: Finding) -> Told | None:
    """A torch cell of separate operators, five or more of them a time step."""
    pointwise = each_cell(f.slow, "pointwise")
    if not _written_by_hand(f.slow) or form_of(f.slow) != LOOP or pointwise < 5:
        return None
    fused = "torch.nn.LSTMCell does them in one kernel" if f.slow.device is not None else ""
    compiled = "torch.compile fuses them (torch-compile)"
    how = f"{fused}, {compiled}" if fused else compiled
    return Told(f"the cell has {count(pointwise)} element-by-element ops a time step: {how}")


def weights_copied(f: Finding) -> Told | None:
    """The weights of a layer are copied together inside its op: four a layer or more a call."""
    copies = [h for h in f.slow.seen.weights if h.within]
    calls = sum(
        r["count"] for r in f.slow.rows("ops") if r["name"] in {h.within for h in copies}
    ) / max(f.slow.steps, 1)
    if not copies or not calls or sum(h.count for h in copies) < 4 * calls:
        return None
    times = often(f.slow, sum(h.count for h in copies))
    return Told(
        f"{copies[0].within} copies its weights together at every call ({times}): call "
        "flatten_parameters() once the model is on its device, and share no weights between "
        "layers",
        total(copies),
    )


def packed_sequences(f: Finding) -> Told | None:
    """A packed sequence on a CPU leaves the layer's own op: a product a time step, and copies."""
    if f.slow.device is not None or not f.slow.seen.packed or times_called(f.slow, _LAYER):
        return None
    return Told(
        "a packed sequence is computed time step by time step on a CPU: pad the sequences, "
        "in batches of similar length, and oneDNN runs the layer in one op"
    )


def persistent_kernels(f: Finding) -> Told | None:
    """cuDNN took its standard kernels: which of the persistent ones' conditions fail."""
    unmet = unmet_by_persistent_kernels(f.slow)
    return Told(f"cuDNN's persistent kernels would need {listed(unmet)}") if unmet else None


def unmet_by_keras(profile: StepProfile) -> list[str]:
    """The conditions of Keras's cuDNN path that this run's layers do not meet; none where met."""
    if profile.device is None:
        return []
    row = implementations.ROWS.get(profile.implementation or "")
    if row is not None and row.library == "keras" and row.form_on("cuda") == LOOP:
        return ["use_cudnn='auto'"]
    names = [row["name"] for row in profile.rows("ops")]
    cells = [name for name in names if _KERAS_CELL.search(name)]
    wants = [want for pattern, want in _KERAS if any(re.search(pattern, name) for name in cells)]
    if any(_UNROLLED.search(n) for n in cells) and not any(_LOOP.search(n) for n in names):
        wants.append("unroll=False")
    return wants


def unmet_by_persistent_kernels(profile: StepProfile) -> list[str]:
    """Why nn.LSTM on cuDNN takes its standard kernels, by torch's own conditions."""
    info, workload = profile.info, profile.info.workload
    by_torch = info.framework == "torch" and info.kernels_used == "cuDNN"
    if profile.device is None or not by_torch or not workload:
        return []
    if any(c.part == "rnn" and c.family == "persistent" for c in profile.contributors):
        return []
    if workload.variable_length:
        return ["sequences of one length: packed ones always take the standard kernels"]
    small = (workload.hidden or 0) <= _SMALL.get(str(info.mode), 0)
    return [] if small else list(_persistent(workload, str(info.precision)))


def _persistent(workload: WorkloadInfo, precision: str) -> Iterator[str]:
    if "fp16" not in precision:
        yield f"float16 (this is {precision})"
    if workload.layers != 1 or workload.bidirectional:
        yield "one layer in one direction"
    for name, size in (("hidden", workload.hidden), ("features", workload.features)):
        if size is not None and size % 128:
            yield f"{name} a multiple of 128 (it is {size})"
    if workload.hidden is not None and workload.hidden > 1024:
        yield f"at most 1,024 hidden units (it has {workload.hidden:,})"

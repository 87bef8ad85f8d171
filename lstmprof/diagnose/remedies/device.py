"""What a run shows of its work that a remedy answers: one function a remedy.

Each reads the facts of the run, the counts and the largest contributors of the finding; it says
nothing where these do not show its condition. Why a recurrent layer does not run on cuDNN, or not
on its fast kernels, is told by the conditions of the documentation of keras.layers.LSTM and GRU
("requirements to use the cuDNN implementation"), of torch/nn (``_cudnn_rnn``: packed sequences) and
of use_persist_common_heuristics in aten/src/ATen/native/cudnn/RNN.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lstmprof import implementations
from lstmprof.diagnose.counts import counted
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.step_profile import StepProfile, labels, total_ns
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP
from lstmprof.numbers import count, cropped, listed, milliseconds, times_a_step
from lstmprof.runs.metadata import WorkloadInfo

#: GPUs with TF32: compute capability 8.0 and later.
_AMPERE = re.compile(r"\b(?:A100|A10|A30|A40|H100|H200|B200|L4|L40|RTX (?:A\d|[3-5]0\d\d))")
_INDEXING = re.compile(r"(?:Select|Slice|Index)Backward|aten::(?:select|slice)_backward")
#: Ops that compute one time step of a cell, as every framework names them.
_CELL_OP = re.compile(
    r"(?:^|:)_?(?:thnn_fused_)?(?:lstm|gru|rnn_(?:tanh|relu))_cell$|\b(?:LSTM|GRU)BlockCell"
)
#: Of each framework the row that runs a layer in one op: on a GPU, on a CPU.
_ONE_OP = {
    "torch": ("torch-cudnn (torch.nn.LSTM)",) * 2,
    "tensorflow": (
        "tf-cudnnlstm, or keras.layers.LSTM under its cuDNN conditions",
        "tf-lstmblockfusedcell (BlockLSTM)",
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
_UNROLLED = re.compile(r"(?:lstm|gru)_cell_\d+/")
_LOOP = re.compile(r"(?:lstm|gru)\w*/.*while", re.IGNORECASE)
_KERAS_CELL = re.compile(r"(?:lstm|gru)_cell\w*/", re.IGNORECASE)


def keras_without_cudnn(f: Finding) -> str | None:
    """A layer of Keras on a GPU fails conditions of its cuDNN path."""
    unmet = unmet_by_keras(f.slow)
    return f"Keras runs this layer on cuDNN only with {listed(unmet)}" if unmet else None


def layer_in_one_op(f: Finding) -> str | None:
    """The cells run one by one where the framework has the whole layer in one op."""
    one_op = _ONE_OP.get(str(f.slow.info.framework))
    if one_op is None or form_of(f.slow) not in (LOOP, CELL_OP):
        return None
    fused = [c for c in f.fast.contributors if c.part == "rnn"] if f.fast else []
    example = ""
    if f.fast and fused:
        names = listed(sorted({cropped(str(c.name)) for c in fused})[:2])
        took = milliseconds(total_ns(fused))
        example = f"; of {labels(f.fast, f.slow)[0]} {names} take {took} ms a step"
    row = one_op[f.slow.device is None]
    return f"run all time steps of a layer in one op: {row}{example}"


def form_of(profile: StepProfile) -> str | None:
    """How a run computes its layers: by its row, or by its ops; None where neither tells."""
    row = implementations.ROWS.get(profile.implementation or "")
    if row is not None:
        return row.form_on("cpu" if profile.device is None else "cuda")
    if any(_CELL_OP.search(op["name"]) for op in profile.rows("ops")):
        return CELL_OP
    return LAYER_OP if any(c.part == "rnn" for c in profile.contributors) else None


def products_to_hoist(f: Finding) -> str | None:
    """So many products a cell that the inputs' are among them: they depend on no earlier step."""
    needed = 1 if f.slow.info.mode == "forward" else 2
    each = _each_cell(f, "products")
    if each < needed + 0.9 or form_of(f.slow) == LAYER_OP:
        return None
    after = "" if needed == 1 else ", and those of the weights' gradients in one after it"
    return (
        f"it has {count(each)} products a time step where {needed} depend on the step before: take "
        f"the inputs' product of all time steps at once before the loop{after}"
    )


def _each_cell(f: Finding, name: str) -> float:
    """A count of the slow run for each cell; 0 unknown."""
    return counted(f.slow, name) / f.slow.cells if f.slow.cells else 0.0


def repeated_products(f: Finding) -> str | None:
    """The same implementation does the same product more often than in the other run."""
    grown = f.repeated
    if grown is None:
        return None
    calls = f"{count(grown.slow_count)} times a step against {count(grown.fast_count)}"
    return f"{cropped(grown.name)} runs {calls}: look for a product that is computed again"


def indexed_time_steps(f: Finding) -> str | None:
    """The backward pass of indexing fills a whole gradient with zeros in every time step."""
    indexing = [r["name"] for r in f.slow.rows("ops") if _INDEXING.search(r["name"])]
    calls = [r for r in f.slow.rows("ops") if r["name"] == "aten::select_backward"]
    steps = f.slow.time_steps
    if not indexing or not calls or not steps or calls[0]["count"] / f.slow.steps < steps - 1:
        return None
    return (
        "x[t] in the loop has a backward pass that fills and adds a whole sequence in every time "
        "step: take x.unbind(0) once before the loop"
    )


def unfused_cell(f: Finding) -> str | None:
    """A torch cell of separate operators, five or more of them a time step."""
    each, row = _each_cell(f, "pointwise"), implementations.ROWS.get(f.slow.implementation or "")
    by_hand = row is not None and row.framework == "torch" and not row.library
    if not by_hand or form_of(f.slow) != LOOP or each < 5:
        return None
    fused = "torch.nn.LSTMCell has them in one kernel" if f.slow.device is not None else ""
    compiled = "torch.compile fuses them (torch-compile)"
    how = f"{fused}, {compiled}" if fused else compiled
    return f"the cell has {count(each)} element-by-element ops a time step: {how}"


def optimizer(f: Finding) -> str | None:
    """Much of it is the optimizer, parameter by parameter, in PyTorch."""
    optimizing = [c for c in f.contributors if c.part == "optimizer" or c.purpose == "optimizer"]
    if f.slow.info.framework != "torch" or 2 * total_ns(optimizing) < total_ns(f.contributors):
        return None
    return "most of it is the optimizer: torch.optim's fused=True updates all parameters in one go"


def casts_each_time_step(f: Finding) -> str | None:
    """Automatic mixed precision casts in every time step what does not change between them."""
    each = counted(f.slow, "casts") / (f.slow.time_steps or float("inf"))
    if not str(f.slow.info.precision).startswith("amp") or each < 1:
        return None
    return (
        f"autocast casts {count(each)} times a time step: cast weights and inputs once before the "
        "loop, or keep the weights in half precision"
    )


def casts(f: Finding) -> str | None:
    """Who casts from what to what, the largest."""
    rows = sorted(f.slow.rows("casts"), key=lambda row: -row["total_ns"])
    if not rows:
        return None
    row = rows[0]
    types = f" from {row['from_dtype']} to {row['to_dtype']}" if row["to_dtype"] else ""
    op, times = (
        cropped(row["op"] or "work of an unknown op"),
        times_a_step(row["count"] / f.slow.steps),
    )
    within = f" in {cropped(row['within'])}" if row["within"] else ""
    return f"{op}{within} casts{types} {times}: keep one element type there"


def contiguous(f: Finding) -> str | None:
    """Copies to another layout, by the op that makes them."""
    moved = [c for c in f.contributors if c.purpose == "layout" and c.name and not c.call_overhead]
    if not moved:
        return None
    most = max(moved, key=lambda c: c.ns)
    return (
        f"{cropped(str(most.name))} moves elements {times_a_step(most.count)} and "
        "computes nothing: keep the tensor in the layout in which it is read, or move it once "
        "before the loop"
    )


def tf32(f: Finding) -> str | None:
    """Float32 products on a GPU that has TF32, which is off."""
    info = f.slow.info
    named = f"{info.device_name} {' '.join(info.device_names.values())}"
    if info.precision != "fp32" or f.slow.device is None or not _AMPERE.search(named):
        return None
    return "these are float32 products: --precision tf32 or amp-bf16 runs them on the tensor cores"


def persistent_kernels(f: Finding) -> str | None:
    """cuDNN took its standard kernels: which of the persistent ones' conditions fail."""
    unmet = unmet_by_persistent_kernels(f.slow)
    return f"cuDNN's persistent kernels would need {listed(unmet)}" if unmet else None


def native_ctc(f: Finding) -> str | None:
    """PyTorch's own CTC kernels ran on a GPU where cuDNN has one."""
    if not any("ctc_loss_log_alpha" in (c.name or "") for c in f.contributors):
        return None
    return (
        "cuDNN's CTC needs int32 targets on the CPU, concatenated, full-length inputs and blank 0"
    )


def denormals(f: Finding) -> str | None:
    """A CPU that computes with denormal numbers."""
    if f.slow.device is not None or f.slow.info.denormals_flushed is not False:
        return None
    return "denormal numbers were not flushed to zero: torch.set_flush_denormal(True)"


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
    return list(_persistent(workload, str(info.precision)))


def _persistent(workload: WorkloadInfo, precision: str) -> Iterator[str]:
    if workload.variable_length:
        yield "sequences of one length: packed ones always take the standard kernels"
    if "fp16" not in precision:
        yield f"float16 (this is {precision})"
    if workload.layers != 1 or workload.bidirectional:
        yield "one layer in one direction"
    for name, size in (("hidden", workload.hidden), ("features", workload.features)):
        if size is not None and size % 128:
            yield f"{name} a multiple of 128 (it is {size})"

"""What a run shows of its work that a remedy answers: one function a remedy.

Each reads the facts of the run, the counts and the largest contributors of the finding; it says
nothing where these do not show its condition.
"""

from __future__ import annotations

import re

from lstmprof.diagnose.remedies import cudnn
from lstmprof.diagnose.remedies.situation import Situation
from lstmprof.diagnose.step_profile import labels, total_ns
from lstmprof.numbers import count, listed, milliseconds, short_name, times_a_step

#: GPUs with TF32: compute capability 8.0 and later.
_AMPERE = re.compile(r"\b(?:A100|A10|A30|A40|H100|H200|B200|L4|L40|RTX (?:A\d|[3-5]0\d\d))")
_INDEXING = re.compile(r"(?:Select|Slice|Index)Backward|aten::(?:select|slice)_backward")
_LOOPS = ("torch-lstmcell-basic", "torch-lstmcell-fused", "torch-script", "torch-compile")
#: Of each framework the row that runs a layer in one op: on a GPU, on a CPU.
_ONE_OP = {
    "torch": ("torch-cudnn (torch.nn.LSTM)",) * 2,
    "tensorflow": (
        "tf-cudnnlstm, or keras.layers.LSTM under its cuDNN conditions",
        "tf-lstmblockfusedcell (BlockLSTM)",
    ),
}


def keras_without_cudnn(s: Situation) -> str | None:
    """A layer of Keras on a GPU fails conditions of its cuDNN path."""
    unmet = cudnn.unmet_by_keras(s.slow)
    return f"Keras runs this layer on cuDNN only with {listed(unmet)}" if unmet else None


def layer_in_one_op(s: Situation) -> str | None:
    """The cells run one by one where the framework has the whole layer in one op."""
    if any(i.part == "rnn" for i in s.slow.contributors):
        return None
    one_op = _row_with_one_op(s)
    if one_op is None:
        return None
    fused = [i for i in s.fast.contributors if i.part == "rnn"] if s.fast else []
    example = ""
    if s.fast and fused:
        names = listed(sorted({short_name(str(i.name)) for i in fused})[:2])
        took = milliseconds(total_ns(fused))
        example = f"; of {labels(s.fast, s.slow)[0]} {names} take {took} ms a step"
    return f"run all time steps of a layer in one op: {one_op}{example}"


def _row_with_one_op(s: Situation) -> str | None:
    """The row of the slow run's framework that does; None where it has none or is one."""
    name, framework = str(s.fact("implementation")), str(s.fact("framework"))
    written_by_hand = name in _LOOPS or name.startswith(("tf-", "keras-lstm-mode"))
    if not written_by_hand or framework not in _ONE_OP or name in ("tf-cudnnlstm",):
        return None
    return _ONE_OP[framework][0 if s.on_gpu else 1]


def products_to_hoist(s: Situation) -> str | None:
    """So many products a cell that the inputs' are among them: they depend on no earlier step."""
    needed = 1 if s.fact("mode") == "forward" else 2
    cells = s.cells()
    each = s.counted("products") / cells if cells else 0
    if each < needed + 0.9:
        return None
    after = "" if needed == 1 else ", and those of the weights' gradients in one after it"
    return (
        f"it has {count(each)} products a time step where {needed} depend on the step before: take "
        f"the inputs' product of all time steps at once before the loop{after}"
    )


def repeated_products(s: Situation) -> str | None:
    """The same implementation does the same product more often than in the other run."""
    grown = s.done_more_often()
    if grown is None:
        return None
    calls = f"{count(grown.slow_count)} times a step against {count(grown.fast_count)}"
    return f"{short_name(grown.name)} runs {calls}: look for a product that is computed again"


def indexed_time_steps(s: Situation) -> str | None:
    """The backward pass of indexing fills a whole gradient with zeros in every time step."""
    found = [r["name"] for r in s.slow.rows("ops") if _INDEXING.search(r["name"])]
    calls = [r for r in s.slow.rows("ops") if r["name"] == "aten::select_backward"]
    steps = s.slow.time_steps
    if not found or not calls or not steps or calls[0]["count"] / s.slow.steps < steps - 1:
        return None
    return (
        "x[t] in the loop has a backward pass that fills and adds a whole sequence in every time "
        "step: take x.unbind(0) once before the loop"
    )


def unfused_cell(s: Situation) -> str | None:
    """A torch cell of separate operators, five or more of them a time step."""
    cells = s.cells()
    each = s.counted("pointwise") / cells if cells else 0
    if s.fact("implementation") not in ("torch-lstmcell-basic", "torch-script") or each < 5:
        return None
    fused = "torch.nn.LSTMCell has them in one kernel" if s.on_gpu else ""
    compiled = "torch.compile fuses them (torch-compile)"
    how = f"{fused}, {compiled}" if fused else compiled
    return f"the cell has {count(each)} element-by-element ops a time step: {how}"


def optimizer(s: Situation) -> str | None:
    """Much of it is the optimizer, parameter by parameter, in PyTorch."""
    own = [i for i in s.contributors if i.part == "optimizer" or i.purpose == "optimizer"]
    if s.fact("framework") != "torch" or 2 * total_ns(own) < total_ns(s.contributors):
        return None
    return "most of it is the optimizer: torch.optim's fused=True updates all parameters in one go"


def casts_each_time_step(s: Situation) -> str | None:
    """Automatic mixed precision casts in every time step what does not change between them."""
    each = s.counted("casts") / (s.slow.time_steps or float("inf"))
    if not str(s.fact("precision")).startswith("amp") or each < 1:
        return None
    return (
        f"autocast casts {count(each)} times a time step: cast weights and inputs once before the "
        "loop, or keep the weights in half precision"
    )


def casts(s: Situation) -> str | None:
    """Who casts from what to what, the largest."""
    rows = sorted(s.slow.rows("casts"), key=lambda row: -row["total_ns"])
    if not rows:
        return None
    row = rows[0]
    types = f" from {row['from_dtype']} to {row['to_dtype']}" if row["to_dtype"] else ""
    op, times = short_name(row["op"]), times_a_step(row["count"] / s.slow.steps)
    within = f" in {short_name(row['within'])}" if row["within"] else ""
    return f"{op}{within} casts{types} {times}: keep one element type there"


def contiguous(s: Situation) -> str | None:
    """Copies to another layout, by the op that makes them."""
    moved = [i for i in s.contributors if i.purpose == "layout" and i.name and not i.call_overhead]
    if not moved:
        return None
    most = max(moved, key=lambda i: i.ns)
    return (
        f"{short_name(str(most.name))} moves elements {times_a_step(most.count)} and "
        "computes nothing: keep the tensor in the layout in which it is read, or move it once "
        "before the loop"
    )


def tf32(s: Situation) -> str | None:
    """Float32 products on a GPU that has TF32, which is off."""
    named = f"{s.fact('device_name')} {' '.join((s.slow.facts.get('device_names') or {}).values())}"
    if s.fact("precision") != "fp32" or not s.on_gpu or not _AMPERE.search(named):
        return None
    return "these are float32 products: --precision tf32 or amp-bf16 runs them on the tensor cores"


def persistent_kernels(s: Situation) -> str | None:
    """cuDNN took its standard kernels: which of the persistent ones' conditions fail."""
    unmet = cudnn.unmet_by_persistent_kernels(s.slow)
    return f"cuDNN's persistent kernels would need {listed(unmet)}" if unmet else None


def native_ctc(s: Situation) -> str | None:
    """PyTorch's own CTC kernels ran on a GPU where cuDNN has one."""
    if not any("ctc_loss_log_alpha" in (i.name or "") for i in s.contributors):
        return None
    return (
        "cuDNN's CTC needs int32 targets on the CPU, concatenated, full-length inputs and blank 0"
    )


def denormals(s: Situation) -> str | None:
    """A CPU that computes with denormal numbers."""
    if s.on_gpu or s.fact("denormals_flushed") is not False:
        return None
    return "denormal numbers were not flushed to zero: torch.set_flush_denormal(True)"

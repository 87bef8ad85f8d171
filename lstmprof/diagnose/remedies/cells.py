"""What a layer that runs cell by cell can do otherwise: in one op, with fewer and larger ones."""

from __future__ import annotations

import re
from collections import Counter

from lstmprof import implementations
from lstmprof.diagnose.causes import DISPATCH, GEMM, LAUNCH, MEMORY
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.keras import is_masked
from lstmprof.diagnose.remedies.told import (
    HOST,
    TENSORFLOW,
    TENSORFLOW_1,
    TORCH,
    WORK,
    Example,
    Remedy,
    Told,
    each,
    often,
)
from lstmprof.diagnose.remedies.variants import extra_in_cell
from lstmprof.diagnose.seen.cells import ONE_CELL
from lstmprof.diagnose.step_profile import StepProfile, labels, total_ns
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP
from lstmprof.numbers import count, cropped, listed, milliseconds, number_of

#: So much of its cells must be followed by an ask for a value: of T time steps it is after T - 1.
_LEAST_ASKED = 0.5
#: Fewer cells per step are not worth a word.
_SERIES = 8
#: Cell → what its layer is called, in torch.nn and, of those of ``_OTHER_CELLS``, in Keras.
_LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
#: Cells that a framework has such a layer of on a GPU beside the LSTM; PyTorch on a CPU, too.
_OTHER_CELLS = {"torch": ("gru", "rnn"), "tensorflow": ("gru",), "tensorflow1": ("gru",)}
#: A cell in TensorFlow's loop over time steps, its own or Keras's.
_CELL_IN_LOOP = re.compile(r"while/.*\b(?:basic_)?(?:lstm|gru)_cell\w*/")
#: Of each framework what runs a layer in one op: on a GPU, on a CPU; our row, the user's word.
_ONE_OP = {
    "torch": (("torch-nn-lstm", "torch.nn.LSTM"),) * 2,
    "tensorflow": (
        ("tf-cudnnlstm", "keras.layers.LSTM under its cuDNN conditions"),
        ("tf-lstmblockfusedcell", "BlockLSTM (LSTMBlockFusedCell in TensorFlow 1)"),
    ),
    "tensorflow1": (
        ("tf1-cudnnlstm", "tf.contrib.cudnn_rnn.CudnnLSTM"),
        ("tf1-lstmblockfusedcell", "tf.contrib.rnn.LSTMBlockFusedCell"),
    ),
}


def layer_in_one_op(f: Finding) -> Told | None:
    """The cells run one by one where the framework has the whole layer in one op."""
    one_op = _ONE_OP.get(f.slow.framework or "")
    if one_op is None or form_of(f.slow) not in (LOOP, CELL_OP):
        return None
    if extra_in_cell(f.slow) or is_masked(f.slow):
        return None
    fused = [c for c in f.fast.contributors if c.part == "rnn"] if f.fast else []
    example = ""
    if f.fast and fused:
        names = listed(sorted({cropped(str(c.name)) for c in fused})[:2])
        took = milliseconds(total_ns(fused))
        take = "takes" if len({c.name for c in fused}) == 1 else "take"
        example = f"; of {labels(f.fast, f.slow)[0]} {names} {take} {took} ms{each(f.fast)}"
    row, word = one_op[f.slow.device is None]
    if (cell := _cell(f.slow)) != "lstm":
        torch = f.slow.framework == "torch"
        if cell not in _OTHER_CELLS[f.slow.framework or ""]:
            return None
        if not torch and (f.slow.device is None or f.slow.implementation):
            return None  # TensorFlow's op for a CPU is an LSTM, and so are our rows
        word = word.replace("LSTM", _LAYERS[cell])
    if f.slow.implementation is None:
        unless = "unless the output of a time step is the input of the next"
        return Told(f"{word} runs all time steps of a layer in one op, {unless}{example}")
    sentence = f"run all time steps of a layer in one op: {row}, {word}{example}"
    return Told(sentence, implementation=row)


def values_in_loop(f: Finding) -> Told | None:
    """Cells run one by one, and a value is asked for at each."""
    rows = f.slow.rows("ops")
    cells = max((r["count"] for r in rows if ONE_CELL.search(r["name"])), default=0) / f.slow.steps
    asked = f.slow.seen.asked_between
    if not asked or asked < _LEAST_ASKED * cells:
        return None
    return Told(
        f"a value is asked for at every time step (.item(), {often(f.slow, asked)}), which keeps "
        "the time steps from running in one op: keep it on the device, and read it after the loop"
    )


def form_of(profile: StepProfile) -> str | None:
    """How a run computes its layers: by its row, or by its ops; None where neither tells."""
    row = implementations.ROWS.get(profile.implementation or "")
    if row is not None:
        return row.form_on("cpu" if profile.device is None else "cuda")
    if any(ONE_CELL.search(op["name"]) for op in profile.rows("ops")):
        return CELL_OP
    if any(_CELL_IN_LOOP.search(op["name"]) for op in profile.rows("ops")):
        return LOOP
    if any(c.part == "rnn" for c in profile.contributors):
        return LAYER_OP
    return _form_of_cells(profile)


def _cell(profile: StepProfile) -> str:
    """Which cell runs one by one: by the workload, or by the ops of single cells."""
    workload = profile.info.workload
    if workload is not None and workload.cell in _LAYERS:
        return workload.cell
    cells: Counter[str] = Counter()
    for op in profile.rows("ops"):
        found = ONE_CELL.search(op["name"]) or _CELL_IN_LOOP.search(op["name"])
        if found:
            cells[next(c for c in _LAYERS if c in found[0].lower())] += op["count"]
    return max(cells, key=cells.__getitem__, default="lstm")


def _form_of_cells(profile: StepProfile) -> str | None:
    """How an LSTM's cells run one by one, by the recurrent layers that the profile shows."""
    cells: Counter[str] = Counter()
    for row in profile.rows("layers"):
        if row.get("cell") == "lstm" and row["form"] in (LOOP, CELL_OP):
            cells[row["form"]] += (row["cells"] or 0) * (row["calls"] or 0)
    form, number = max(cells.items(), key=lambda pair: pair[1], default=(None, 0))
    return form if number / max(profile.steps, 1) >= _SERIES else None


def products_to_hoist(f: Finding) -> Told | None:
    """So many products a cell that the inputs' are among them: they depend on no earlier step.

    Only who writes the cell can take them out of it.
    """
    needed = 1 if f.slow.info.mode == "forward" else 2
    products = each_cell(f.slow, "products")
    if products < needed + 0.9 or not _written_by_hand(f.slow):
        return None
    depend = number_of(needed, "depends", "depend")
    after = "" if needed == 1 else ", and those of the weights' gradients in one after it"
    return Told(
        f"it has {count(products)} products per time step where {depend} on the time step before: "
        f"take the inputs' product of all time steps at once before the loop{after}"
    )


def _written_by_hand(profile: StepProfile) -> bool:
    row = implementations.ROWS.get(profile.implementation or "")
    return row is not None and row.by_hand


def each_cell(profile: StepProfile, name: str) -> float:
    """A count for each cell; 0 unknown."""
    return counted(profile, name) / profile.cells if profile.cells else 0.0


def unfused_cell(f: Finding) -> Told | None:
    """A torch cell of separate operators, five or more of them a time step."""
    pointwise = each_cell(f.slow, "pointwise")
    if not _written_by_hand(f.slow) or form_of(f.slow) != LOOP or pointwise < 5:
        return None
    fused = "torch.nn.LSTMCell does them in one kernel" if f.slow.device is not None else ""
    compiled = "torch.compile fuses them (torch-compile)"
    how = f"{fused}, {compiled}" if fused else compiled
    return Told(f"the cell has {count(pointwise)} elementwise ops per time step: {how}")


VALUES_IN_LOOP = Remedy(
    name="no value in the loop",
    cause="the loop over time steps asks for a value in each: it has to stay a loop, and waits",
    condition="ops of single cells, and after half of them or more, before the next one, an op "
    "that asks for a value (aten::item)",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    decide=values_in_loop,
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    ),
)
LAYER_IN_ONE_OP = Remedy(
    name="layer in one op",
    cause="a layer runs cell by cell where its framework has it in one op",
    condition="a layer runs cell by cell: by the table of implementations, by ops of single cells, "
    "or by the recurrent layers that the profile shows, eight cells of an LSTM a step or more",
    kinds=(*HOST, *WORK),
    frameworks=(*TORCH, *TENSORFLOW, *TENSORFLOW_1),
    decide=layer_in_one_op,
    sources=("https://arxiv.org/abs/1604.01946", "https://github.com/apache/mxnet/issues/5038"),
    example=Example(
        of="an LSTM written by hand, PyTorch 2.13 on a CPU",
        told="torch.nn.LSTM runs all time steps of a layer in one op, unless the output of a "
        "time step is the input of the next",
    ),
)
INPUTS_AT_ONCE = Remedy(
    name="inputs' product at once",
    cause="products that wait for no time step before are made in every time step",
    condition="a cell written by hand has more products per time step than need the step before",
    kinds=(GEMM, LAUNCH, DISPATCH),
    decide=products_to_hoist,
    sources=("https://arxiv.org/abs/1604.01946",),
)
FUSED_CELL = Remedy(
    name="fused cell",
    cause="a cell computes its gates by many small operations",
    condition="a cell written by hand with five elementwise ops per time step or more",
    kinds=(LAUNCH, MEMORY, DISPATCH),
    frameworks=TORCH,
    decide=unfused_cell,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html",
        "https://arxiv.org/abs/1604.01946",
    ),
)

"""Causes: a layer runs one cell at a time, or the program calls a layer once per time step."""

from __future__ import annotations

import re
from collections import Counter

from lstmprof import implementations
from lstmprof.base.numbers import count, cropped
from lstmprof.diagnose.certainty.pair import layer_in_words
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.causes import COPY, DISPATCH, GEMM, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.keras import is_keras, is_masked
from lstmprof.diagnose.remedies.rows import (
    HOST,
    TENSORFLOW,
    TENSORFLOW_1,
    TORCH,
    WORK,
    Match,
    Remedy,
    is_mostly_calls,
    layers_ns,
    often,
    series_of_launches,
)
from lstmprof.diagnose.seen.recurrent import ONE_CELL
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP

#: Smallest number of value reads per cell in a loop that reads values (T cells: T − 1 reads).
_LEAST_READ = 0.5
#: Smallest number of calls or cells per step at which lstmprof assumes a loop over time: with known
#: shapes, and with unknown shapes, because 8 calls may be 8 layers. Chosen by hand.
_SERIES, _SERIES_IF_UNKNOWN = 8, 16
_LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
_UNLESS = "unless an input depends on an earlier output"
#: Smallest share of the cells' time at which lstmprof assumes that the script's recursive function
#: runs the cells over trees. Chosen by hand.
_TREE_SHARE = 0.5
#: Pattern of an op inside a cell, in a loop over time steps in TensorFlow or Keras.
_CELL_IN_LOOP = re.compile(r"while/.*\b(?:basic_)?(?:lstm|gru)_cell\w*/")
#: (framework, device) → (implementation, its layer op, cell types that run faster in this op).
_ONE_OP = {
    ("torch", "cuda"): ("torch-nn-lstm", "torch.nn.{}", ("lstm", "gru", "rnn")),
    # no gru: nn.GRU saves only Python and dispatch (32 units: 8.3 → 5.7 ms, 512: 142 → 137 ms)
    ("torch", "cpu"): ("torch-nn-lstm", "torch.nn.{}", ("lstm",)),
    ("tensorflow", "cuda"): (
        "tf-cudnnlstm",
        "keras.layers.{} with the options that cuDNN needs",
        ("lstm", "gru"),
    ),
    # no cell type: BlockLSTM took 1.23 times as long as a loop of cells
    ("tensorflow", "cpu"): ("tf-lstmblockfusedcell", "BlockLSTM", ()),
    ("tensorflow1", "cuda"): ("tf1-cudnnlstm", "tf.contrib.cudnn_rnn.Cudnn{}", ("lstm", "gru")),
    ("tensorflow1", "cpu"): ("tf1-lstmblockfusedcell", "tf.contrib.rnn.LSTMBlockFusedCell", ()),
}
#: Work in a cell that no layer op does: (name, pattern of its ops, library that has a kernel).
_EXTRAS = (
    (
        "a normalisation",
        re.compile(
            r"aten::native_(?:layer|batch|group)_norm$"
            r"|(?i:layer_?norm)\w*/(?:.*:)?(?:Rsqrt|FusedBatchNormV3)$"
        ),
        "haste's LayerNormLSTM",
    ),
    (
        "random numbers (zoneout, dropout of the state)",
        re.compile(r"aten::(?:bernoulli\w*|native_dropout|rand_like)$"),
        "haste's LSTM with zoneout",
    ),
)
_PEEPHOLES = "peepholes (state times a vector of weights)"
_COMPILED = {
    "tensorflow": "compile the loop: tf.function(jit_compile=True)",
    "jax": "put jax.jit around the scan",
}
#: Fix for PyTorch on a CPU. Compiling an LSTM cell with LayerNorm changed one step from 3.0 to
#: 9.7 ms, and another step from 29.5 to 18.2 ms (torch 2.13).
_ON_TORCH_CPU = (
    "try torch.compile(cell): in tests on a CPU, one step became 0.6× as long, another 3× as long"
)
#: Fixes by network: (pattern of module names, whether the fix helps on a CPU, fix). The fix for
#: mLSTM changed 128 time steps on a CPU from 175 to 9.4 ms.
_KERNELS = (
    (
        re.compile(r"(?i)mlstm|xlstm"),
        True,
        "compute all time steps at once: use the parallel or chunkwise form of mlstm_kernels",
    ),
    (re.compile(r"(?i)slstm"), False, "run all time steps in one kernel: use flashrnn"),
    (
        re.compile(r"(?i)mamba|selective_scan"),
        False,
        "install the kernels of mamba-ssm and causal-conv1d: one call runs all time steps",
    ),
    (
        re.compile(r"(?i)min_?(?:gru|lstm)"),
        True,
        "compute all time steps at once by a parallel scan (on a GPU: the package "
        "accelerated-scan)",
    ),
)
#: Smallest number of runs per time step at which lstmprof assumes that an op runs in every time
#: step.
_EACH = 0.9


@Remedy(
    name="nodes of a level together",
    cause="the LSTM cells form trees, and run node by node",
    fix="process all trees level by level, leaves first: one cell call per level for all nodes (as "
    "in DGL)",
    condition="A step runs eight or more LSTM cells one by one, inside a recursive function of "
    "the script",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    first=True,
    sources=(
        "https://docs.dgl.ai/en/2.1.x/tutorials/models/2_small_graph/3_tree-lstm.html",
        "https://pypi.org/project/pytorch-tree-lstm/",
        "https://arxiv.org/abs/1702.02181",
    ),
)
def cells_of_trees(f: Finding) -> Match | None:
    tree = f.slow.info.script_tree
    if tree is None or not forms_trees(f.slow):
        return None
    name = tree.function
    return Match(
        f"{name} ({tree.file}:{tree.line}) is recursive: one call makes several recursive calls"
    )


def forms_trees(profile: StepProfile) -> bool:
    """Return whether the script runs LSTM cells node by node over trees."""
    tree, cells = profile.info.script_tree, _cells_in_loops(profile)
    if tree is None or sum(cells.values()) < _SERIES:
        return False
    rows = [row for row in profile.rows("layers") if row["form"] in (LOOP, CELL_OP)]
    forward_ns = sum((row["forward_ns"] or 0) * (row["calls"] or 0) for row in rows)
    return (tree.ns or 0) >= _TREE_SHARE * forward_ns / max(profile.steps, 1)


@Remedy(
    name="layer in one op",
    cause="the layer runs one cell at a time",
    fix="use torch.nn.LSTM, or keras.layers.LSTM on a GPU: one call runs all time steps",
    condition="A step runs eight or more LSTM cells one by one. lstmprof reports this cause for "
    "TensorFlow on a CPU only if you compare the run with a faster run that computes the whole "
    "layer in one op",
    kinds=(*HOST, *WORK),
    frameworks=(*TORCH, *TENSORFLOW, *TENSORFLOW_1),
    sources=("https://arxiv.org/abs/1604.01946", "https://github.com/apache/mxnet/issues/5038"),
)
def layer_in_one_op(f: Finding) -> Match | None:
    profile = f.slow
    place, cell = (profile.framework or "", profile.runs_on or ""), _cell(profile)
    row, word, cells = _ONE_OP.get(place, ("", "", ()))
    if not row or form_of(profile) not in (LOOP, CELL_OP):
        return None
    if extra_in_cell(profile) or is_masked(profile) or profile.seen.unrolled:
        return None
    if forms_trees(profile):
        return None
    ours = profile.implementation is not None
    if ours and cell != "lstm" and profile.framework != "torch":
        return None  # TensorFlow's implementations run only LSTMs
    is_faster = cell in cells or (place == ("torch", "cpu") and is_mostly_calls(profile))
    if not is_faster and (f.fast is None or f.fast.implementation != row):
        return None
    fix = f"use {word.format(_LAYERS[cell])}: one call runs all time steps of a layer"
    if not ours:
        lengths = {row["cells"] for row in profile.rows("layers") if row["form"] == LOOP}
        fix += f", {_UNLESS}" + (" or the cells form trees" if len(lengths) > 1 else "")
    return Match(layer_in_words(profile), fix=fix, implementation=row if ours else None)


@Remedy(
    name="layer outside compiled code",
    cause="torch.compile or torch.export unrolls the recurrent layer into single time steps",
    fix="keep nn.LSTM and nn.GRU out of compiled code: torch.compiler.disable, and allow_rnn=False",
    condition="One call of compiled code runs eight or more matmuls of the hidden state with the "
    "weights of all gates",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/pytorch/issues/140845",
        "https://github.com/pytorch/pytorch/issues/185135",
        "https://github.com/pytorch/pytorch/pull/185163",
        "https://github.com/pytorch/pytorch/issues/186091",
    ),
)
def unrolled_layer(f: Finding) -> Match | None:
    seen = f.slow.seen.unrolled
    if seen is None or f.slow.implementation or f.slow.runs_on is None:
        return None
    on_cpu = f.slow.runs_on == "cpu"
    if on_cpu and (seen.cell != "lstm" or seen.dtype not in ("float", "c10::BFloat16")):
        return None
    return Match(f"compiled code runs {count(seen.cells)} {_LAYERS[seen.cell]} cells one by one")


@Remedy(
    name="loop without the host",
    cause="torch's while_loop or scan synchronises with the host in every iteration",
    fix="write the loop in Python with a fixed number of iterations, and capture the step as a "
    "CUDA graph",
    condition="One call of compiled code copies eight or more values from the GPU to the host",
    kinds=(SYNC, *HOST),
    frameworks=TORCH,
    sources=(
        "https://github.com/pytorch/pytorch/issues/166516",
        "https://github.com/pytorch/rl/pull/4217",
        "https://github.com/pytorch/rl/pull/4160",
    ),
)
def loop_asks_host(f: Finding) -> Match | None:
    reads = f.slow.seen.read_in_compiled
    if f.slow.device is None or reads < _SERIES:
        return None
    return Match(f"one call of compiled code reads {count(reads)} values from the GPU")


@Remedy(
    name="parallel form",
    cause="the network can compute all time steps in parallel, but runs them one by one",
    fix="install the network's GPU kernels, or use the parallel form of the network",
    condition="A module, function or range is named after mLSTM, sLSTM, xLSTM, Mamba, minGRU or "
    "minLSTM, and calls the same op 32 or more times. The step runs no kernel that computes "
    "all time steps of such a network at once. lstmprof reports this cause on a GPU only if the "
    "step also waits for kernel launches, and never for sLSTM and Mamba on a CPU",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    instead="the parallel form",
    sources=(
        "https://github.com/NX-AI/mlstm_kernels",
        "https://github.com/NX-AI/xlstm/issues/61",
        "https://github.com/huggingface/transformers/issues/40765",
        "https://arxiv.org/abs/2410.01201",
    ),
)
def reference_form(f: Finding) -> Match | None:
    profile, module = f.slow, f.slow.seen.looped_module
    if module is None or profile.implementation:
        return None
    if profile.device is not None and series_of_launches(f) is None:
        return None
    name, calls, took_ns = module
    for pattern, on_cpu, fix in _KERNELS:
        if pattern.search(name) and (on_cpu or profile.device is not None):
            seen = f"{cropped(name)} calls the same op {count(calls)} times"
            return Match(seen, took_ns, fix)
    return None


@Remedy(
    name="whole sequence in one call",
    cause="a recurrent layer is called once per time step",
    fix=f"pass the whole sequence to nn.LSTM in one call, {_UNLESS}",
    condition="A step calls aten::lstm, aten::gru or an RNN op eight or more times, each time "
    "for one time step",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    several_kinds=True,
    first=True,
    instead="one call for the whole sequence",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",),
)
def one_time_step_per_call(f: Finding) -> Match | None:
    profile = f.slow
    rows = [row for row in profile.rows("layers") if row["form"] == LAYER_OP and row["calls"]]
    single = [row for row in rows if row["time_steps"] == 1]
    unknown = [row for row in rows if row["time_steps"] is None]
    chosen, least = (single, _SERIES) if single else (unknown, _SERIES_IF_UNKNOWN)
    calls = sum(row["calls"] for row in chosen) / profile.steps
    if calls < least or is_keras(profile):
        return None
    row = max(chosen, key=lambda row: row["calls"])
    layer = f"nn.{_LAYERS.get(str(row['cell']).partition('_')[0], 'LSTM')}"
    seen = f"{count(calls)} {row['op']} calls{profile.per_step}"
    seen += ", each for one time step" if single else ""
    fix = f"pass the whole sequence to {layer} in one call, {_UNLESS}"
    if not single:
        fix = (
            f"call {layer} once, with the whole sequence or with one padded batch of all sequences"
        )
    return Match(seen, layers_ns(profile, chosen), fix, seen)


@Remedy(
    name="no value in the loop",
    cause="the loop over time steps reads a value (.item()) in every time step",
    fix="keep the value as a tensor, and read the tensor after the loop",
    condition="The step calls a cell, such as LSTMCell, once per time step. After at least half "
    "of these calls, an op copies a value from a tensor to Python (aten::item)",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    ),
)
def values_in_loop(f: Finding) -> Match | None:
    rows = f.slow.rows("ops")
    cells = max((r["count"] for r in rows if ONE_CELL.search(r["name"])), default=0) / f.slow.steps
    read = f.slow.seen.asked_between
    if not read or read < _LEAST_READ * cells:
        return None
    return Match(f"the host reads a value between two cells {often(f.slow, read)}")


def form_of(profile: StepProfile) -> str | None:
    """Return how layers run: ``LAYER_OP``, ``CELL_OP`` or ``LOOP``; None if unknown."""
    row = implementations.ROWS.get(profile.implementation or "")
    if row is not None:
        return row.form_on("cpu" if profile.device is None else "cuda")
    if any(ONE_CELL.search(op["name"]) for op in profile.rows("ops")):
        return CELL_OP
    if any(_CELL_IN_LOOP.search(op["name"]) for op in profile.rows("ops")):
        return LOOP
    if any(c.part == "rnn" for c in profile.contributors):
        return LAYER_OP
    cells = _cells_in_loops(profile)
    form, number = max(cells.items(), key=lambda pair: pair[1], default=(None, 0))
    return form if number >= _SERIES else None


def _cells_in_loops(profile: StepProfile) -> dict[str, float]:
    """Return how many LSTM cells run per step, by form (``LOOP`` or ``CELL_OP``)."""
    cells: Counter[str] = Counter()
    for layer in profile.rows("layers"):
        if layer.get("cell") == "lstm" and layer["form"] in (LOOP, CELL_OP):
            cells[layer["form"]] += (layer["cells"] or 0) * (layer["calls"] or 0)
    return {form: number / max(profile.steps, 1) for form, number in cells.items()}


def _cell(profile: StepProfile) -> str:
    """Return the type of cell: ``lstm``, ``gru`` or ``rnn``."""
    workload = profile.info.workload
    if workload is not None and workload.cell in _LAYERS:
        return workload.cell
    cells: Counter[str] = Counter()
    for op in profile.rows("ops"):
        match = ONE_CELL.search(op["name"]) or _CELL_IN_LOOP.search(op["name"])
        if match:
            cells[next(c for c in _LAYERS if c in match[0].lower())] += op["count"]
    return max(cells, key=cells.__getitem__, default="lstm")


@Remedy(
    name="input matmul before the loop",
    cause="the matmul of the inputs runs in every time step",
    fix="multiply the inputs of all time steps in one matmul before the loop",
    condition="`lstmprof capture` ran one of lstmprof's built-in LSTMs (`lstmprof list` shows "
    "them). This LSTM multiplies the input by the weights in every time step. On a CPU, the "
    "framework also spends at least half of the step on calling ops (dispatch)",
    kinds=(GEMM, LAUNCH, DISPATCH),
    sources=("https://arxiv.org/abs/1604.01946",),
)
def input_matmuls(f: Finding) -> Match | None:
    needed = 1 if f.slow.info.mode == "forward" else 2
    products = _per_cell(f.slow, "products")
    if products < needed + 0.9 or not _written_by_hand(f.slow):
        return None
    # on a CPU, the fix saves only calls of ops: 2.70 → 2.29 ms, but 64.9 → 66.8 ms
    mostly_calls = f.kind == DISPATCH and 2 * f.slow_ns >= f.slow.length_ns
    if f.slow.runs_on != "cuda" and not mostly_calls:
        return None
    need = "needs" if needed == 1 else "need"
    return Match(
        f"{count(products)} matmuls per time step, but only {needed} {need} the result of the "
        "previous time step"
    )


@Remedy(
    name="fused cell",
    cause="the cell computes its gates with many small ops",
    fix="use torch.nn.LSTMCell, which computes all gates in one kernel, or torch.compile(cell)",
    condition="`lstmprof capture` ran one of lstmprof's built-in LSTMs (`lstmprof list` shows "
    "them). This LSTM runs five or more elementwise ops per time step. On a CPU, this cause also "
    "requires a comparison with a faster run of the built-in LSTM torch-compile",
    kinds=(LAUNCH, MEMORY, DISPATCH),
    frameworks=TORCH,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html",
        "https://arxiv.org/abs/1604.01946",
    ),
)
def separate_gates(f: Finding) -> Match | None:
    pointwise = _per_cell(f.slow, "pointwise")
    if not _written_by_hand(f.slow) or form_of(f.slow) != LOOP or pointwise < 5:
        return None
    seen = f"{count(pointwise)} elementwise ops per time step"
    if f.slow.runs_on == "cuda":
        return Match(seen)
    # on a CPU, advise only what another run shows: a compiled cell once saved only 0.4 of 45.8 ms
    if f.fast is None or f.fast.implementation != "torch-compile":
        return None
    return Match(seen, fix="use torch.compile(cell)", implementation="torch-compile")


def _written_by_hand(profile: StepProfile) -> bool:
    row = implementations.ROWS.get(profile.implementation or "")
    return row is not None and row.by_hand


def _per_cell(profile: StepProfile, name: str) -> float:
    return counted(profile, name) / profile.cells if profile.cells else 0.0


@Remedy(
    name="fuse the cell",
    cause="the cell is not a plain LSTM, so no framework op can run the whole layer",
    fix="compile the cell or its loop: torch.compile, tf.function(jit_compile=True) or jax.jit",
    condition="The recurrent layer runs as a loop of cells, and the cell also normalises, draws "
    "random numbers or has peepholes",
    kinds=(*HOST, *WORK),
    sources=("https://github.com/lmnt-com/haste", "https://arxiv.org/abs/1607.06450"),
)
def variant_cell(f: Finding) -> Match | None:
    extra = extra_in_cell(f.slow)
    if extra is None:
        return None
    what, times, elsewhere = extra
    on_gpu, framework = f.slow.runs_on != "cpu", f.slow.framework
    fix = _COMPILED.get(framework or "", "")
    if framework == "torch":
        library = f", or {elsewhere}" if elsewhere else ""
        fix = f"use torch.compile(cell){library}" if on_gpu else _ON_TORCH_CPU
    per_step = "once" if round(times) <= 1 else f"{count(round(times))} times"
    seen = f"the cell computes {what} {per_step} per time step"
    return Match(seen, fix=fix)


def extra_in_cell(profile: StepProfile) -> tuple[str, float, str | None] | None:
    """Return what the cell computes besides a plain LSTM: (name, times, library)."""
    loops = [row for row in profile.rows("layers") if row["form"] == LOOP and row["time_steps"]]
    steps = sum(row["time_steps"] * (row["calls"] or 0) for row in loops) / profile.steps
    if not steps:
        return None
    ops = profile.rows("ops")
    for what, pattern, elsewhere in _EXTRAS:
        times = sum(r["count"] for r in ops if pattern.search(r["name"])) / profile.steps / steps
        if times >= _EACH:
            return what, times, elsewhere
    peepholes = profile.seen.peepholes / steps
    return (_PEEPHOLES, peepholes, None) if peepholes >= 2 * _EACH else None

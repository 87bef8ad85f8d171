"""Causes: layers that run one cell at a time, or are called once per time step.

JAX's ``lax.scan`` is a ``while`` of XLA, whose instructions have paths like
``jit(step)/jvp(RNN_0)/while/body/OptimizedLSTMCell_0/dot_general``. PyTensor's Scan is an operator
that calls a compiled function once per time step.
"""

from __future__ import annotations

import re
from collections import Counter

from lstmprof import implementations
from lstmprof.breakdown.recurrent.ladder import SEPARATE_PRODUCTS
from lstmprof.diagnose.causes import DISPATCH, GEMM, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.certainty.pair import layer_in_words
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.counts import counted
from lstmprof.diagnose.remedies.keras import is_keras, is_masked
from lstmprof.diagnose.remedies.rows import (
    HOST,
    JAX,
    TENSORFLOW,
    TENSORFLOW_1,
    TORCH,
    WORK,
    Example,
    Match,
    Remedy,
    is_mostly_calls,
    kernels_and_gaps,
    often,
    series_of_launches,
    times_called,
)
from lstmprof.diagnose.seen.recurrent import ONE_CELL
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate.rules.graphs import SCAN
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP
from lstmprof.numbers import count, cropped

#: Least share of the cells after which a value must be read to match ``values_in_loop``. In a loop
#: over T time steps, only T - 1 reads are between two cells.
_LEAST_READ = 0.5
#: Least number of cells, layer calls or matmuls per step that count as a loop over time steps. The
#: second number is for layer calls without recorded shapes, because eight such calls may be eight
#: layers. Chosen by hand.
_SERIES, _SERIES_IF_UNKNOWN = 8, 16
_LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
#: When one call for all time steps is not possible.
_UNLESS = "unless an input depends on an earlier output"
#: Name of an op inside a cell, in a loop over time steps in TensorFlow or Keras.
_CELL_IN_LOOP = re.compile(r"while/.*\b(?:basic_)?(?:lstm|gru)_cell\w*/")
#: (framework, device) → the implementation that runs a layer in one op, its name for users, and the
#: cells for which it is faster than a loop. Measured on CPUs: BlockLSTM took 1.23 times as long as
#: TensorFlow's cells. PyTorch has a CPU op for the LSTM only; nn.GRU and nn.RNN save Python and
#: dispatch (32 units: GRU 8.3 → 5.7 ms, RNN 5.2 → 2.2 ms; 512 units: GRU 142 → 137 ms), so GRU and
#: RNN count only if Python and dispatch take half of the step.
_ONE_OP = {
    ("torch", "cuda"): ("torch-nn-lstm", "torch.nn.{}", ("lstm", "gru", "rnn")),
    ("torch", "cpu"): ("torch-nn-lstm", "torch.nn.{}", ("lstm",)),
    ("tensorflow", "cuda"): (
        "tf-cudnnlstm",
        "keras.layers.{} with the options that cuDNN needs",
        ("lstm", "gru"),
    ),
    ("tensorflow", "cpu"): ("tf-lstmblockfusedcell", "BlockLSTM", ()),
    ("tensorflow1", "cuda"): ("tf1-cudnnlstm", "tf.contrib.cudnn_rnn.Cudnn{}", ("lstm", "gru")),
    ("tensorflow1", "cpu"): ("tf1-lstmblockfusedcell", "tf.contrib.rnn.LSTMBlockFusedCell", ()),
}
#: Work that some cells do in every time step and no layer op can do: its name for users, the names
#: of its ops, and a library with a kernel for such cells.
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
#: Measured with torch 2.13 on a CPU, an LSTM of operators with LayerNorm over its gates, eager and
#: compiled: 3.0 and 9.7 ms (32 units, batch 8), 29.5 and 18.2 ms (128 units, batch 32).
_ON_TORCH_CPU = (
    "try torch.compile(cell): in two tests on a CPU, the step took 0.6 and 3 times as long"
)
#: Rows of (names of modules, whether the fix helps on a CPU, the fix). Measured: mLSTM with 128
#: time steps, 175 → 9.4 ms with its parallel form, PyTorch 2.13 on a CPU (batch 8, 64 units).
_KERNELS = (
    (
        re.compile(r"(?i)mlstm|xlstm"),
        True,
        "compute all time steps at once: mlstm_kernels (its parallel or chunkwise form)",
    ),
    (re.compile(r"(?i)slstm"), False, "run the time steps in one kernel: flashrnn"),
    (
        re.compile(r"(?i)mamba|selective_scan"),
        False,
        "install the kernels of mamba-ssm and causal-conv1d: one call runs all time steps",
    ),
    (
        re.compile(r"(?i)min_?(?:gru|lstm)"),
        True,
        "compute all time steps at once by a parallel scan (accelerated-scan on a GPU)",
    ),
)
#: With at least this many calls per time step, work counts as done in every time step.
_EACH = 0.9
_PRODUCT = re.compile(r"while/body/.*dot_general$")
_JAX_TANH = re.compile(r"while/body/.*tanh$")
_LSTM, _GRU = re.compile(r"(?i)lstm.*while/body/|while/body/.*lstm"), re.compile(r"(?i)gru")


def layer_in_one_op(f: Finding) -> Match | None:
    """Match cells that run one by one although the framework has a faster op for the layer."""
    profile = f.slow
    place, cell = (profile.framework or "", profile.runs_on or ""), _cell(profile)
    row, word, cells = _ONE_OP.get(place, ("", "", ()))
    if not row or form_of(profile) not in (LOOP, CELL_OP):
        return None
    if extra_in_cell(profile) or is_masked(profile) or profile.seen.unrolled:
        return None
    ours = profile.implementation is not None
    if ours and cell != "lstm" and profile.framework != "torch":
        return None  # TensorFlow's rows are LSTMs
    is_faster = cell in cells or (place == ("torch", "cpu") and is_mostly_calls(profile))
    if not is_faster and (f.fast is None or f.fast.implementation != row):
        return None
    fix = f"use {word.format(_LAYERS[cell])}: one call runs all time steps of a layer"
    fix += "" if ours else f", {_UNLESS}"
    return Match(layer_in_words(profile), fix=fix, implementation=row if ours else None)


def unrolled_layer(f: Finding) -> Match | None:
    """Match a layer that compiled code runs cell by cell although PyTorch has a faster op for it.

    On a CPU, PyTorch has such an op only for an LSTM in float32 or bfloat16.
    """
    seen = f.slow.seen.unrolled
    if seen is None or f.slow.implementation or f.slow.runs_on is None:
        return None
    on_cpu = f.slow.runs_on == "cpu"
    if on_cpu and (seen.cell != "lstm" or seen.dtype not in ("float", "c10::BFloat16")):
        return None
    return Match(f"compiled code runs {count(seen.cells)} {_LAYERS[seen.cell]} cells one by one")


def loop_asks_host(f: Finding) -> Match | None:
    """Match a compiled while_loop or scan of PyTorch if the host reads a value per iteration."""
    reads = f.slow.seen.read_in_compiled
    if f.slow.device is None or reads < _SERIES:
        return None
    return Match(f"one call of compiled code reads {count(reads)} values from the GPU")


def reference_form(f: Finding) -> Match | None:
    """Match a module that loops over time steps although it could compute them all at once."""
    profile, module = f.slow, f.slow.seen.looped_module
    if module is None or profile.implementation:
        return None
    if profile.device is not None and series_of_launches(f) is None:
        return None
    name, calls = module
    fixes = (fix for pattern, on_cpu, fix in _KERNELS if pattern.search(name)
             and (on_cpu or profile.device is not None))  # fmt: skip
    fix = next(fixes, "")
    return (
        Match(f"{cropped(name)} calls the same op {count(calls)} times", fix=fix) if fix else None
    )


def one_time_step_per_call(f: Finding) -> Match | None:
    """Match a layer of PyTorch that is called for one time step at a time."""
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
            f"call {layer} once: with the whole sequence if each call is a time step, with one "
            "padded batch if each call is a sequence"
        )
    return Match(seen, fix=fix, cause=seen)


def values_in_loop(f: Finding) -> Match | None:
    """Match cells that run one by one, if the host reads a value after half of them or more."""
    rows = f.slow.rows("ops")
    cells = max((r["count"] for r in rows if ONE_CELL.search(r["name"])), default=0) / f.slow.steps
    read = f.slow.seen.asked_between
    if not read or read < _LEAST_READ * cells:
        return None
    return Match(f"the host reads a value between two cells {often(f.slow, read)}")


def form_of(profile: StepProfile) -> str | None:
    """Return how a run computes its layers: ``LAYER_OP``, ``CELL_OP``, ``LOOP`` or another form.

    The run's implementation decides, else the ops; return None if unknown.
    """
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


def _form_of_cells(profile: StepProfile) -> str | None:
    """Return ``LOOP`` or ``CELL_OP`` if a step has ``_SERIES`` LSTM cells, else None."""
    cells: Counter[str] = Counter()
    for row in profile.rows("layers"):
        if row.get("cell") == "lstm" and row["form"] in (LOOP, CELL_OP):
            cells[row["form"]] += (row["cells"] or 0) * (row["calls"] or 0)
    form, number = max(cells.items(), key=lambda pair: pair[1], default=(None, 0))
    return form if number / max(profile.steps, 1) >= _SERIES else None


def _cell(profile: StepProfile) -> str:
    """Return ``lstm``, ``gru`` or ``rnn``, from the workload or the ops of cells; else ``lstm``."""
    workload = profile.info.workload
    if workload is not None and workload.cell in _LAYERS:
        return workload.cell
    cells: Counter[str] = Counter()
    for op in profile.rows("ops"):
        match = ONE_CELL.search(op["name"]) or _CELL_IN_LOOP.search(op["name"])
        if match:
            cells[next(c for c in _LAYERS if c in match[0].lower())] += op["count"]
    return max(cells, key=cells.__getitem__, default="lstm")


def input_matmuls(f: Finding) -> Match | None:
    """Match a cell that multiplies its inputs in every time step instead of before the loop.

    Only handwritten cells match, because only their author can move the matmul. On a CPU the move
    saves only calls: 2.70 ms became 2.29 ms (torch 2.13, 32 units, batch 8), 64.9 ms became 66.8 ms
    (320 units, batch 64).
    """
    needed = 1 if f.slow.info.mode == "forward" else 2
    products = _per_cell(f.slow, "products")
    if products < needed + 0.9 or not _written_by_hand(f.slow):
        return None
    mostly_calls = f.kind == DISPATCH and 2 * f.slow_ns >= f.slow.length_ns
    if f.slow.runs_on != "cuda" and not mostly_calls:
        return None
    need = "needs" if needed == 1 else "need"
    seen = (
        f"{count(products)} matmuls per time step, but only {needed} {need} the result of the "
        "previous time step"
    )
    return Match(seen)


def separate_gates(f: Finding) -> Match | None:
    """Match a handwritten torch cell with five or more elementwise ops per time step.

    On a CPU (0.4 of 45.8 ms saved) only if the faster run has a compiled cell.
    """
    pointwise = _per_cell(f.slow, "pointwise")
    if not _written_by_hand(f.slow) or form_of(f.slow) != LOOP or pointwise < 5:
        return None
    seen = f"{count(pointwise)} elementwise ops per time step"
    if f.slow.runs_on == "cuda":
        return Match(seen)
    if f.fast is None or f.fast.implementation != "torch-compile":
        return None
    return Match(seen, fix="use torch.compile(cell)", implementation="torch-compile")


def _written_by_hand(profile: StepProfile) -> bool:
    row = implementations.ROWS.get(profile.implementation or "")
    return row is not None and row.by_hand


def _per_cell(profile: StepProfile, name: str) -> float:
    return counted(profile, name) / profile.cells if profile.cells else 0.0


def variant_cell(f: Finding) -> Match | None:
    """Match a cell that does work in every time step that no library's layer op can do."""
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
    """Return the work that a loop of cells does and no layer op can do, or None.

    The result is (name of the work, calls per time step, a library with such a cell or None).
    """
    steps = _looped_time_steps(profile)
    if not steps:
        return None
    ops = profile.rows("ops")
    for what, pattern, elsewhere in _EXTRAS:
        times = sum(r["count"] for r in ops if pattern.search(r["name"])) / profile.steps / steps
        if times >= _EACH:
            return what, times, elsewhere
    peepholes = profile.seen.peepholes / steps
    return (_PEEPHOLES, peepholes, None) if peepholes >= 2 * _EACH else None


def _looped_time_steps(profile: StepProfile) -> float:
    """Return the number of time steps per training step that run as a loop; 0 if unknown."""
    loops = [row for row in profile.rows("layers") if row["form"] == LOOP and row["time_steps"]]
    return float(sum(row["time_steps"] * (row["calls"] or 0) for row in loops)) / profile.steps


def scanned_layer(f: Finding) -> Match | None:
    """Match a recurrent layer of JAX that runs as a loop of XLA on a GPU."""
    profile = f.slow
    if profile.device is None or any(c.part == "rnn" for c in profile.contributors):
        return None
    layer = scanned(profile)
    if layer is None:
        return None
    products = _products_in_loop(profile)
    seen = f"the loop runs {count(products)} matmuls{profile.per_step}" if products else ""
    return Match(
        seen, cause=f"JAX runs {layer} as a loop over time steps (lax.scan) instead of cuDNN"
    )


def scanned(profile: StepProfile) -> str | None:
    """Return a name for the layer that a loop of JAX computes, such as ``the LSTM``.

    Return None if no such loop is known or cuDNN has no such layer.
    """
    row = implementations.ROWS.get(profile.implementation or "")
    if row is not None:
        return "the layer" if row.form_on("cuda") == LOOP and row.library != "keras" else None
    paths = profile.seen.paths
    if _products_in_loop(profile) < _SERIES or is_keras(profile):
        return None
    if any(_LSTM.search(path) for path in paths):
        return "the LSTM"
    recurrent = any(_JAX_TANH.search(path) for path in paths)
    named_otherwise = any(_GRU.search(path) for path in paths)
    return "what is likely an LSTM" if recurrent and not named_otherwise else None


def small_loop(f: Finding) -> Match | None:
    """Match a loop of XLA on a GPU if the median kernel is shorter than the median gap."""
    profile = f.slow
    saves_ns = series_of_launches(f)
    gaps, times = profile.seen.gaps, max(_loops(profile).values(), default=0.0)
    if saves_ns is None or gaps is None or times < _SERIES:
        return None
    seen = f"the body of a loop runs {often(profile, times)}; "
    return Match(f"{seen}{kernels_and_gaps(gaps)}", saves_ns)


def _loops(profile: StepProfile) -> dict[str, float]:
    """Return name-scope path → times per step that XLA's loop of this path runs its body."""
    times: dict[str, float] = {}
    for path, number in profile.seen.paths.items():
        loop, body, _ = path.partition("while/body")
        if body:
            times[loop] = max(times.get(loop, 0.0), number)
    return times


def gates_apart(f: Finding) -> Match | None:
    """Match a loop of XLA on a CPU that runs a separate matmul for each gate's weights.

    XLA calls each op of the loop from a table (thunks). One such call takes longer than a small op.
    """
    profile = f.slow
    rows = [row for row in profile.rows("layers") if row.get("rung") == SEPARATE_PRODUCTS]
    if profile.runs_on != "cpu" or not rows or 4 * f.slow_ns < profile.length_ns:
        return None
    steps = sum((row["time_steps"] or 0) * (row["calls"] or 0) for row in rows) / profile.steps
    forward = sum(
        times
        for path, times in profile.seen.paths.items()
        if _PRODUCT.search(path) and "transpose(" not in path
    )
    if not steps or forward <= steps:
        return None
    return Match(
        f"{count(steps)} time steps run {count(forward)} matmuls, but need only one per time step"
    )


def _products_in_loop(profile: StepProfile) -> float:
    return sum(times for path, times in profile.seen.paths.items() if _PRODUCT.search(path))


def scan_of_pytensor(f: Finding) -> Match | None:
    """Match the op Scan of PyTensor or Theano, a loop that calls the cell's ops one by one."""
    scans = times_called(f.slow, SCAN)
    if not scans:
        return None
    fix = ""
    if f.slow.framework == "theano":
        fix = "move to PyTensor, which can compile the whole loop (mode='NUMBA')"
    return Match(f"Scan runs {often(f.slow, scans)}", fix=fix)


FUSE_THE_CELL = Remedy(
    name="fuse the cell",
    cause="the cell is not a plain LSTM, so no framework op can run the whole layer",
    fix="compile the cell or its loop: torch.compile, tf.function(jit_compile=True) or jax.jit",
    condition="The layer runs as a loop of cells. Each time step also does one of these: it runs a "
    "normalisation, draws random numbers, or multiplies the state by a vector of weights twice "
    "(peepholes)",
    kinds=(*HOST, *WORK),
    decide=variant_cell,
    sources=("https://github.com/lmnt-com/haste", "https://arxiv.org/abs/1607.06450"),
    example=Example(
        of="an LSTM written by hand with nn.LayerNorm over its gates, 12 time steps, PyTorch on a "
        "CPU",
        seen="the cell computes a normalisation once per time step",
    ),
)
CUDNN_FOR_JAX = Remedy(
    name="cuDNN for JAX",
    cause="JAX runs the LSTM as a loop over time steps (lax.scan) instead of cuDNN",
    fix="call jax.experimental.rnn.lstm: cuDNN runs the layer in one call (NVIDIA GPUs, not "
    "bfloat16)",
    condition="A GPU runs a loop with eight or more matmuls per training step. The names of its "
    "ops contain LSTM, or it computes tanh and the names contain no other type of cell. The "
    "profile shows no cuDNN layer op and no Keras layer",
    kinds=(*HOST, *WORK),
    frameworks=JAX,
    decide=scanned_layer,
    sources=(
        "https://github.com/jax-ml/jax/issues/13111",
        "https://github.com/jax-ml/jax/pull/13319",
        "https://github.com/keras-team/keras/pull/22399",
    ),
)
VALUES_IN_LOOP = Remedy(
    name="no value in the loop",
    cause="the loop over time steps reads a value (.item()) in every time step",
    fix="keep the value as a tensor, and read the tensor after the loop",
    condition="The step calls a cell, such as LSTMCell, once per time step. After half or more of "
    "these calls, an op reads a value (aten::item) before the next cell starts",
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
    cause="the layer runs one cell at a time",
    fix="use torch.nn.LSTM (Keras on a GPU: keras.layers.LSTM): one call runs all time steps",
    condition="A layer runs cell by cell. lstmprof knows this if it captured such an "
    "implementation, if an op computes single cells, or if a step runs eight or more LSTM cells. "
    "On a CPU, only PyTorch's layers count, because the layer ops of other frameworks were not "
    "faster there. GRUs and RNNs on a CPU count only if dispatch and Python take half of the step",
    kinds=(*HOST, *WORK),
    frameworks=(*TORCH, *TENSORFLOW, *TENSORFLOW_1),
    decide=layer_in_one_op,
    sources=("https://arxiv.org/abs/1604.01946", "https://github.com/apache/mxnet/issues/5038"),
    example=Example(
        of="an LSTM written by hand (32 units, batch 8), PyTorch 2.13 on a CPU",
        seen="a loop of 20 cells per step",
        gain="2.25 → 0.49 ms per step",
    ),
)
LAYER_OUTSIDE_COMPILED_CODE = Remedy(
    name="layer outside compiled code",
    cause="torch.compile or torch.export unrolls the recurrent layer into single time steps",
    fix="keep nn.LSTM and nn.GRU out of compiled code: torch.compiler.disable, and allow_rnn off",
    condition="One call of compiled code multiplies a state by the weights of all gates eight or "
    "more times. The profile must contain shapes. On a CPU, only an LSTM in float32 or bfloat16 "
    "counts",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    decide=unrolled_layer,
    sources=(
        "https://github.com/pytorch/pytorch/issues/140845",
        "https://github.com/pytorch/pytorch/issues/185135",
        "https://github.com/pytorch/pytorch/pull/185163",
        "https://github.com/pytorch/pytorch/issues/186091",
    ),
    example=Example(
        of="nn.LSTM compiled with allow_rnn over 16 time steps (32 units, batch 8), PyTorch 2.13 "
        "on a CPU without oneDNN",
        seen="compiled code runs 16 LSTM cells one by one",
        gain="2.3 → 1.0 ms per step; compiling took 170 s",
    ),
)
WHOLE_SEQUENCE = Remedy(
    name="whole sequence in one call",
    cause="a recurrent layer is called once per time step",
    fix=f"pass the whole sequence to nn.LSTM in one call, {_UNLESS}",
    condition="A step calls aten::lstm, aten::gru or an RNN op eight or more times, each time for "
    "one time step. If shapes were not recorded, it must call the op 16 or more times. Calls "
    "inside Keras layers do not count",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    first=True,
    decide=one_time_step_per_call,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",),
    example=Example(
        of="nn.LSTM called for each of 50 time steps (32 units, batch 8), PyTorch 2.13 on a CPU",
        seen="50 aten::lstm calls per step, each for one time step",
        gain="15.3 → 2.7 ms per step",
    ),
)
INPUTS_AT_ONCE = Remedy(
    name="input matmul before the loop",
    cause="the matmul of the inputs runs in every time step",
    fix="multiply the inputs of all time steps in one matmul before the loop",
    condition="In each time step, a handwritten cell runs a matmul that does not depend on the "
    "previous time step. On a CPU, dispatch must also take half of the step or more",
    kinds=(GEMM, LAUNCH, DISPATCH),
    decide=input_matmuls,
    sources=("https://arxiv.org/abs/1604.01946",),
)
WHOLE_SCAN = Remedy(
    name="Scan as a whole",
    cause="Scan calls the cell's operators one by one in every time step",
    fix="compile the whole loop: mode='NUMBA' or mode='JAX'",
    condition="The step runs the op Scan (in Theano: for or do_while), which calls other operators",
    kinds=(DISPATCH, LAUNCH, MEMORY, GEMM),
    frameworks=("pytensor", "theano"),
    decide=scan_of_pytensor,
    sources=(
        "https://github.com/keras-team/keras/issues/1063",
        "https://pytensor.readthedocs.io/en/latest/library/scan.html",
    ),
)
FUSED_CELL = Remedy(
    name="fused cell",
    cause="the cell computes its gates with many small ops",
    fix="use torch.nn.LSTMCell, which computes all gates in one kernel, or torch.compile(cell)",
    condition="A handwritten cell runs five or more elementwise ops per time step. On a CPU, the "
    "run must also be compared with a faster run of torch-compile",
    kinds=(LAUNCH, MEMORY, DISPATCH),
    frameworks=TORCH,
    decide=separate_gates,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html",
        "https://arxiv.org/abs/1604.01946",
    ),
)
GATES_TOGETHER = Remedy(
    name="gates together",
    cause="the loop over time steps runs many small ops: one matmul for each gate",
    fix="keep the weights of all gates in one array: one matmul per time step, then jnp.split",
    condition="A CPU runs a recurrent layer of JAX as a loop with several matmuls per time step, "
    "and each matmul computes only some of the gates. Dispatch takes a quarter of the step or more",
    kinds=(DISPATCH,),
    frameworks=JAX,
    decide=gates_apart,
    sources=(
        "https://github.com/jax-ml/jax/issues/36799",
        "https://github.com/jax-ml/jax/issues/40150",
        "https://github.com/jax-ml/jax/issues/26145",
    ),
    example=Example(
        of="an LSTM in lax.scan with eight weight matrices over 50 time steps (32 units, batch 8), "
        "JAX 0.10 on a CPU",
        seen="50 time steps run 400 matmuls, but need only one per time step",
        gain="1.51 → 0.85 ms per step; unroll=5 took 2.06 ms",
    ),
)
UNROLL_THE_LOOP = Remedy(
    name="unroll the loop",
    cause="XLA runs a loop with tiny kernels: the GPU waits between the kernels",
    fix="give lax.scan a larger body (unroll=4), or run a network of this size on a CPU",
    condition="The GPU waits for launches, and the ops of a loop compiled by XLA run eight or more "
    "times per step",
    kinds=HOST,
    frameworks=JAX,
    saves="the usual gaps between kernels",
    decide=small_loop,
    sources=(
        "https://github.com/jax-ml/jax/issues/2491",
        "https://github.com/jax-ml/jax/issues/29946",
        "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    ),
    example=Example(
        of="lax.scan over 8 time steps on a GPU (a generated profile)",
        seen="the body of a loop runs 16 times per step; the median kernel takes 3.0 µs, and the "
        "median idle gap before a kernel takes 30.0 µs",
    ),
)
LOOP_WITHOUT_THE_HOST = Remedy(
    name="loop without the host",
    cause="a while_loop or scan of torch asks the host after each iteration whether to go on",
    fix="run the loop a fixed number of times in Python, and replay the step as a CUDA graph",
    condition="A GPU runs compiled code, and the host reads eight or more values from the GPU in "
    "one call of that code",
    kinds=(SYNC, *HOST),
    frameworks=TORCH,
    decide=loop_asks_host,
    sources=(
        "https://github.com/pytorch/pytorch/issues/166516",
        "https://github.com/pytorch/rl/pull/4217",
        "https://github.com/pytorch/rl/pull/4160",
    ),
    example=Example(
        of="a compiled while_loop of 16 iterations (a generated profile)",
        seen="one call of compiled code reads 17 values from the GPU",
        gain="204 → 11 ms with a CUDA graph in pytorch/rl#4217",
    ),
)
PARALLEL_FORM = Remedy(
    name="parallel form",
    cause="a recurrent network that can run all time steps at once runs them one by one",
    fix="install the network's GPU kernels, or use its form that computes all time steps at once",
    condition="A module, function or range named mLSTM, sLSTM, xLSTM, Mamba, selective_scan, "
    "minGRU or minLSTM calls the same op 32 or more times, and no kernel made for these networks "
    "runs. On a GPU, the GPU must wait for launches. On a CPU, only mLSTM, xLSTM, minGRU and "
    "minLSTM count",
    kinds=(*HOST, *WORK),
    frameworks=TORCH,
    decide=reference_form,
    sources=(
        "https://github.com/NX-AI/mlstm_kernels",
        "https://github.com/NX-AI/xlstm/issues/61",
        "https://github.com/huggingface/transformers/issues/40765",
        "https://arxiv.org/abs/2410.01201",
    ),
    example=Example(
        of="mLSTM that loops over 64 time steps (16 units, batch 4), PyTorch 2.13 on a CPU",
        seen="mLSTMCell calls the same op 256 times",
        gain="38.5 → 0.4 ms per step with the parallel form",
    ),
)

"""Causes: loops over time steps in JAX (``lax.scan``), PyTensor and Theano (``Scan``).

The names of XLA instructions show JAX's loops:
``jit(step)/jvp(RNN_0)/while/body/OptimizedLSTMCell_0/dot_general``.
"""

from __future__ import annotations

import re

from lstmprof import implementations
from lstmprof.base.numbers import count
from lstmprof.breakdown.recurrent.ladder import SEPARATE_PRODUCTS
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.causes import DISPATCH, GEMM, LAUNCH, MEMORY
from lstmprof.diagnose.remedies.keras import is_keras
from lstmprof.diagnose.remedies.rows import (
    HOST,
    JAX,
    WORK,
    Match,
    Remedy,
    kernels_and_gaps,
    often,
    series_of_launches,
    times_called,
)
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate.rules.graphs import SCAN
from lstmprof.implementations import LOOP

#: Smallest number of matmuls, or of runs of a loop's body, per step at which lstmprof assumes a
#: loop over time. Chosen by hand.
_SERIES = 8
_PRODUCT = re.compile(r"while/body/.*dot_general$")
#: Pattern of matmuls in the loop, and of ops that every matmul adds to the loop.
_BY_MATMUL = re.compile(r"while/body/.*(?:dot_general|transpose|add_any)$")
_JAX_TANH = re.compile(r"while/body/.*tanh$")
_LSTM, _GRU = re.compile(r"(?i)lstm.*while/body/|while/body/.*lstm"), re.compile(r"(?i)gru")


@Remedy(
    name="cuDNN for JAX",
    cause="JAX runs the LSTM as a loop over time steps (lax.scan) instead of cuDNN",
    fix="call jax.experimental.rnn.lstm: cuDNN runs the layer in one call (NVIDIA GPUs, not "
    "bfloat16)",
    condition="A GPU runs an LSTM as a loop with eight or more matmuls per training step, "
    "without cuDNN's layer op. The layer is not from Keras",
    kinds=(*HOST, *WORK),
    frameworks=JAX,
    sources=(
        "https://github.com/jax-ml/jax/issues/13111",
        "https://github.com/jax-ml/jax/pull/13319",
        "https://github.com/keras-team/keras/pull/22399",
    ),
)
def scanned_layer(f: Finding) -> Match | None:
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
    """Name a layer in a JAX loop that cuDNN could compute, such as ``the LSTM``."""
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
    return "a layer that is probably an LSTM" if recurrent and not named_otherwise else None


@Remedy(
    name="unroll the loop",
    cause="XLA runs a loop with tiny kernels: the GPU waits between the kernels",
    fix="give lax.scan a larger body (unroll=4), or run a network of this size on a CPU",
    condition="The GPU waits for launches, and the body of a loop compiled by XLA runs eight or "
    "more times per step",
    kinds=HOST,
    frameworks=JAX,
    sources=(
        "https://github.com/jax-ml/jax/issues/2491",
        "https://github.com/jax-ml/jax/issues/29946",
        "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    ),
)
def small_loop(f: Finding) -> Match | None:
    profile = f.slow
    saves_ns = series_of_launches(f)
    gaps = profile.seen.gaps
    in_loop = (number for path, number in profile.seen.paths.items() if "while/body" in path)
    times = max(in_loop, default=0.0)
    if saves_ns is None or gaps is None or times < _SERIES:
        return None
    seen = f"the body of a loop runs {often(profile, times)}; "
    return Match(f"{seen}{kernels_and_gaps(gaps)}", saves_ns)


@Remedy(
    name="gates together",
    cause="the loop over time steps runs many small ops: one matmul for each gate",
    fix="keep the weights of all gates in one array: one matmul per time step, then jnp.split",
    condition="A recurrent layer of JAX on a CPU computes its gates by several matmuls per time "
    "step instead of one. Calling ops (dispatch) takes a quarter of the step or more",
    kinds=(DISPATCH,),
    frameworks=JAX,
    sources=(
        "https://github.com/jax-ml/jax/issues/36799",
        "https://github.com/jax-ml/jax/issues/40150",
        "https://github.com/jax-ml/jax/issues/26145",
    ),
)
def gates_apart(f: Finding) -> Match | None:
    profile = f.slow
    rows = [row for row in profile.rows("layers") if row.get("rung") == SEPARATE_PRODUCTS]
    # XLA on a CPU calls the ops of a loop one by one, so calls take longer than small ops
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
    paths = {path: times for path, times in profile.seen.paths.items() if "while/body/" in path}
    by_matmul = sum(times for path, times in paths.items() if _BY_MATMUL.search(path))
    needless = (1 - steps / forward) * by_matmul  # one path per gate in Flax, one for all elsewhere
    return Match(
        f"{count(steps)} time steps run {count(forward)} matmuls, but one per time step is enough",
        round(f.slow_ns * needless / sum(paths.values())),
    )


def _products_in_loop(profile: StepProfile) -> float:
    return sum(times for path, times in profile.seen.paths.items() if _PRODUCT.search(path))


@Remedy(
    name="Scan as a whole",
    cause="Scan calls the cell's operators one by one in every time step",
    fix="compile the whole loop: mode='NUMBA' or mode='JAX'",
    condition="The step runs the op Scan (in Theano: for or do_while)",
    kinds=(DISPATCH, LAUNCH, MEMORY, GEMM),
    frameworks=("pytensor", "theano"),
    sources=(
        "https://github.com/keras-team/keras/issues/1063",
        "https://pytensor.readthedocs.io/en/latest/library/scan.html",
    ),
)
def scan_of_pytensor(f: Finding) -> Match | None:
    scans = times_called(f.slow, SCAN)
    if not scans:
        return None
    moved = "move to PyTensor, which can compile the whole loop (mode='NUMBA')"
    fix = moved if f.slow.framework == "theano" else ""
    return Match(f"Scan runs {often(f.slow, scans)}", fix=fix)

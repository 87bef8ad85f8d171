"""Loops over the time steps in which a framework's compiler or machine runs a cell.

JAX's ``lax.scan`` is a ``while`` of XLA, whose instructions have paths like
``jit(step)/jvp(RNN_0)/while/body/OptimizedLSTMCell_0/dot_general``; PyTensor's Scan is an operator
that calls a compiled function once per time step.
"""

from __future__ import annotations

import re

from lstmprof.diagnose.causes import DISPATCH, GEMM, LAUNCH, MEMORY
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.keras import is_keras
from lstmprof.diagnose.remedies.told import HOST, JAX, WORK, Remedy, Told, often, times_called
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate.rules.pytensor import SCAN
from lstmprof.implementations import LOOP, ROWS

_PRODUCT = re.compile(r"while/body/.*dot_general$")
_TANH = re.compile(r"while/body/.*tanh$")
_LSTM, _GRU = re.compile(r"(?i)lstm.*while/body/|while/body/.*lstm"), re.compile(r"(?i)gru")
#: Fewer products per step are those of no loop over time steps.
_TIME_STEPS = 8


def scanned_layer(f: Finding) -> Told | None:
    """JAX runs a recurrent layer as a loop of XLA on a GPU."""
    profile = f.slow
    if profile.device is None or any(c.part == "rnn" for c in profile.contributors):
        return None
    layer = _scanned(profile)
    if layer is None:
        return None
    products = sum(times for path, times in profile.seen.paths.items() if _PRODUCT.search(path))
    seen = f", with {often(profile, products)} a product in it" if products else ""
    return Told(
        f"{layer} is a loop of XLA over the time steps (lax.scan){seen}: jax.experimental.rnn.lstm "
        "runs an LSTM's layers on cuDNN in one call, on NVIDIA's GPUs, and not in bfloat16"
    )


def _scanned(profile: StepProfile) -> str | None:
    """What a loop of JAX computes, as far as it is a recurrent layer that cuDNN has."""
    row = ROWS.get(profile.implementation or "")
    if row is not None:
        return "its layer" if row.form_on("cuda") == LOOP and row.library != "keras" else None
    paths = profile.seen.paths
    products = sum(times for path, times in paths.items() if _PRODUCT.search(path))
    if products < _TIME_STEPS or is_keras(profile):
        return None
    if any(_LSTM.search(path) for path in paths):
        return "its LSTM"
    recurrent = any(_TANH.search(path) for path in paths)
    named_otherwise = any(_GRU.search(path) for path in paths)
    return "what may be its LSTM" if recurrent and not named_otherwise else None


def scan_of_pytensor(f: Finding) -> Told | None:
    """PyTensor or Theano calls a function for every time step, and its operators one by one."""
    scans = times_called(f.slow, SCAN)
    if not scans:
        return None
    whole = "try a mode that compiles the loop as a whole (mode='NUMBA' or 'JAX')"
    if f.slow.framework == "theano":
        whole = "try PyTensor, Theano's heir, which compiles the loop as a whole (mode='NUMBA')"
    return Told(
        f"Scan runs {often(f.slow, scans)}, and calls its operators one by one in every time step: "
        f"leave none in it that the time step before does not need, and {whole}"
    )


CUDNN_FOR_JAX = Remedy(
    name="cuDNN for JAX",
    cause="JAX, Flax and such run an LSTM as a loop of XLA; cuDNN's layer is apart from them",
    condition="on a GPU a loop with eight products or more per step and LSTM in its path, or tanh "
    "and no name of another cell; no op of cuDNN's layers, and no layer of Keras",
    kinds=(*HOST, *WORK),
    frameworks=JAX,
    decide=scanned_layer,
    sources=(
        "https://github.com/jax-ml/jax/issues/13111",
        "https://github.com/jax-ml/jax/pull/13319",
        "https://github.com/keras-team/keras/pull/22399",
    ),
)
WHOLE_SCAN = Remedy(
    name="Scan as a whole",
    cause="Scan of PyTensor or Theano calls the operators of a cell one by one in every time step",
    condition="operators inside an op Scan, of Theano for",
    kinds=(DISPATCH, LAUNCH, MEMORY, GEMM),
    frameworks=("pytensor", "theano"),
    decide=scan_of_pytensor,
    sources=(
        "https://github.com/keras-team/keras/issues/1063",
        "https://pytensor.readthedocs.io/en/latest/library/scan.html",
    ),
)

"""Causes that keep Keras from running an LSTM or GRU layer with cuDNN, such as a mask.

Sources: "requirements to use the cuDNN implementation" in the documentation of keras.layers.LSTM
and GRU, and keras/src/backend/*/rnn.py of Keras 3.15. On JAX, Keras uses cuDNN
since 3.14 (keras-team/keras#22399). On PyTorch, some versions run a loop (keras-team/keras#22874).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lstmprof.base.numbers import listed
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.rows import (
    HOST,
    JAX,
    TENSORFLOW,
    TORCH,
    WORK,
    Match,
    Remedy,
    often,
    times_called,
)
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import LOOP, ROWS

#: (pattern of an op in a Keras cell that shows an option without cuDNN support, option to set).
_KERAS = (
    (
        r"(?:lstm|gru)_cell\w*/(?:hard_sigmoid|clip_by_value|Relu6|jit\((?:hard_sigmoid|relu6)\))",
        "recurrent_activation='sigmoid'",
    ),
    (
        r"(?:lstm|gru)_cell\w*/(?:(?:Relu|Elu|Selu|Softplus|Softsign)\b"
        r"|jit\((?:relu|elu|selu|softplus|soft_sign)\))",
        "activation='tanh'",
    ),
    (r"(?:lstm|gru)_cell\w*/.*(?:dropout|random_uniform)", "recurrent_dropout=0"),
)
#: Patterns that show recurrent dropout in Keras 3 if both match: masks drawn outside the cell, and
#: one matmul per gate.
_DROPOUT = re.compile(r"(?:lstm|gru)\w*/stateless_dropout")
_PRODUCT_A_GATE = re.compile(r"while/(?:lstm|gru)_cell\w*/MatMul_7:")
_UNROLLED = re.compile(r"(?<![a-z_])(?:lstm|gru)_cell_\d+/")
_LOOP = re.compile(r"(?:lstm|gru)\w*\)*/.*while", re.IGNORECASE)
#: Pattern of a Keras cell's name scope, but not of TensorFlow's own cells (basic_lstm_cell).
_KERAS_CELL = re.compile(r"(?<![a-z_])(?:lstm|gru)_cell\w*/")
#: Pattern of reads of a layer's weights. Only these reads name the layer once Keras 2 has inlined
#: the layer's loop (standard_lstm).
_READS = re.compile(r"(?<![a-z_])(?:lstm|gru)(?:_\d+)?/Read(?:_\d)?/ReadVariableOp:")
_INLINED = re.compile(r"(?:^|PartitionedCall/)while(?:_\d+)?/(?:body/_\d+/while/)?")
#: Patterns of name-scope paths, with the loop as group 1: a cell, and an op that applies a mask.
_LOOP_OF_CELL = re.compile(r"(.*while/(?:body/)?)(?:lstm|gru|simple_rnn)_cell\w*/")
_CHOICE = re.compile(r"(.*while/(?:body/)?)(?:SelectV2(?:_\d+)?(?::SelectV2)?|select_n)")
_LAYERS_LOOP = re.compile(r"(?i)(?:lstm|gru|rnn)\w*\)*/while/(?:body/)?$")
_CALLS = re.compile(r"closed_call/|jit\(_where\)/")
_WHERE, _TANH = re.compile(r"^aten::where$"), re.compile(r"^aten::tanh$")
_CUDNN = re.compile(r"CudnnRNN|_cudnn_rnn|miopen_rnn|mkldnn_rnn_layer|aten::lstm$|aten::gru$")
_NAMES = {"torch": "PyTorch", "jax": "JAX"}
#: Smallest number of uses of a mask per step at which lstmprof assumes a loop over time steps.
#: Chosen by hand.
_TIME_STEPS = 8
_SIMILAR = "batch sequences of similar length"

_MATMUL = re.compile(r"while/.*(?::(?:_\w+)?MatMul|/MatMul(?:_\d+)?)$")
_KERAS_LAYER = re.compile(r"(?<![a-z_])(?:lstm|gru)(?:_\d+)?/(?:.*/)?while/")


@Remedy(
    name="Keras on cuDNN",
    cause="an option of the Keras layer rules out cuDNN",
    fix="set activation='tanh', recurrent_activation='sigmoid', recurrent_dropout=0, unroll=False",
    condition="A Keras cell runs on a GPU, and the names of its ops show an option that cuDNN does "
    "not support",
    kinds=(*HOST, *WORK),
    frameworks=(*TENSORFLOW, *JAX),
    sources=(
        "https://keras.io/api/layers/recurrent_layers/lstm/",
        "https://github.com/tensorflow/tensorflow/issues/38236",
        "https://github.com/tensorflow/tensorflow/issues/33148",
    ),
)
def keras_without_cudnn(f: Finding) -> Match | None:
    unmet = unmet_by_keras(f.slow)
    return Match(fix=f"set {listed(unmet)}: cuDNN needs this") if unmet else None


def unmet_by_keras(profile: StepProfile) -> list[str]:
    """Return Keras options to set so that cuDNN can run: ``unroll=False``."""
    if profile.runs_on != "cuda":
        return []
    row = ROWS.get(profile.implementation or "")
    if row is not None and row.library == "keras" and row.form_on("cuda") == LOOP:
        return ["use_cudnn='auto'"]
    names = names_of(profile)
    cells = [name for name in names if _KERAS_CELL.search(name)]
    wants = [want for pattern, want in _KERAS if any(re.search(pattern, name) for name in cells)]
    if _any(_DROPOUT, names) and _any(_PRODUCT_A_GATE, cells):
        wants.append("recurrent_dropout=0")
    if _any(_UNROLLED, cells) and not _any(_LOOP, names):
        wants.append("unroll=False")
    return wants


def names_of(profile: StepProfile) -> list[str]:
    """Return the names of the ops, and the name-scope paths of recurrent layers."""
    return [*(row["name"] for row in profile.rows("ops")), *profile.seen.paths]


def _any(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(pattern.search(name) for name in names)


def is_keras(profile: StepProfile) -> bool:
    row = ROWS.get(profile.implementation or "")
    if row is not None:
        return row.library == "keras"
    return profile.seen.keras_frames or _any(_KERAS_CELL, profile.seen.paths)


def _in_one_op(profile: StepProfile) -> bool:
    """Return whether a recurrent layer ran as one op."""
    rnn = any(c.part == "rnn" for c in profile.contributors)
    return rnn or _any(_CUDNN, names_of(profile))


def masks_in_the_loop(profile: StepProfile) -> float:
    """Count how often per step a layer's loop applies a mask to its state."""
    if profile.framework in TORCH:
        # PyTorch's ops have no name scope, so use Keras's Python frames and the number of tanh ops
        times = times_called(profile, _WHERE) if profile.seen.keras_frames else 0.0
        return times if times >= max(times_called(profile, _TANH), _TIME_STEPS) else 0.0
    paths = {_CALLS.sub("", path): times for path, times in profile.seen.paths.items()}
    loops = {match[1] for path in paths if (match := _LOOP_OF_CELL.match(path))}
    choices = ((_CHOICE.fullmatch(path), times) for path, times in paths.items())
    return sum(
        times
        for match, times in choices
        if match and (match[1] in loops or _is_recurrent_loop(match[1], profile.seen.paths))
    )


def masks_seen_going_in(profile: StepProfile) -> bool:
    """Return whether a Keras model that loops over cells got padded sequences."""
    if profile.info.padding is None:
        return False
    return profile.seen.keras_frames or any(map(_LOOP_OF_CELL.match, profile.seen.paths))


def is_masked(profile: StepProfile) -> bool:
    return masks_in_the_loop(profile) > 0 or masks_seen_going_in(profile)


def _is_recurrent_loop(loop: str, paths: Iterable[str]) -> bool:
    """Return whether a name-scope path is the loop of a recurrent layer."""
    named = _LAYERS_LOOP.search(loop) is not None
    return named or (_INLINED.fullmatch(loop) is not None and _any(_READS, paths))


@Remedy(
    name="pad at the end",
    cause="a mask makes the recurrent layer run one time step at a time",
    fix=f"pad sequences at the end (padding='post'), as cuDNN requires; {_SIMILAR}",
    condition="No single op runs the whole recurrent layer, and one of two signs shows a mask: the "
    "layer applies a mask eight or more times per step, or `lstmprof run` saw a Keras model mask "
    "padded sequences",
    kinds=(*HOST, *WORK),
    frameworks=(*TENSORFLOW, *JAX, *TORCH),
    sources=(
        "https://keras.io/api/layers/recurrent_layers/lstm/",
        "https://github.com/tensorflow/tensorflow/issues/30745",
        "https://github.com/tensorflow/tensorflow/issues/33148",
    ),
)
def masked(f: Finding) -> Match | None:
    times = masks_in_the_loop(f.slow)
    counted = times >= _TIME_STEPS
    if not (counted or masks_seen_going_in(f.slow)) or _in_one_op(f.slow):
        return None
    parts = [f"the layer applies the mask {often(f.slow, times)}"] if counted else []
    if f.slow.framework in TENSORFLOW:
        # only Keras on TensorFlow uses cuDNN with a mask, and only with padding at the end
        side = {"front": "at the front", "behind": "at the end"}.get(f.slow.info.padding or "")
        parts += [f"sequences are padded {side}"] if side else []
        no_use = f.slow.runs_on == "cpu" or side == "at the end"
        return Match("; ".join(parts), fix=_SIMILAR if no_use else "")
    parts.append(f"Keras on {_NAMES[f.slow.framework or '']} uses cuDNN only without a mask")
    fix = f"use sequences of one length without a mask (mask_zero=False), or {_SIMILAR}"
    return Match("; ".join(parts), fix=fix)


@Remedy(
    name="Keras off its standard loop",
    cause="Keras runs its own loop over time steps on the GPU instead of cuDNN",
    fix="set use_cudnn=True (Keras 3): Keras then raises an error that says why cuDNN cannot run",
    condition="A GPU runs a Keras layer as a loop instead of a cuDNN op. The profile shows no "
    "known obstacle to cuDNN, such as a mask",
    kinds=(*HOST, *WORK),
    frameworks=TENSORFLOW,
    sources=(
        "https://github.com/tensorflow/tensorflow/issues/29506",
        "https://github.com/tensorflow/tensorflow/issues/50325",
        "https://github.com/tensorflow/tensorflow/issues/50488",
    ),
)
def standard_loop(f: Finding) -> Match | None:
    profile, names = f.slow, names_of(f.slow)
    if profile.runs_on != "cuda" or profile.implementation in ROWS or _in_one_op(profile):
        return None
    products = [name for name in names if _MATMUL.search(name)]
    inlined = _any(_READS, names) and _any(_INLINED, products)
    if not inlined and not _any(_KERAS_LAYER, products):
        return None
    if unmet_by_keras(profile) or is_masked(profile):
        return None
    return Match("possible reasons: stateful=True, or a loop around the layer")


@Remedy(
    name="a layer op for Keras",
    cause="Keras runs the layer as a loop over time steps, not in one op",
    fix="with PyTorch, use torch.nn.LSTM; with JAX, Keras 3.14 or jax.experimental.rnn.lstm",
    condition="Keras runs the recurrent layer in several ops, on PyTorch, or on JAX and a GPU. If "
    "a GPU runs the layer, the profile shows no known obstacle to cuDNN, such as a mask",
    kinds=(*HOST, *WORK),
    frameworks=(*TORCH, *JAX),
    sources=(
        "https://github.com/keras-team/keras/issues/20902",
        "https://github.com/keras-team/keras/issues/19177",
        "https://github.com/keras-team/keras/issues/22274",
        "https://github.com/keras-team/keras/pull/22874",
        "https://github.com/keras-team/keras/pull/22399",
    ),
)
def own_loop(f: Finding) -> Match | None:
    profile = f.slow
    if profile.implementation in ROWS or not is_keras(profile) or _in_one_op(profile):
        return None
    on_torch = profile.framework in TORCH
    if on_torch and profile.runs_on == "cpu":
        return Match(
            f"{_version(profile)} has no op for a whole layer on a CPU",
            fix="use torch.nn.LSTM, not Keras's layer: one call runs all time steps of a layer",
        )
    if is_masked(profile) or profile.runs_on != "cuda":
        return None
    if not on_torch and unmet_by_keras(profile):
        return None
    if on_torch:
        return Match(
            f"{_version(profile)} did not use cuDNN: Keras before 3.10 never uses cuDNN on "
            "PyTorch, and some later versions silently fall back to a loop",
            fix="upgrade Keras, or use torch.nn.LSTM",
        )
    return Match(
        f"{_version(profile)} did not use cuDNN: Keras before 3.14 cannot use cuDNN",
        fix="upgrade Keras to 3.14 or later, or call jax.experimental.rnn.lstm",
    )


def _version(profile: StepProfile) -> str:
    """Return Keras's version and framework, such as ``Keras 3.15 on PyTorch``."""
    version = (profile.info.versions or {}).get("keras")
    return f"Keras {version or ''}".strip() + f" on {_NAMES[profile.framework or '']}"

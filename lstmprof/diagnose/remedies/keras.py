"""What keeps a layer of Keras from its fast path.

The conditions are those of the documentation of keras.layers.LSTM and GRU ("requirements to use the
cuDNN implementation") and of keras/src/backend/*/rnn.py of Keras 3.15: on TensorFlow cuDNN takes
masks of sequences padded at their end, on PyTorch and JAX none; on PyTorch and JAX only cuDNN has a
whole layer. On JAX Keras has that path since 3.14 (keras-team/keras#22399); on PyTorch it was there
and failed unseen in several versions (keras-team/keras#22874).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import (
    HOST,
    JAX,
    TENSORFLOW,
    TORCH,
    WORK,
    Example,
    Remedy,
    Told,
    often,
    times_called,
)
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import LOOP, ROWS
from lstmprof.numbers import listed

#: What an op inside a cell of Keras says of the layer's options: TensorFlow's types and scopes, the
#: functions of jax.nn in JAX's paths.
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
#: Keras 3 draws dropout in the layer; for the recurrent one alone its cell has a product a gate.
_DROPOUT = re.compile(r"(?:lstm|gru)\w*/stateless_dropout")
_PRODUCT_A_GATE = re.compile(r"while/(?:lstm|gru)_cell\w*/MatMul_7:")
_UNROLLED = re.compile(r"(?<![a-z_])(?:lstm|gru)_cell_\d+/")
_LOOP = re.compile(r"(?:lstm|gru)\w*\)*/.*while", re.IGNORECASE)
#: A cell of Keras; TensorFlow's own are called basic_lstm_cell or stand in a scope rnn.
_KERAS_CELL = re.compile(r"(?<![a-z_])(?:lstm|gru)_cell\w*/")
#: Keras 2 runs a layer that is not on cuDNN by a function of its own, standard_lstm. Once that is
#: inlined its loop has no scope, and only reading the weights has the layer's.
_READS = re.compile(r"(?<![a-z_])(?:lstm|gru)(?:_\d+)?/Read(?:_\d)?/ReadVariableOp:")
_INLINED = re.compile(r"(?:^|PartitionedCall/)while(?:_\d+)?/(?:body/_\d+/while/)?")
#: The loop around a cell of Keras, and a choice between the old and the new state by the mask right
#: in a loop (TensorFlow's gradient of it is called otherwise). In the paths of JAX calls stand
#: between, which ``_CALLS`` takes out.
_LOOP_OF_CELL = re.compile(r"(.*while/(?:body/)?)(?:lstm|gru|simple_rnn)_cell\w*/")
_CHOICE = re.compile(r"(.*while/(?:body/)?)(?:SelectV2(?:_\d+)?(?::SelectV2)?|select_n)")
_LAYERS_LOOP = re.compile(r"(?i)(?:lstm|gru|rnn)\w*\)*/while/(?:body/)?$")
_CALLS = re.compile(r"closed_call/|jit\(_where\)/")
_WHERE, _TANH = re.compile(r"^aten::where$"), re.compile(r"^aten::tanh$")
_CUDNN = re.compile(r"CudnnRNN|_cudnn_rnn|miopen_rnn|mkldnn_rnn_layer|aten::lstm$|aten::gru$")
_NAMES = {"torch": "PyTorch", "jax": "JAX"}
#: Fewer choices are those of a layer beside the loop.
_TIME_STEPS = 8

_MATMUL = re.compile(r"while/.*(?::(?:_\w+)?MatMul|/MatMul(?:_\d+)?)$")
_KERAS_LAYER = re.compile(r"(?<![a-z_])(?:lstm|gru)(?:_\d+)?/(?:.*/)?while/")


def keras_without_cudnn(f: Finding) -> Told | None:
    """A layer of Keras on a GPU fails conditions of its cuDNN path."""
    unmet = unmet_by_keras(f.slow)
    return Told(f"Keras runs this layer on cuDNN only with {listed(unmet)}") if unmet else None


def unmet_by_keras(profile: StepProfile) -> list[str]:
    """The conditions of Keras's cuDNN path that this run's layers do not meet; none where met."""
    if profile.device is None:
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
    """The names of its ops and of what its activities say that they belong to."""
    return [*(row["name"] for row in profile.rows("ops")), *profile.seen.paths]


def _any(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(pattern.search(name) for name in names)


def is_keras(profile: StepProfile) -> bool:
    """Whether a layer of Keras is seen to have run: by our row, its frames, or its cell's scope."""
    row = ROWS.get(profile.implementation or "")
    if row is not None:
        return row.library == "keras"
    return profile.seen.keras_frames or _any(_KERAS_CELL, profile.seen.paths)


def _in_one_op(profile: StepProfile) -> bool:
    """Whether a recurrent layer ran in one op, as far as names and kernels tell."""
    rnn = any(c.part == "rnn" for c in profile.contributors)
    return rnn or _any(_CUDNN, names_of(profile))


def masks_in_the_loop(profile: StepProfile) -> float:
    """How often a step the loop of a recurrent layer chooses by a mask; 0 where none is seen.

    Of PyTorch the ops have no scope: where frames of Keras's loop were recorded, and every cell's
    tanh has a choice beside it, these are counted.
    """
    if profile.framework in TORCH:
        times = times_called(profile, _WHERE) if profile.seen.keras_frames else 0.0
        return times if times >= times_called(profile, _TANH) else 0.0
    paths = {_CALLS.sub("", path): times for path, times in profile.seen.paths.items()}
    loops = {match[1] for path in paths if (match := _LOOP_OF_CELL.match(path))}
    choices = ((_CHOICE.fullmatch(path), times) for path, times in paths.items())
    return sum(
        times
        for match, times in choices
        if match and (match[1] in loops or _is_of_a_layer(match[1], profile.seen.paths))
    )


def masks_seen_going_in(profile: StepProfile) -> bool:
    """Whether masked sequences were seen to go into a model whose layers run cell by cell.

    TensorFlow leaves out short ops (``certainty.short_ops``), so that the choices by a mask may
    lack while the loop is there.
    """
    if profile.info.padding is None:
        return False
    return profile.seen.keras_frames or any(map(_LOOP_OF_CELL.match, profile.seen.paths))


def is_masked(profile: StepProfile) -> bool:
    """Whether a recurrent layer masks its time steps, by its ops or by the sequences it got."""
    return masks_in_the_loop(profile) > 0 or masks_seen_going_in(profile)


def _is_of_a_layer(loop: str, paths: Iterable[str]) -> bool:
    """Whether a loop is that of a recurrent layer by its name, or an inlined one of Keras 2."""
    named = _LAYERS_LOOP.search(loop) is not None
    return named or (_INLINED.fullmatch(loop) is not None and _any(_READS, paths))


def masked(f: Finding) -> Told | None:
    """A recurrent layer masks every time step in a loop of its own."""
    times = masks_in_the_loop(f.slow)
    counted = times >= _TIME_STEPS
    if not (counted or masks_seen_going_in(f.slow)) or _in_one_op(f.slow):
        return None
    seen = "a recurrent layer applies a mask time step by time step"
    seen += f", {often(f.slow, times)}" if counted else ""
    batches = "put sequences of similar length into one batch, which leaves few time steps to mask"
    if f.slow.framework in TENSORFLOW:
        return Told(_of_padding(seen, f.slow.info.padding, batches))
    return Told(
        f"{seen}: Keras on {_NAMES[f.slow.framework or '']} takes no mask to cuDNN, which costs "
        "the layer its fast path on a GPU; sequences of one length need none (mask_zero=False), "
        f"else {batches}"
    )


def _of_padding(seen: str, padding: str | None, batches: str) -> str:
    """What to do about masks on TensorFlow, by the side on which sequences are filled up."""
    if padding == "behind":
        return (
            f"{seen}, to sequences that are padded at their end, as cuDNN on a GPU takes them: "
            f"{batches}"
        )
    where = ", to sequences that are padded in front" if padding == "front" else ""
    default = "" if where else ", whose default is in front"
    return (
        f"{seen}{where}: pad sequences at their end (padding='post' of pad_sequences{default}), as "
        f"cuDNN on a GPU takes no other mask, and on any device {batches}"
    )


def standard_loop(f: Finding) -> Told | None:
    """Keras on TensorFlow runs its standard loop on a GPU, and no option is seen to explain it."""
    profile, names = f.slow, names_of(f.slow)
    if profile.device is None or profile.implementation in ROWS or _in_one_op(profile):
        return None
    products = [name for name in names if _MATMUL.search(name)]
    inlined = _any(_READS, names) and _any(_INLINED, products)
    if not inlined and not _any(_KERAS_LAYER, products):
        return None
    if unmet_by_keras(profile) or is_masked(profile):
        return None
    return Told(
        "Keras's standard loop runs on the GPU in place of cuDNN's function, and no op shows an "
        "option that cuDNN lacks: TensorFlow does not swap it in for a stateful layer, inside "
        "another loop (tf.data.scan) or where signatures differ; use_cudnn=True of Keras 3 says "
        "why, and uses no swapping"
    )


def own_loop(f: Finding) -> Told | None:
    """Keras on PyTorch or JAX runs its own loop over the time steps, for no option that is seen."""
    profile = f.slow
    if profile.implementation in ROWS or not is_keras(profile) or _in_one_op(profile):
        return None
    if profile.framework in TORCH:
        return _on_torch(profile)
    if profile.device is None or unmet_by_keras(profile) or is_masked(profile):
        return None
    return Told(
        f"Keras's own loop over the time steps runs on JAX{_version(profile)}: it has cuDNN's "
        "layer there since 3.14, where there is no mask, recurrent_dropout or unroll; upgrade "
        "an older Keras, or call jax.experimental.rnn.lstm"
    )


def _on_torch(profile: StepProfile) -> Told | None:
    if profile.device is None:
        return Told(
            f"Keras on PyTorch{_version(profile)} has a layer in one op only on a GPU: on a CPU "
            "its own loop runs time step by time step, where torch.nn.LSTM is one op of oneDNN"
        )
    if masks_in_the_loop(profile) >= _TIME_STEPS or masks_seen_going_in(profile):
        return None
    return Told(
        f"Keras's own loop over the time steps runs on PyTorch{_version(profile)} in place of "
        "cuDNN, which it did not have before 3.10 and has lost unseen in later versions, and never "
        "uses with a mask, recurrent_dropout or unroll: upgrade Keras, or call torch.nn.LSTM"
    )


def _version(profile: StepProfile) -> str:
    version = (profile.info.versions or {}).get("keras")
    return f" (Keras {version})" if version else ""


KERAS_ON_CUDNN = Remedy(
    name="Keras on cuDNN",
    cause="a layer of Keras has an option that its cuDNN path lacks",
    condition="ops of a cell of Keras run on a GPU, and their names show an option that cuDNN "
    "lacks",
    kinds=(*HOST, *WORK),
    frameworks=(*TENSORFLOW, *JAX),
    decide=keras_without_cudnn,
    sources=(
        "https://keras.io/api/layers/recurrent_layers/lstm/",
        "https://github.com/tensorflow/tensorflow/issues/38236",
        "https://github.com/tensorflow/tensorflow/issues/33148",
    ),
)
PAD_AT_THE_END = Remedy(
    name="pad at the end",
    cause="a recurrent layer masks its time steps in a loop, as cuDNN cannot where sequences are "
    "padded in front",
    condition="eight choices by a mask or more per step in the loop of a recurrent layer, or "
    "lstmprof run saw padded sequences go into a model of Keras that masks them and runs cell by "
    "cell; and no op that holds a whole layer; of PyTorch among frames of Keras's layers",
    kinds=(*HOST, *WORK),
    frameworks=(*TENSORFLOW, *JAX, *TORCH),
    decide=masked,
    sources=(
        "https://keras.io/api/layers/recurrent_layers/lstm/",
        "https://github.com/tensorflow/tensorflow/issues/30745",
        "https://github.com/tensorflow/tensorflow/issues/33148",
    ),
    example=Example(
        "a text classifier of Keras 3.15 on TensorFlow 2.21, on a CPU, 20 time steps",
        "a recurrent layer applies a mask time step by time step, 60 times per step: pad sequences "
        "at their end (padding='post' of pad_sequences, whose default is in front)",
    ),
)
KERAS_OUT_OF_ITS_LOOP = Remedy(
    name="Keras off its standard loop",
    cause="Keras's standard loop runs on a GPU, as TensorFlow did not swap cuDNN's function in",
    condition="the loop of a layer of Keras, or of its function standard_lstm, on a GPU; no op of "
    "cuDNN's, no mask, and no option that cuDNN lacks",
    kinds=(*HOST, *WORK),
    frameworks=TENSORFLOW,
    decide=standard_loop,
    sources=(
        "https://github.com/tensorflow/tensorflow/issues/29506",
        "https://github.com/tensorflow/tensorflow/issues/50325",
        "https://github.com/tensorflow/tensorflow/issues/50488",
    ),
)
UPGRADE_KERAS = Remedy(
    name="a layer op for Keras",
    cause="Keras on PyTorch or JAX runs its own loop over the time steps where the framework has "
    "the layer in one op",
    condition="Keras's own layers, by their frames (PyTorch) or their scope (JAX, on a GPU), no op "
    "that holds a layer, and no option seen that explains it",
    kinds=(*HOST, *WORK),
    frameworks=(*TORCH, *JAX),
    decide=own_loop,
    sources=(
        "https://github.com/keras-team/keras/issues/20902",
        "https://github.com/keras-team/keras/issues/19177",
        "https://github.com/keras-team/keras/issues/22274",
        "https://github.com/keras-team/keras/pull/22874",
        "https://github.com/keras-team/keras/pull/22399",
    ),
    example=Example(
        "keras.layers.LSTM of Keras 3.15 on PyTorch 2.13, on a CPU, with Python stacks",
        "Keras on PyTorch has a layer in one op only on a GPU: on a CPU its own loop runs time "
        "step by time step, where torch.nn.LSTM is one op of oneDNN",
    ),
)

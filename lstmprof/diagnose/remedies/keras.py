"""What keeps a layer of Keras from its fast path.

Why a layer does not run on cuDNN is told by the conditions of the documentation of
keras.layers.LSTM and GRU ("requirements to use the cuDNN implementation").
"""

from __future__ import annotations

import re

from lstmprof import implementations
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import HOST, TENSORFLOW, WORK, Remedy, Told
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import LOOP
from lstmprof.numbers import listed

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


def keras_without_cudnn(f: Finding) -> Told | None:
    """A layer of Keras on a GPU fails conditions of its cuDNN path."""
    unmet = unmet_by_keras(f.slow)
    return Told(f"Keras runs this layer on cuDNN only with {listed(unmet)}") if unmet else None


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


KERAS_ON_CUDNN = Remedy(
    name="Keras on cuDNN",
    cause="a layer of Keras has an option that its cuDNN path lacks",
    condition="ops of a cell of Keras run on a GPU, and their names show an option that cuDNN "
    "lacks",
    kinds=(*HOST, *WORK),
    frameworks=TENSORFLOW,
    decide=keras_without_cudnn,
    sources=(
        "https://keras.io/api/layers/recurrent_layers/lstm/",
        "https://github.com/tensorflow/tensorflow/issues/38236",
        "https://github.com/tensorflow/tensorflow/issues/33148",
    ),
)

"""Why a recurrent layer does not run on cuDNN, or not on its fast kernels: which condition fails.

Read from what the profile shows of the layer: names of its ops, its workload and precision.
Sources: the documentation of keras.layers.LSTM and GRU ("requirements to use the cuDNN
implementation"); torch/nn (``_cudnn_rnn``: packed sequences) and use_persist_common_heuristics in
aten/src/ATen/native/cudnn/RNN.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lstmprof.diagnose.step_profile import StepProfile

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
#: Rows of the table whose layers ask for no cuDNN.
_OFF = ("keras-lstm-mode1", "keras-lstm-mode2")


def unmet_by_keras(profile: StepProfile) -> list[str]:
    """The conditions of Keras's cuDNN path that this run's layers do not meet; none where met."""
    if profile.device is None:
        return []
    if profile.facts.get("implementation") in _OFF:
        return ["use_cudnn='auto'"]
    names = [row["name"] for row in profile.rows("ops")]
    cells = [name for name in names if _KERAS_CELL.search(name)]
    found = [want for pattern, want in _KERAS if any(re.search(pattern, name) for name in cells)]
    if any(_UNROLLED.search(n) for n in cells) and not any(_LOOP.search(n) for n in names):
        found.append("unroll=False")
    return found


def unmet_by_persistent_kernels(profile: StepProfile) -> list[str]:
    """Why nn.LSTM on cuDNN takes its standard kernels, by torch's own conditions."""
    workload = profile.facts.get("workload") or {}
    uses_cudnn = profile.facts.get("kernels_used") == "cuDNN"
    if (
        profile.device is None
        or profile.facts.get("framework") != "torch"
        or not uses_cudnn
        or not workload
    ):
        return []
    if any(i.part == "rnn" and i.family == "persistent" for i in profile.contributors):
        return []
    return list(_persistent(workload, str(profile.facts.get("precision"))))


def _persistent(workload: dict[str, object], precision: str) -> Iterator[str]:
    if workload.get("variable_length"):
        yield "sequences of one length: packed ones always take the standard kernels"
    if "fp16" not in precision:
        yield f"float16 (this is {precision})"
    if workload.get("layers") != 1 or workload.get("bidirectional"):
        yield "one layer in one direction"
    for name in ("hidden", "features"):
        size = workload.get(name)
        if isinstance(size, int) and size % 128:
            yield f"{name} a multiple of 128 (it is {size})"

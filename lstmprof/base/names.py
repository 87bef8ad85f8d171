"""Names that users can give as arguments, in display order.

Help and shell completion import this file, which imports nothing.
"""

from __future__ import annotations

#: Names of a breakdown's tables; ``breakdown.tables`` defines their columns.
TABLES = (
    "ledger",
    "steps",
    "kernels",
    "ops",
    "layers",
    "modules",
    "launches",
    "launch_gaps",
    "casts",
    "copies",
    "streams",
    "collectives",
    "ranks",
    "critical_path",
    "ranges",
    "memory",
    "witness",
)
#: Levels of detail of a flame graph: nn.Modules, Python frames, or only ranges and ops.
STACKS = ("modules", "python", "ops")
#: Names of the lists that ``lstmprof list`` can print.
LISTED = ("implementations", "workloads", "systems", "eras")
#: Names of the tables that ``breakdown`` prints by default.
USUAL_TABLES = ("ledger", "kernels")
#: Kinds of steps that a breakdown can show: without disturbances, or as profiled.
STEPS = ("clean", "profiled")
#: Names of details that ``diagnose`` prints only on request, such as ``--evidence``.
DETAILS = ("evidence", "waterfall", "roofline", "warnings")
#: Names of settings that compared runs must share, unless ``--across`` names the setting.
CONDITIONS = ("workload", "precision", "mode", "device", "threads", "seed")
#: Default condition of ``--fail-if``, under which ``compare`` and ``gate`` fail.
FAIL_IF = "slower > 3 %"
#: Values of ``diagnose --without``, which predicts the step time without a cause.
CHANGES = (
    *("launch", "casts", "syncs", "copies", "python", "dispatch"),
    *("backward-copies", "zero-fills", "slice-backward"),
)
#: Values of ``diagnose --as``: recurrent layers as one op each, or both passes compiled.
FORMS = ("layer", "compiled")
#: Name of a framework in run.json -> name in text, if the names differ.
FRAMEWORK_NAMES = {
    **{"torch": "PyTorch", "tensorflow": "TensorFlow", "tensorflow1": "TensorFlow 1"},
    **{"jax": "JAX", "pytensor": "PyTensor", "theano": "Theano"},
}
#: Name of a part of the breakdown -> name in text and charts, if the names differ.
PART_WORDS = {
    "pointwise": "elementwise",
    "rnn": "recurrent layer",
    "gemm": "matmul",
    "conv": "convolution",
    "softmax_loss": "softmax/loss",
    "ctc": "CTC loss",
    "layout": "copy",
    "embedding": "embedding lookup",
    "collective": "communication",
    "rng": "random numbers",
    "compiling": "compile",
    "starting": "initialisation",
    "ranges": "ranges without ops",
    "runtime": "runtime call",
    "alloc": "allocation",
    "python": "Python",
    "queued": "queued work not started",
    "host": "unrecorded host",
    "unattributed": "unknown cause",
}

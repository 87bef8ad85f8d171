"""Names that users can give as arguments, in display order.

Help and shell completion import this file, which imports nothing.
"""

from __future__ import annotations

#: The tables of a breakdown; ``breakdown.tables`` defines their columns.
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
#: Lists that ``lstmprof list`` can print.
LISTED = ("implementations", "workloads", "systems", "eras")
#: Tables that ``breakdown`` prints by default.
USUAL_TABLES = ("ledger", "kernels")
#: What a breakdown shows: the step without disturbances, or the profiled steps.
STEPS = ("clean", "profiled")
#: Details that ``diagnose`` prints only on request, such as ``--evidence``.
DETAILS = ("evidence", "waterfall", "roofline", "warnings")
#: Settings in which compared runs must be equal, unless ``--across`` names the setting.
CONDITIONS = ("workload", "precision", "mode", "device", "threads", "seed")
#: Default of ``--fail-if``: ``compare`` and ``gate`` fail if it is true.
FAIL_IF = "slower > 3 %"
#: What ``diagnose --without`` can remove, to predict the step's time without it.
CHANGES = (
    *("launch", "casts", "syncs", "copies", "python", "dispatch"),
    *("backward-copies", "zero-fills", "slice-backward"),
)
#: Ways to compute recurrent layers, whose step time can be predicted.
FORMS = ("layer", "compiled")
#: Frameworks with another name in text than in run.json.
FRAMEWORK_NAMES = {
    **{"torch": "PyTorch", "tensorflow": "TensorFlow", "tensorflow1": "TensorFlow 1"},
    **{"jax": "JAX", "pytensor": "PyTensor", "theano": "Theano"},
}
#: A part of the breakdown -> its name in text and charts, if different.
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

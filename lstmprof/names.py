"""Names that a user can give; help and shell completion import only this file.

Each list is defined here only, in the order in which it is shown.
"""

from __future__ import annotations

#: The tables of a breakdown (``breakdown.tables``).
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
#: What the stacks of a chart consist of: nn.Module, Python frames, or ranges and ops only.
STACKS = ("modules", "python", "ops")
#: Names that ``lstmprof list`` shows in detail.
LISTED = ("implementations", "workloads", "systems", "eras")
#: Tables that ``breakdown`` prints if none is named.
USUAL_TABLES = ("ledger", "kernels")
#: Steps that ``breakdown`` can show.
STEPS = ("clean", "profiled")
#: Parts of ``diagnose`` that are printed on request.
DETAILS = ("evidence", "waterfall", "roofline", "warnings")
#: Conditions that must be equal in compared runs, unless ``--across`` names them
#: (``runs.metadata.condition``).
CONDITIONS = ("workload", "precision", "mode", "device", "threads", "seed")
#: The default condition that fails ``compare`` and ``gate``.
FAIL_IF = "slower > 3 %"
#: The causes without which a step can be replayed (``breakdown.replay.changes``).
CHANGES = (
    *("launch", "casts", "syncs", "copies", "python", "dispatch"),
    *("backward-copies", "zero-fills", "slice-backward"),
)
#: Forms of the recurrent layers that ``breakdown.replay.changes`` can predict.
FORMS = ("layer", "compiled")
#: Frameworks whose name in text differs from their name in run.json.
FRAMEWORK_NAMES = {
    **{"torch": "PyTorch", "tensorflow": "TensorFlow", "tensorflow1": "TensorFlow 1"},
    **{"jax": "JAX", "pytensor": "PyTensor", "theano": "Theano"},
}
#: Parts of the ledger whose name in text and charts differs from their name in tables and files.
PART_WORDS = {
    "pointwise": "elementwise",
    "rnn": "recurrent layer",
    "gemm": "matmul",
    "conv": "convolution",
    "softmax_loss": "softmax and loss",
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
    "host": "unrecorded",
    "unattributed": "unknown",
}

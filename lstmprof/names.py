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
#: By what stacks are drawn: nn.Module, Python frames, or ranges and ops alone.
STACKS = ("modules", "python", "ops")
#: What ``lstmprof list`` shows in detail.
LISTED = ("implementations", "workloads", "systems", "eras")
#: What is shown of a run where no table is asked for.
USUAL_TABLES = ("ledger", "kernels")
#: Of which steps the account is.
STEPS = ("clean", "profiled")
#: What ``diagnose`` shows beside its verdicts.
DETAILS = ("evidence", "waterfall", "roofline", "warnings")
#: What must agree for two runs to be compared, unless a user says otherwise
#: (``runs.metadata.condition``).
CONDITIONS = ("workload", "precision", "mode", "device", "threads", "seed")
#: What ``compare`` and ``gate`` say of a new run must not be, where nothing else is asked.
FAIL_IF = "slower > 3 %"
#: The causes without which a step can be replayed (``breakdown.replay.changes``).
CHANGES = (
    *("launch", "casts", "syncs", "copies", "python", "dispatch"),
    *("backward-copies", "zero-fills", "slice-backward"),
)
#: The forms of its layers in which a step can be forecast (``breakdown.replay.changes``).
FORMS = ("layer", "compiled")
#: Parts of the ledger whose words in text and charts differ from their name in tables and files.
PART_WORDS = {
    "pointwise": "elementwise",
    "rnn": "layer op",
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

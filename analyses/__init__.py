"""What benchmark studies said of LSTMs, beside what runs of lstmprof show: one question per file.

::

    runs ─ steps ─▶ table ─▶ claims (the study's number, ours, a verdict)
                          └▶ chart

``python -m analyses.NAME traces/`` prints a question's table and claims and writes its chart;
``python -m analyses traces/`` prints README.md, the answers to all. The studies' numbers are in
``published``, each from a text that is named there.
"""

from __future__ import annotations

import importlib
from types import ModuleType

#: The questions in reading order; a file each, with ``table``, ``claims``, ``chart``, ``COMMAND``.
QUESTIONS = (
    "asr_spread",
    "asr_cudnn_on_long",
    "asr_versions",
    "glample_compile_time",
    "deepbench_roofline",
    "imdb_epoch",
    "ptb_words_per_second",
    "kernel_study_kernels",
    "kernel_study_keras_modes",
    "kernel_study_launch_share",
    "amp_cast_price",
)


def question(name: str) -> ModuleType:
    """Return the file that answers the question ``name``."""
    return importlib.import_module(f"{__name__}.{name}")


def title(analysis: ModuleType) -> str:
    """Return the question of a file, which is the first line of its docstring."""
    return (analysis.__doc__ or "").strip().partition("\n")[0]

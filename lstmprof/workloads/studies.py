"""The workloads of published LSTM benchmarks, by name.

- ``1x320-ce-short`` … : S. Braun, "LSTM Benchmarks for Deep Learning Frameworks"
  (arXiv:1806.01818), tables 1 and 2.
- ``deepbench-…``: Baidu's DeepBench, recurrent layers for training and inference (rnn_problems.h of
  its code). Inputs are as wide as the layer, and there is no output layer. DeepBench skips the
  matmul with the inputs (cuDNN's SKIP_INPUT); frameworks cannot skip it, so they compute more.
- ``glample-…``: G. Lample's rnn-benchmarks: 30 time steps, inputs as wide as the layer, mean
  squared error of the last output, SGD with learning rate 0.01.
- ``ptb-…``: W. Zaremba et al. (arXiv:1409.2329), the large language model: embedding, two layers,
  softmax over the vocabulary at every time step, SGD with learning rate 1.0. Its dropout is
  omitted.
- ``imdb-gru``: classifies the sentiment of reviews of 150 tokens by a GRU with 100 units.

This file uses only the standard library and Python 3.7.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from lstmprof.base.errors import unknown_name
from lstmprof.workloads import Workload

_ASR = (
    Workload("1x320-ce-short", 1, 320, False, 64, 100, 123, 10, "ce"),
    Workload("1x320-ce-long", 1, 320, False, 32, 1000, 123, 10, "ce"),
    Workload("4x320-ce-long", 4, 320, True, 32, 1000, 123, 10, "ce"),
    Workload("4x320-ctc-long", 4, 320, True, 32, 1000, 123, 59, "ctc", labels=100, shortest=500),
)

#: Workloads of DeepBench: cell -> (hidden units, time steps) -> batch sizes to train, to infer.
_DEEPBENCH = {
    "vanilla": {
        **{(h, 50): (16, 32, 64, 128) for h in (1760, 2048, 2560)},
        (32, 672): (1,),
        (64, 96): (1,),
    },
    "lstm": {
        (512, 25): (16, 32, 64, 128, 1, 2, 4),
        (1024, 25): (16, 32, 64, 128, 1, 2, 4),
        (2048, 25): (16, 32, 64, 128, 1, 2, 4),
        (4096, 25): (16, 32, 64, 128),
        (1536, 50): (8, 16, 32, 1, 2, 4),
        (256, 150): (16, 32, 64, 1, 2, 4),
    },
    "gru": {
        (2816, 1500): (1, 2, 4),
        **{(2816, t): (32, 1, 2, 4) for t in (750, 375, 187)},
        **{(h, t): (32, 1, 2, 4) for h in (2048, 1536, 2560) for t in (1500, 750, 375, 187)},
        (512, 1): (32, 1, 2, 4),
        (1024, 1500): (32, 64, 1, 2, 4),
    },
}


def _deepbench() -> Iterator[Workload]:
    for cell, problems in _DEEPBENCH.items():
        for (hidden, time_steps), batches in problems.items():
            for batch in batches:
                yield Workload(
                    "deepbench-{}-h{}-b{}-t{}".format(cell, hidden, batch, time_steps),
                    *(1, hidden, False, batch, time_steps, hidden, hidden, "mean"),
                    cell="rnn" if cell == "vanilla" else cell,
                    head=False,
                    optimizer="sgd",
                )


def _glample() -> Iterator[Workload]:
    for cell, prefix in (("lstm", "glample"), ("rnn", "glample-rnn")):
        for hidden in (128, 512, 1024):
            for batch in (32, 128):
                yield Workload(
                    "{}-h{}-b{}".format(prefix, hidden, batch),
                    *(1, hidden, False, batch, 30, hidden, hidden, "mse"),
                    cell=cell,
                    head=False,
                    optimizer="sgd",
                    learning_rate=0.01,
                )


def _ptb(name: str, vocabulary: int) -> Workload:
    return Workload(
        name,
        *(2, 1500, False, 20, 35, 1500, vocabulary, "ce"),
        each_step=True,
        vocabulary=vocabulary,
        optimizer="sgd",
        learning_rate=1.0,
    )


NAMED: Tuple[Workload, ...] = (
    *_ASR,
    *_glample(),
    _ptb("ptb-large", 10_000),
    _ptb("ptb-35k", 35_000),
    Workload("imdb-gru", 1, 100, False, 64, 150, 125, 2, "ce", cell="gru", vocabulary=30_000),
    *_deepbench(),
)


def named(name: str) -> Workload:
    for workload in NAMED:
        if workload.name == name:
            return workload
    names = [w.name for w in NAMED]
    raise unknown_name("workload", name, names, shown_by="lstmprof list workloads")

"""The workloads of published LSTM benchmarks, by name, such as ``ptb-large``.

This file uses only the standard library and Python 3.7.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from lstmprof.base.errors import unknown_name
from lstmprof.workloads import Workload

#: Workloads of S. Braun, "LSTM Benchmarks for Deep Learning Frameworks" (arXiv:1806.01818), tables
#: 1 and 2.
_ASR = (
    Workload("1x320-ce-short", 1, 320, False, 64, 100, 123, 10, "ce"),
    Workload("1x320-ce-long", 1, 320, False, 32, 1000, 123, 10, "ce"),
    Workload("4x320-ce-long", 4, 320, True, 32, 1000, 123, 10, "ce"),
    Workload("4x320-ctc-long", 4, 320, True, 32, 1000, 123, 59, "ctc", labels=100, shortest=500),
)

#: Workloads of Baidu's DeepBench (rnn_problems.h of its code): cell -> (hidden units, time steps)
#: -> batch sizes. Batch sizes for training come before batch sizes for inference.
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
    # frameworks compute more than DeepBench, which skips the matmul with the inputs (SKIP_INPUT)
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
    """Yield the workloads of G. Lample's rnn-benchmarks."""
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
    """Return the large model of W. Zaremba et al. (arXiv:1409.2329), without dropout."""
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
    # classifies the sentiment of reviews with 150 tokens
    Workload("imdb-gru", 1, 100, False, 64, 150, 125, 2, "ce", cell="gru", vocabulary=30_000),
    *_deepbench(),
)


def named(name: str) -> Workload:
    for workload in NAMED:
        if workload.name == name:
            return workload
    names = [w.name for w in NAMED]
    raise unknown_name("workload", name, names, shown_by="lstmprof list workloads")

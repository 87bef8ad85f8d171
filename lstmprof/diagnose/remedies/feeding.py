"""Causes: the program does not prepare the next step's input while the current step runs."""

from __future__ import annotations

import re

from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.findings.causes import INPUT
from lstmprof.diagnose.remedies.rows import (
    TENSORFLOW,
    TORCH,
    Match,
    Remedy,
    in_ms,
    times_called,
)
from lstmprof.implementations import ROWS

_SINGLE_LOADER = re.compile(r"enumerate\(DataLoader\)#_SingleProcess")
_WORKERS = re.compile(r"enumerate\(DataLoader\)#_MultiProcessing")
_NEXT_ELEMENT = re.compile(r":IteratorGetNext|^IteratorGetNext")
_PREFETCH = re.compile(r"Prefetch")
#: Nanoseconds to receive a small batch from a DataLoader worker (torch 2.13: 1.0 ms). Without
#: workers, a batch takes 0.06 ms.
_HAND_OVER_NS = 1_000_000


@Remedy(
    name="workers",
    cause="the step waits for a batch of its DataLoader",
    fix="change num_workers of the DataLoader: worker processes make batches during the step",
    condition="The DataLoader has worker processes, and the step waits for a batch. Or the "
    "DataLoader has no workers, and the step waits more than 1 ms for a batch",
    kinds=(INPUT,),
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/docs/stable/data.html",),
)
def loader(f: Finding) -> Match | None:
    seen = f"getting the input takes {in_ms(f.slow, f.slow_ns)}"
    if times_called(f.slow, _WORKERS):
        cause = "the step waits for the DataLoader's workers"
        if f.slow_ns <= _HAND_OVER_NS:
            fix = (
                "use num_workers=0: the step waits only for the transfer of the batch from a "
                "worker process"
            )
            return Match(seen, fix=fix, cause=cause)
        fix = (
            "try more workers, less work per sample, or num_workers=0 (no transfer between "
            "processes)"
        )
        return Match(seen, fix=fix, cause=cause)
    if not times_called(f.slow, _SINGLE_LOADER) or f.slow_ns <= _HAND_OVER_NS:
        return None
    pinned = " and pin_memory=True" if f.slow.device is not None else ""
    fix = f"set num_workers=1 or more{pinned}: workers then make the next batch during the step"
    cause = "the process that runs the step also makes each batch"
    return Match(seen, f.slow_ns, fix, cause)


@Remedy(
    name="prefetch",
    cause="the step waits for the next element of its dataset",
    fix="prefetch batches with tf.data: dataset.prefetch(tf.data.AUTOTUNE)",
    condition="The step takes the next element of a tf.data dataset (IteratorGetNext)",
    kinds=(INPUT,),
    frameworks=TENSORFLOW,
    sources=("https://www.tensorflow.org/guide/data_performance",),
)
def dataset(f: Finding) -> Match | None:
    if not times_called(f.slow, _NEXT_ELEMENT):
        return None
    fix = ""
    if times_called(f.slow, _PREFETCH):
        fix = "make the dataset faster: map(…, num_parallel_calls=tf.data.AUTOTUNE) or cache()"
    return Match("", f.slow_ns, fix)


@Remedy(
    name="input beside the step",
    cause="the step prepares its own input",
    fix="prepare the next batch during the step, in another thread or process",
    condition="A part of the step prepares input (such as a range named input), and the step uses "
    "neither a DataLoader nor tf.data",
    kinds=(INPUT,),
    sources=(
        "https://docs.pytorch.org/docs/stable/data.html",
        "https://www.tensorflow.org/guide/data_performance",
    ),
)
def own_input(f: Finding) -> Match | None:
    loaders = (_SINGLE_LOADER, _WORKERS, _NEXT_ELEMENT)
    if f.slow.implementation in ROWS or any(times_called(f.slow, pattern) for pattern in loaders):
        return None
    fix = {
        "torch": "prepare the next batch during the step: a DataLoader with num_workers does that",
        "tensorflow": "prepare the next batch during the step: tf.data with prefetch does that",
    }
    return Match("", f.slow_ns, fix.get(f.slow.framework or "", ""))

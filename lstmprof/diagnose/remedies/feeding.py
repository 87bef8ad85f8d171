"""What prepares the next step's input while this one computes."""

from __future__ import annotations

import re

from lstmprof.diagnose.causes import INPUT
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import TENSORFLOW, TORCH, Example, Remedy, Told, times_called

_SINGLE_LOADER = re.compile(r"enumerate\(DataLoader\)#_SingleProcess")
_WORKERS = re.compile(r"enumerate\(DataLoader\)#_MultiProcessing")
_NEXT_ELEMENT = re.compile(r":IteratorGetNext|^IteratorGetNext")
_PREFETCH = re.compile(r"Prefetch")


def loader_in_line(f: Finding) -> Told | None:
    """A DataLoader of PyTorch without workers makes the batch in the step."""
    if not times_called(f.slow, _SINGLE_LOADER) or times_called(f.slow, _WORKERS):
        return None
    pinned = ", with pin_memory=True," if f.slow.device is not None else ""
    return Told(
        "the DataLoader makes each batch in the step's own process: num_workers=1 or more"
        f"{pinned} makes the next one meanwhile",
        f.slow_ns,
    )


def slow_workers(f: Finding) -> Told | None:
    """A DataLoader with workers is waited for."""
    if not times_called(f.slow, _WORKERS):
        return None
    return Told(
        "the DataLoader has workers, and they are slower than the step: give it more of them "
        "(num_workers), or give them less work for each sample",
        f.slow_ns,
    )


def dataset_in_line(f: Finding) -> Told | None:
    """TensorFlow's next element is waited for, and nothing fetches it before."""
    if not times_called(f.slow, _NEXT_ELEMENT):
        return None
    if times_called(f.slow, _PREFETCH):
        return Told(
            "the dataset is prefetched and still slower than the step: "
            "map(…, num_parallel_calls=tf.data.AUTOTUNE), cache()",
            f.slow_ns,
        )
    return Told("dataset.prefetch(tf.data.AUTOTUNE) makes the next element meanwhile", f.slow_ns)


def input_in_line(f: Finding) -> Told | None:
    """The step prepares its own input, in no loader that is known."""
    loaders = (_SINGLE_LOADER, _WORKERS, _NEXT_ELEMENT)
    if any(times_called(f.slow, loader) for loader in loaders):
        return None
    how = {
        "torch": "a DataLoader with num_workers prepares it meanwhile",
        "tensorflow": "tf.data's prefetch prepares it meanwhile",
    }.get(f.slow.framework or "", "prepare it in another thread or process")
    return Told(f"the next batch can be prepared while this one computes: {how}", f.slow_ns)


WORKERS = Remedy(
    name="workers",
    cause="the process that runs the step makes each batch itself",
    condition="a DataLoader without worker processes",
    kinds=(INPUT,),
    frameworks=TORCH,
    saves="the input",
    decide=loader_in_line,
    sources=("https://docs.pytorch.org/docs/stable/data.html",),
    example=Example(
        of="a ResNet-50 of PyTorch on a V100, whose DataLoader has no workers",
        told="the DataLoader makes each batch in the step's own process: num_workers=1 or "
        "more, with pin_memory=True, makes the next one meanwhile",
    ),
)
MORE_WORKERS = Remedy(
    name="more workers",
    cause="the processes that make the batches are slower than the step",
    condition="a DataLoader with worker processes that is waited for",
    kinds=(INPUT,),
    frameworks=TORCH,
    saves="the input",
    decide=slow_workers,
    sources=("https://docs.pytorch.org/docs/stable/data.html",),
)
PREFETCH = Remedy(
    name="prefetch",
    cause="a step waits for the next element of its dataset",
    condition="a step takes the next element of a dataset (IteratorGetNext)",
    kinds=(INPUT,),
    frameworks=TENSORFLOW,
    saves="the input",
    decide=dataset_in_line,
    sources=("https://www.tensorflow.org/guide/data_performance",),
)
INPUT_BESIDE = Remedy(
    name="input beside the step",
    cause="the step prepares its own input",
    condition="the step has an input phase, and no loader of a framework is seen",
    kinds=(INPUT,),
    saves="the input",
    decide=input_in_line,
    sources=(
        "https://docs.pytorch.org/docs/stable/data.html",
        "https://www.tensorflow.org/guide/data_performance",
    ),
)

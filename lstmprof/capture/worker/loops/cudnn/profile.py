"""torch.profiler around the cuDNN loop: it sees all that the process does with CUDA.

Every call of cuDNN is an operator of its profile, ``cudnn::RNNForward`` for cudnnRNNForward, by
torch's own recorder of operators (private, from torch 2.1 on); by a named range where there is
none.
"""

from __future__ import annotations

import os
import time
from typing import Any, ContextManager, Iterable, List, Sequence, Tuple

import torch

from lstmprof.capture.worker import profiling, ranges as worker_ranges
from lstmprof.capture.worker.ranges import Ranges
from lstmprof.errors import CaptureError


def profiled(trainer: Any, ranges: Ranges, steps: int, folder: str) -> profiling.Profiled:
    """``steps`` profiled steps of ``trainer``, after a throwaway session.

    Raises:
        CaptureError: this torch does not record what CUDA does.
    """
    if not torch.cuda.is_available():
        raise CaptureError(
            "torch {}, whose profiler is to record what cuDNN does, has no CUDA".format(
                torch.__version__
            ),
            "install a torch built for CUDA, or give --profile-steps 0",
        )
    activities = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
    throwaway = profiling.throwaway_steps(steps, time.perf_counter_ns)
    session_of(trainer, worker_ranges.no_ranges, throwaway, activities)
    session, walls_ns, losses = session_of(trainer, ranges, range(steps), activities)
    raw = os.path.join(folder, "trace.json")
    session.export_chrome_trace(raw)
    needles = [('"{}"'.format(op), words) for op, words in trainer.implementation.KERNELS]
    kernels = profiling.first_found(raw, needles)
    packed = profiling.compressed(raw, os.path.join(folder, "cudnn-direct.pt.trace.json.gz"))
    return profiling.Profiled(walls_ns, losses, [packed], kernels)


def session_of(
    trainer: Any, ranges: Ranges, steps: Iterable[int], activities: Sequence[Any]
) -> Tuple[Any, List[int], List[float]]:
    """A finished session, and each step's wall time and loss, which is read between the steps."""
    seen = worker_ranges.both(ranges, torch.profiler.record_function)
    walls_ns, losses = [], []
    trainer.cudnn.observer = operator
    try:
        with torch.profiler.profile(activities=activities) as session:
            for _ in steps:
                start_ns = time.perf_counter_ns()
                loss = trainer.step(seen)
                walls_ns.append(time.perf_counter_ns() - start_ns)
                losses.append(trainer.loss(loss))
    finally:
        trainer.cudnn.observer = None
    return session, walls_ns, losses


def operator(function: str) -> ContextManager[Any]:
    """Records a call of ``function`` of cuDNN as an operator."""
    name = function.replace("cudnn", "cudnn::", 1)
    recorder = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)
    context: ContextManager[Any] = recorder(name)
    return context

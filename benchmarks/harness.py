"""Measure what lstmprof's timing pass adds to a step of about 1 ms, compared with a plain loop.

Both loops run the same module, data, optimizer and synchronisation on one thread and one CPU, in
alternating rounds of one process per framework. The plain loop has no ranges, rows or reports. The
limit: the medians differ by at most 3 %. The cost of reading CPU time, context switches and page
faults is measured separately, as CPU time of empty steps with and without the readings; the limit
is 2 µs per iteration.

Example: ``python benchmarks/harness.py``
"""

from __future__ import annotations

import functools
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import profiling, timing
from lstmprof.capture.worker.machine import host
from lstmprof.workloads import Workload

ROUNDS, STEPS, WARMUP = 60, 30, 50
#: Empty iterations per loop; number of loops with the readings, and without.
EMPTY, TIMES = 2_000, 40

REQUESTS = {
    "torch": CaptureRequest("torch-nn-lstm", Workload("1-ms", 1, 64, False, 8, 40, 32, 10, "ce")),
    "tensorflow": CaptureRequest("tf-lstmcell", Workload("1-ms", 1, 8, False, 2, 20, 8, 4, "ce")),
}


def bare_torch(trainer: Any) -> Callable[[], Any]:
    """Return a training step as a user would write it, with the trainer's module and data."""
    import torch

    def step() -> Any:
        inputs = torch.from_numpy(trainer.inputs).to("cpu")
        targets = torch.from_numpy(trainer.targets).to("cpu")
        loss = torch.nn.functional.cross_entropy(trainer.module(inputs), targets)
        loss.backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        return loss

    return step


def bare_tensorflow(trainer: Any) -> Callable[[], Any]:
    """Return a training step as a user would write it, with the trainer's module and data."""
    import tensorflow as tf

    def step() -> Any:
        loss = trainer.function(tf.constant(trainer.inputs), tf.constant(trainer.targets[0]))
        return loss.numpy()

    return step


def bare_walls_ns(step: Callable[[], Any]) -> list[int]:
    """Return the wall times in ns of one round of steps, run in a plain loop."""
    walls_ns = []
    for _ in range(STEPS):
        start_ns = time.perf_counter_ns()
        step()
        walls_ns.append(time.perf_counter_ns() - start_ns)
    return walls_ns


def harness_walls_ns(trainer: Any, ranges: profiling.Ranges) -> list[int]:
    """Return the wall times in ns of one round of steps, run by the timing pass."""
    loop = timing.Loop(functools.partial(trainer.step, ranges), trainer.loss, trainer.device_ns)
    rows = timing.timed(loop, 0, STEPS, print, time.perf_counter_ns)
    return [row.wall_ns for row in rows]


def readings_ns() -> tuple[float, float]:
    """Return the CPU time in ns of an empty iteration (with the readings, without them).

    Each is the minimum of ``TIMES`` loops.
    """
    bare = timing.Loop(lambda: 1.0, float, lambda: None, usage=lambda whose: None)
    with_readings = timing.Loop(bare.step, bare.loss, bare.device_ns)
    took_ns: tuple[list[float], list[float]] = [], []
    for _ in range(TIMES):
        for loop, of_loop in zip((with_readings, bare), took_ns, strict=True):
            start_ns = time.thread_time_ns()
            timing.timed(loop, 0, EMPTY, print, time.perf_counter_ns)
            of_loop.append((time.thread_time_ns() - start_ns) / EMPTY)
    return min(took_ns[0]), min(took_ns[1])


def measure(framework: str) -> None:
    """Measure ``framework``; print both medians, their ratio, and the cost of the readings."""
    cpus = host.take_cpus(1)
    host.flush_denormals()
    module = importlib.import_module(f"lstmprof.capture.worker.loops.{framework}")
    module.set_threads(1)
    trainer = module.Trainer(REQUESTS[framework], module.device_of("cpu"))
    bare = {"torch": bare_torch, "tensorflow": bare_tensorflow}[framework](trainer)
    ranges = profiling.nvtx_ranges() or profiling.no_ranges
    bare_ns: list[int] = []
    harness_ns: list[int] = []
    with timing.collector_frozen():
        for _ in range(WARMUP):
            bare()
        for number in range(ROUNDS):
            if number % 2:
                bare_ns += bare_walls_ns(bare)
                harness_ns += harness_walls_ns(trainer, ranges)
            else:
                harness_ns += harness_walls_ns(trainer, ranges)
                bare_ns += bare_walls_ns(bare)
        read, unread = readings_ns()
    plain, timed = statistics.median(bare_ns), statistics.median(harness_ns)
    print(
        f"{framework}: bare {plain / 1e6:.4f} ms, timing pass {timed / 1e6:.4f} ms, "
        f"ratio {timed / plain:.4f} ({len(bare_ns)} steps each, CPUs {cpus})"
    )
    print(
        f"{framework}: readings {(read - unread) / 1e3:.2f} µs of CPU an iteration: "
        f"{read / 1e3:.2f} µs with them, {unread / 1e3:.2f} µs without"
    )


def main(frameworks: list[str]) -> None:
    """Measure one framework in this process; given none, measure each in its own process."""
    if len(frameworks) == 1:
        measure(frameworks[0])
        return
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    for framework in REQUESTS:
        subprocess.run([sys.executable, __file__, framework], env=quiet, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure what ``lp.profile`` and ``lp.watch`` add to a training step, compared with a plain loop.

One PyTorch process on one thread trains nn.LSTM, about 1 ms per step, with two phases per step;
plain loops and loops with lstmprof alternate. Once a session has measured all its steps, its calls
may take at most 1 % of a step; the calls alone are timed, too, because that is more exact. The
session's timed steps (timings.parquet) are compared with the plain ones. The same limit applies to
a watch that profiles nothing and writes one row of its log per second.

Example: ``python benchmarks/own_code.py``
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from lstmprof.capture.own.passes import Plan
from lstmprof.capture.own.session import Session
from lstmprof.capture.own.watch import Watch
from lstmprof.capture.worker.machine import host

ROUNDS, STEPS, WARMUP = 60, 50, 50
#: Iterations per loop that only calls ``step`` and ``phase``; number of such loops.
CALLS, LOOPS = 20_000, 20
MOST_SHARE = 0.01

Cost = tuple[float, float]  # wall and CPU time of a step, ns


def training() -> Callable[[Callable[[str], Any]], None]:
    """Return a training step as a user would write it.

    Its argument ``phase(name)`` returns the context manager for a phase of the step.
    """
    lstm, head = torch.nn.LSTM(32, 64), torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD([*lstm.parameters(), *head.parameters()], lr=0.01)

    def step(phase: Callable[[str], Any]) -> None:
        with phase("input"):
            inputs, targets = torch.ones(20, 8, 32), torch.zeros(8, dtype=torch.int64)
        loss = torch.nn.functional.cross_entropy(head(lstm(inputs)[0][-1]), targets)
        optimizer.zero_grad()
        loss.backward()
        with phase("optimizer"):
            optimizer.step()

    return step


def bare(step: Callable[[Callable[[str], Any]], None]) -> Cost:
    """Return (wall, CPU) ns per step of a plain loop."""
    began = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(STEPS):
        step(lambda name: nullcontext())
    return _each(began)


def beside(session: Session, step: Callable[[Callable[[str], Any]], None]) -> Cost:
    """Return (wall, CPU) ns per step with a ``session`` whose measurements are complete."""
    began = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(STEPS):
        step(session.phase)
        session.step()
    return _each(began)


def watched(watch: Watch, step: Callable[[Callable[[str], Any]], None]) -> Cost:
    """Return (wall, CPU) ns per step with a ``watch``."""
    began = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(STEPS):
        step(watch.phase)
        watch.step()
    return _each(began)


def watch_ns(watch: Watch) -> float:
    """Return the CPU time in ns of a watch's calls per step of a loop over batches.

    It is the minimum over ``LOOPS`` loops.
    """
    best = float("inf")
    for _ in range(LOOPS):
        watch._batches = range(CALLS)
        began = time.thread_time_ns()
        for _ in watch:
            pass
        best = min(best, (time.thread_time_ns() - began) / CALLS)
    return best


def row_ns(watch: Watch, steps: int) -> float:
    """Return the CPU time in ns to write a row of the log about ``steps`` steps.

    It is the minimum over ``LOOPS`` rows.
    """
    best = float("inf")
    for _ in range(LOOPS):
        watch._walls, watch._waits = [*range(steps)], [*range(steps)]
        began = time.thread_time_ns()
        watch._write_window(None)
        best = min(best, time.thread_time_ns() - began)
    return best


def _each(began: tuple[int, int]) -> Cost:
    wall, cpu = time.perf_counter_ns() - began[0], time.process_time_ns() - began[1]
    return wall / STEPS, cpu / STEPS


def calls_ns(session: Session) -> float:
    """Return the CPU time in ns of one ``session.step()`` and two phases.

    The measurements of the session must be complete. The time is a minimum over ``LOOPS`` loops.
    """

    def loop_ns() -> float:
        began = time.thread_time_ns()
        for _ in range(CALLS):
            with session.phase("input"):
                pass
            with session.phase("optimizer"):
                pass
            session.step()
        return (time.thread_time_ns() - began) / CALLS

    return min(loop_ns() for _ in range(LOOPS))


def main() -> None:
    """Print the cost of a step in a plain loop, with a session and with a watch.

    Raises:
        SystemExit: the calls take more than 1 % of a step.
    """
    host.take_cpus(1)
    torch.set_num_threads(1)
    step = training()
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(warmup=WARMUP, timed=2 * STEPS, steps=3)
        with Session(Path(folder) / "mine", framework="torch", plan=plan) as session:
            while not session.measured:
                step(session.phase)
                session.step()
            pairs = [(bare(step), beside(session, step)) for _ in range(ROUNDS)]
            alone = calls_ns(session)
            rows = session.rows
        with Watch(Path(folder) / "watch", framework="torch", quiet=True) as watch:
            watch._cannot_profile = True  # measure no profiles here
            watch_pairs = [(bare(step), watched(watch, step)) for _ in range(ROUNDS)]
            watch_alone = watch_ns(watch)
            each_s = int(1e9 / statistics.median(p[0][0] for p in watch_pairs))
            row_alone = row_ns(watch, each_s)
    tell_ratios(watch_pairs, "a watch")
    watch_each = watch_alone + row_alone / each_s
    watch_share = watch_each / statistics.median(p[0][1] for p in watch_pairs)
    print(
        f"a watch alone: {watch_alone:.0f} ns of CPU per step and {row_alone / 1e3:.0f} µs per "
        f"second, {watch_share:.3%} of a step's"
    )
    if watch_share > MOST_SHARE:
        raise SystemExit(f"a watch takes more than {MOST_SHARE:.0%} of a step")
    tell(pairs, alone, statistics.median(row.wall_ns for row in rows if not row.warmup))


def tell_ratios(pairs: list[tuple[Cost, Cost]], beside_what: str) -> None:
    """Print the medians and ratios; ``pairs`` has (plain cost, cost with lstmprof) per round."""
    for place, clock in enumerate(("wall", "CPU")):
        without, beside_ns = (statistics.median(p[n][place] for p in pairs) for n in range(2))
        ratios = [p[1][place] / p[0][place] for p in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"a step by {clock} time: {without / 1e6:.3f} ms bare, {beside_ns / 1e6:.3f} ms with "
            f"{beside_what}; ratio {middle:.4f} (middle half {low:.4f} to {high:.4f})"
        )


def tell(pairs: list[tuple[Cost, Cost]], alone_ns: float, timed_ns: float) -> None:
    """Print the cost of a session whose measurements are complete.

    ``alone_ns`` is the CPU time of its calls per step. ``timed_ns`` is the wall time of a step that
    the session timed.

    Raises:
        SystemExit: the calls take more than 1 % of a step.
    """
    tell_ratios(pairs, "the session done")
    bare_ns, bare_cpu_ns = (statistics.median(p[0][n] for p in pairs) for n in range(2))
    share = alone_ns / bare_cpu_ns
    print(f"step() and two phase() alone: {alone_ns:.0f} ns of CPU, {share:.3%} of a step's")
    print(f"a timed step: {timed_ns / 1e6:.3f} ms, {timed_ns / bare_ns:.3f} of a bare one")
    if share > MOST_SHARE:
        raise SystemExit(f"the calls take more than {MOST_SHARE:.0%} of a step")


if __name__ == "__main__":
    main()

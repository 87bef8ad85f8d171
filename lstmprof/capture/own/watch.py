"""The watch behind ``lp.watch``: times every step, and profiles when steps slow down.

A window is about a second of steps. Each window becomes one row of a JSON Lines file. After slow
windows, a session of ``lp.profile`` measures a few steps, and ``lstmprof diagnose`` compares these
steps with typical steps.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterable, Iterator, List, Optional, Union

from lstmprof.base.errors import LstmprofError, UsageError, command_line, one_line
from lstmprof.base.package import __version__
from lstmprof.capture.own.passes import Plan
from lstmprof.capture.own.session import Session, to_stderr, verdict_of
from lstmprof.capture.worker.machine.meters import NvmlGpu
from lstmprof.capture.worker.metadata import now
from lstmprof.capture.worker.profilers import framework_of, profiler_of
from lstmprof.runs.directory import cache_folder

#: Numbers of windows and of steps that define the typical step; fewest steps per window.
#: Chosen by hand.
TYPICAL_WINDOWS, TYPICAL_STEPS, LEAST_STEPS = 3, 30, 3
#: Number of latest windows whose median step time is the typical step time. Fewer windows would
#: hide a slow drift.
MEMORY = 600
#: Number of consecutive slow windows that start a profile; one may be due to a checkpoint.
SLOW_WINDOWS = 2
#: Largest number of profiles that a watch starts because steps became slower.
MOST_PROFILES = 5
PLAN = Plan(warmup=3, timed=10, steps=10)
_NOTHING = contextlib.nullcontext()  # type: ContextManager[Any]
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
SIGNAL = getattr(signal, "SIGUSR1", None)  # type: Optional[signal.Signals]


def watch(
    batches: Optional[Iterable[Any]] = None,
    place: Union[str, Path] = "traces/watch",
    *,
    framework: Optional[str] = None,
    ratio: float = 1.3,
    every: float = 1.0,
    quiet: bool = False,
) -> Watch:
    """Return a watch, which times every step of your training at a cost of microseconds per step.

    Iterate over the watch instead of over your batches. Or call ``step()`` at the end of each step.
    The watch shows step time, data wait, memory and GPU utilisation in a line of the terminal, and
    writes them to ``place`` + ``.jsonl``. It profiles a few typical steps at the beginning, and
    some more if steps become ``ratio`` times as long; it then says why they did. ``lstmprof attach
    PID`` and the signal SIGUSR1 start a profile, too.

    ::

        for batch in lp.watch(batches):
            train(batch)

    Args:
        batches: what your training iterates over. Without it, data wait is unknown.
        place: name of the log and of the runs: ``traces/watch.jsonl``, ``traces/watch-typical``,
            ``traces/watch-step-1234``.
        framework: ``"torch"``, ``"tensorflow"``, ``"keras"`` or ``"jax"``; by default the framework
            that is imported.
        ratio: how many times the typical step a step must take to be profiled.
        every: seconds between two rows of the log.
        quiet: print nothing.

    Raises:
        UsageError: ``ratio`` is not above 1, or ``every`` is not above 0.
    """
    if not ratio > 1:
        raise UsageError("ratio must be above 1, not {}".format(ratio))
    if not every > 0:
        raise UsageError("every must be above 0, not {}".format(every))
    return Watch(place, batches, framework=framework, ratio=ratio, every_s=every, quiet=quiet)


class Watch:
    """The watch of one training; ``lp.watch`` returns it.

    A watch ends with ``close()``, at the end of a ``with`` block, or with the process. If a
    profile fails, one line says why, and the training goes on.
    """

    def __init__(
        self,
        place: Union[str, Path],
        batches: Optional[Iterable[Any]] = None,
        *,
        framework: Optional[str] = None,
        ratio: float = 1.3,
        every_s: float = 1.0,
        quiet: bool = False,
        report: Callable[[str], None] = to_stderr,
        plan: Plan = PLAN,
        writer: str = sys.executable,
        facts: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.place, self.log = str(place), str(place) + ".jsonl"
        self.framework, self.ratio, self.plan, self.writer = framework, ratio, plan, writer
        self.facts = facts or {}
        self.steps = self.observed = 0
        self.path: Optional[Path] = None  # a session has a path; a watch has several sessions
        self.reason: Optional[str] = None
        #: Function that replaces ``Session.op_inputs``, or None.
        self.op_inputs: Optional[Callable[[int, int], Iterable[Any]]] = None
        self.measured = self.is_over = False
        self._batches, self._quiet, self._report = batches, quiet, report
        self._live = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._every_ns, self._next_ns = int(every_s * 1e9), 0
        self._began_ns: Optional[int] = None
        self._wait_ns: Optional[int] = None  # how long the current step waited for data
        self._walls: List[int] = []  # durations of the current window's steps, in nanoseconds
        self._waits: List[int] = []
        self._typical: List[Dict[str, Any]] = []  # rows of typical windows in the log
        self._slow = 0
        self._requested = False
        self._profiles = 0
        self._session: Optional[Session] = None
        self._why: Optional[str] = None
        self._occasion = ""  # why the session runs: ``typical``, ``slower`` or ``asked``
        self._base: Optional[str] = None  # the run of typical steps
        self._cannot_profile = False
        self._writing: Optional[threading.Thread] = None
        self._gpu: Optional[NvmlGpu] = None
        self._pid = os.getpid()
        self._undo: List[Callable[[], Any]] = []
        self._file: Any = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        if self._batches is None:
            raise UsageError("watch has no batches", "pass them: lstmprof.watch(batches)")
        iterator, clock = iter(self._batches), time.perf_counter_ns
        try:
            while True:
                self.step_begin()
                began_ns = clock()
                with self.phase("input"):
                    try:
                        batch = next(iterator)
                    except StopIteration:
                        return
                self._wait_ns = clock() - began_ns
                yield batch
                self.step_end()
        finally:  # work after an epoch belongs to no step
            self._began_ns = self._wait_ns = None

    def step(self, outcome: Any = None) -> None:
        """End the current step, and begin the next step; the first call only begins a step."""
        if self._began_ns is not None:
            self.step_end(outcome)
        self.step_begin()

    def step_begin(self) -> None:
        if self._began_ns is None:
            if self._file is None:
                self._begin()
            if self._session is not None:
                self._advance(self._session.step_begin)
            self._began_ns = time.perf_counter_ns()

    def step_end(self, outcome: Any = None) -> None:
        if self._began_ns is None:
            return
        if self._session is not None:
            self._advance(self._session.step_end, outcome)
        now_ns = time.perf_counter_ns()
        self._walls.append(now_ns - self._began_ns)
        if self._wait_ns is not None:
            self._waits.append(self._wait_ns)
            self._wait_ns = None
        self._began_ns = None
        self.steps += 1
        if now_ns >= self._next_ns or self._requested:
            self._look(now_ns)

    def waited(self, ns: int) -> None:
        """Add ``ns`` nanoseconds to the data wait of the current step."""
        self._wait_ns = ns + (self._wait_ns or 0)

    def phase(self, name: str) -> ContextManager[Any]:
        return _NOTHING if self._session is None else self._session.phase(name)

    @property
    def profiling(self) -> bool:
        return self._session is not None and self._session.profiling

    def begin(self) -> None:
        """Do nothing: a watch begins with its first step."""

    def end(self, error: object = None) -> None:
        """End the watch, as ``close`` does."""
        self.close()

    def abandon(self, reason: str) -> None:
        self._show(reason)
        self.close()

    def close(self) -> None:
        """Finish the current profile, close the log, and report the typical step."""
        if self.is_over or os.getpid() != self._pid:
            return
        self.is_over = True
        if self._session is not None:
            self._finish(self._session)
        if self._writing is not None:
            self._writing.join()
        if self._file is None:
            return
        if self._walls:
            self._write_window(None)
        while self._undo:
            self._undo.pop()()
        typical = self._typical_ms()
        step = "" if typical is None else ", typically {:.3g} ms per step".format(typical)
        self._show("watched {} steps{}; log: {}".format(self.steps, step, self.log))
        self._file.close()

    def _begin(self) -> None:
        """Open the log; let ``lstmprof attach`` and SIGUSR1, if free, start profiles."""
        if os.path.dirname(self.log):
            os.makedirs(os.path.dirname(self.log), exist_ok=True)
        self._file = open(self.log, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
        facts = {"version": __version__, "pid": self._pid, "started_at": now()}
        self._write("start", command=command_line(sys.argv), **facts)
        self._next_ns = time.perf_counter_ns() + self._every_ns
        with contextlib.suppress(Exception):
            profiler = profiler_of(framework_of(self.framework))
            profiler.find_device()
            device = str(profiler.facts()["device"])
            self._gpu = NvmlGpu.of(device) if device.startswith("cuda") else None
        atexit.register(self.close)
        self._undo.append(lambda: atexit.unregister(self.close))
        is_main = threading.current_thread() is threading.main_thread()
        free = (signal.SIG_DFL, _come_too_late)
        if SIGNAL is not None and is_main and signal.getsignal(SIGNAL) in free:
            signal.signal(SIGNAL, self._ask)
            self._undo.append(self._release)
            with contextlib.suppress(OSError):
                entry = registered(self._pid)
                entry.parent.mkdir(parents=True, exist_ok=True)
                entry.write_text(os.path.abspath(self.log), encoding="utf-8")
                self._undo.append(entry.unlink)

    def _release(self) -> None:
        if SIGNAL is not None and signal.getsignal(SIGNAL) == self._ask:
            signal.signal(SIGNAL, _come_too_late)

    def _ask(self, number: int, frame: object) -> None:
        self._requested = True

    def _look(self, now_ns: int) -> None:
        """End the window if due: write its row, and start a profile if steps are slow."""
        writing = self._writing is not None and self._writing.is_alive()
        doing = "profiling" if self._session else "writing a run" if writing else None
        is_due = now_ns >= self._next_ns and len(self._walls) >= LEAST_STEPS
        # do not wait for the end of the window if the user requested a profile
        if not is_due and (doing or not self._requested):
            return
        row = self._write_window(doing)
        if doing is None:
            self._judge(row)
        self._next_ns = time.perf_counter_ns() + self._every_ns

    def _judge(self, row: Dict[str, Any]) -> None:
        typical = self._typical_ms()
        typical_steps = sum(each["steps"] for each in self._typical)
        if self._requested:
            self._requested = False
            self._start("asked", "profiled on demand at step {}".format(self.steps))
            return
        if typical is None or typical_steps < TYPICAL_STEPS or len(self._typical) < TYPICAL_WINDOWS:
            self._typical.append(row)
            return
        if self._base is None and not self._cannot_profile:
            self._base = self.place + "-typical"
            self._start("typical")
            return
        if row["step_ms"] < self.ratio * typical:
            self._slow = 0
            self._typical = [*self._typical[1 - MEMORY :], row]
            return
        self._slow += 1
        if self._slow >= SLOW_WINDOWS:
            why = _slower(self.steps, typical, row, self._typical)
            self._typical, self._slow = [], 0  # from now on, the slower step is the typical one
            if self._profiles < MOST_PROFILES:
                self._profiles += 1
                self._start("slower", why)

    def _typical_ms(self) -> Optional[float]:
        return statistics.median(r["step_ms"] for r in self._typical) if self._typical else None

    def _start(self, occasion: str, why: Optional[str] = None) -> None:
        """Begin a profile, and show the user why."""
        self._occasion = occasion
        if why is not None:
            self._show(why)
            self._write(occasion, step=self.steps, why=why)
        place = self._base if why is None else "{}-step-{}".format(self.place, self.steps)
        session = Session(
            str(place),
            framework=self.framework,
            plan=self.plan,
            force=True,
            report=lambda line: None,
            writer=self.writer,
            facts=dict(self.facts),
        )
        try:
            session.begin()
        except LstmprofError as error:
            self._no_run(session, why, "cannot profile: {}".format(error))
            return
        if self.op_inputs is not None:
            session.op_inputs = self.op_inputs
        self._session, self._why = session, why

    def _advance(self, do: Callable[..., Any], *outcome: Any) -> None:
        """Begin or end a step of the session; write the run after the last step."""
        session = self._session
        assert session is not None
        with contextlib.suppress(LstmprofError):  # the session keeps the error as its reason
            do(*outcome)
        if session.measured:
            self._session = None
            self._writing = threading.Thread(target=self._finish, args=(session,), name="lstmprof")
            self._writing.start()

    def _finish(self, session: Session) -> None:
        """Write a profile's run, and print the diagnosis unless the steps are typical."""
        self._session = None
        session.end()
        if session.path is None:
            self._no_run(session, self._why, str(session.reason))
            return
        path = str(session.path)
        why, verdict = self._why, None
        if why is None:
            self._show("wrote {}: a profile of typical steps".format(path))
        else:
            places = [path] if self._base is None else [self._base, path]
            verdict = verdict_of(places, self.writer)
            self._show("wrote {}; next: lstmprof diagnose {}".format(path, command_line(places)))
            if verdict and not self._quiet and sys.stderr is not None:
                sys.stderr.write(verdict)
        self._write_profile(run=path, why=why, verdict=verdict)

    def _no_run(self, session: Session, why: Optional[str], reason: str) -> None:
        """Report why no run was written for a profile."""
        if why is None:
            # diagnose later profiles alone, because there is no run of typical steps
            self._base, self._cannot_profile = None, True
        self._show(reason)
        self._write_profile(run=None, why=why, reason=reason)

    def _write_profile(self, **row: Any) -> None:
        self._write("profile", step=self.steps, occasion=self._occasion, **row)

    def _write_window(self, doing: Optional[str]) -> Dict[str, Any]:
        """Write a row about the ended window to the log, and begin the next window."""
        walls, waits = self._walls, self._waits
        self._walls, self._waits = [], []
        row: Dict[str, Any] = {
            "step": self.steps,
            "steps": len(walls),
            "step_ms": statistics.median(walls) / 1e6,
            "slowest_ms": max(walls) / 1e6,
            "wait_ms": statistics.median(waits) / 1e6 if len(waits) == len(walls) else None,
            "memory_bytes": _resident_bytes(),
            **(self._gpu.load() if self._gpu else {"gpu_share": None, "gpu_memory_bytes": None}),
            "doing": doing,
        }
        self._write("window", **row)
        if self._live:
            sys.stderr.write("\r\x1b[K" + live_line(row))
            sys.stderr.flush()
        return row

    def _write(self, kind: str, **row: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # a full disk ends the log, not the training
            self._file.write(json.dumps(dict({"kind": kind, "time_s": time.time()}, **row)) + "\n")
            self._file.flush()

    def _show(self, line: str) -> None:
        if self._quiet:
            return
        if self._live:
            sys.stderr.write("\r\x1b[K")
        self._report(one_line(line))


def live_line(row: Dict[str, Any]) -> str:
    """Format a window's row for the terminal: ``step 1,200   12.5 ms   data wait 3%``."""
    parts = ["step {:,}".format(row["step"]), "{:.3g} ms".format(row["step_ms"])]
    if row["wait_ms"] is not None:
        parts.append("data wait {:.0%}".format(row["wait_ms"] / row["step_ms"]))
    for name, words in (("memory_bytes", "{:.2f} GB"), ("gpu_memory_bytes", "GPU {:.2f} GB")):
        if row[name] is not None:
            parts.append(words.format(row[name] / 1e9))
    if row["gpu_share"] is not None:
        parts.append("GPU busy {:.0%}".format(row["gpu_share"]))
    return "   ".join([*parts, row["doing"]] if row["doing"] else parts)


def _come_too_late(number: int, frame: object) -> None:
    """Ignore SIGUSR1 after the watch; by default, the signal would end the process."""


def registered(pid: int) -> Path:
    """Return the path of the file that marks a process as watched."""
    return cache_folder() / "watching" / str(pid)  # it contains the log's path


def _slower(step: int, typical: float, row: Dict[str, Any], before: List[Dict[str, Any]]) -> str:
    """Return a line such as ``step 1200: 20 ms, 1.60× the typical 12.5 ms``."""
    line = "step {}: {:.3g} ms, {:.2f}× the typical {:.3g} ms".format(
        step, row["step_ms"], row["step_ms"] / typical, typical
    )
    waits = [each["wait_ms"] for each in before]
    if row["wait_ms"] is None or None in waits:
        return line
    return "{}; data wait {:+.3g} ms".format(line, row["wait_ms"] - statistics.median(waits))


def _resident_bytes() -> Optional[int]:
    """Return the resident memory of this process, or None without /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None

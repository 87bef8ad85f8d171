"""The session behind ``lp.profile``, which times and profiles a training loop."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterable, List, Optional, Type, Union

from lstmprof.base.errors import LstmprofError, RunError, UsageError, command_line, one_line
from lstmprof.base.package import FOLDER
from lstmprof.capture.own.passes import PROFILING, SAMPLING, TIMING_AGAIN, Plan, StepPasses, Steps
from lstmprof.capture.own.recompiled import recompiled_by_torch
from lstmprof.capture.own.sizes import ModuleSizes
from lstmprof.capture.request import RESULT
from lstmprof.capture.worker import shapes, timing
from lstmprof.capture.worker.machine import host
from lstmprof.capture.worker.metadata import now, worker_facts
from lstmprof.capture.worker.profilers import Profiler, framework_of, profiler_of
from lstmprof.runs.directory import check_name, staging

Report = Callable[[str], None]

#: Lock that a session holds while measuring, because a process has only one profiler.
_MEASURES = threading.Lock()
_NOTHING = contextlib.nullcontext()  # type: ContextManager[Any]
STEP = "step"
#: Reason why a run has no CPU counters: counters count only threads that start later.
NOT_COUNTED = "the process had started its threads before"
USUAL = Plan()


def to_stderr(line: str) -> None:
    sys.stderr.write("lstmprof: {}\n".format(line))


def profile(
    place: Union[str, Path],
    *,
    framework: Optional[str] = None,
    warmup: int = USUAL.warmup,
    timed: int = USUAL.timed,
    steps: int = USUAL.steps,
    force: bool = False,
    quiet: bool = False,
) -> Session:
    """Return a session that times and profiles your training loop; use it in a ``with`` statement.

    Call ``step()`` of the session at the end of each training step. At the end of the block, the
    run is written to ``place``. Steps after the measured steps run at full speed.

    ::

        with lp.profile("traces/mine") as session:
            for batch in batches:
                train(batch)
                session.step()

    Args:
        place: folder of the run.
        framework: ``"torch"``, ``"tensorflow"``, ``"keras"`` or ``"jax"``; by default the framework
            that is imported.
        warmup: number of steps before timing begins.
        timed: number of steps to time without a profiler, half before the profile and half after
            it.
        steps: number of steps to profile.
        force: replace the run if it exists.
        quiet: do not print the verdict at the end of the block.

    Raises:
        UsageError: a number is below 1. At the start of the block: no framework or several
            frameworks are imported, or another ``lp.profile`` is active in this process.
        RunError: the run exists and ``force`` is False.
    """
    place = Path(place)
    try:
        check_name(place.parent, place.name, force=force)
    except RunError as error:
        raise RunError(error.fault, "pass force=True to overwrite it, or another place") from None
    plan = plan_of(warmup, timed, steps)
    return Session(place, framework=framework, plan=plan, force=force, quiet=quiet)


def plan_of(warmup: int, timed: int, steps: int) -> Plan:
    for name, number in (("warmup", warmup), ("timed", timed), ("steps", steps)):
        if number < 1:
            raise UsageError("{} must be at least 1, not {}".format(name, number))
    return Plan(warmup, timed, steps)


class Session:
    """The measurement of one training loop; ``lp.profile`` returns it for a ``with`` statement.

    Time between ``step_end`` and the next ``step_begin`` belongs to no step. With ``step`` alone,
    steps follow each other without a gap, and the first call only begins a step.

    ``path`` is the folder of the written run. If none was written, ``reason`` says why.

    Call all methods in one thread. A forked process, such as a worker of a DataLoader, is not
    measured. If measuring fails, ``report`` gets one line, and the training continues.
    """

    def __init__(
        self,
        place: Union[str, Path],
        *,
        framework: Optional[str] = None,
        plan: Plan = USUAL,
        force: bool = False,
        profiler: Optional[Profiler] = None,
        facts: Optional[Dict[str, Any]] = None,
        report: Report = to_stderr,
        writer: str = sys.executable,
        quiet: bool = True,
    ) -> None:
        self.writer = writer  # the interpreter that writes the run
        self.quiet = quiet  # do not print the verdict on the run
        self.place, self.plan, self.force = Path(place), plan, force
        self.framework, self.report = framework, report
        self.profiler = profiler  # None: the framework's own profiler
        self.facts = facts or {}  # entries of run.json that the caller knows
        self.path: Optional[Path] = None
        self.reason: Optional[str] = None
        self.steps = 0
        self.observed = 0  # steps that were observed to find out which call ends a step
        #: Function of two counts of profiled steps, in the run and after the run -> input shapes.
        self.op_inputs: Callable[[int, int], Iterable[Any]] = lambda count, later: ()
        self._sizes: Optional[ModuleSizes] = None  # of PyTorch's modules
        self._steps: Optional[Steps] = None  # the generator of all passes; None when it has ended
        self._passes: Optional[StepPasses] = None
        self._in_step = False
        self._phase: Optional[str] = None
        self._pid, self._thread = os.getpid(), None  # type: int, Optional[int]
        self._own = contextlib.ExitStack()
        self._conditions: Dict[str, Any] = {}

    def __enter__(self) -> Session:
        self.begin()
        return self

    def __exit__(self, error: Optional[Type[BaseException]], *_: object) -> None:
        self.end(error)

    def begin(self) -> None:
        """Check that the run can be written to ``place``, and prepare for the first step.

        Raises:
            UsageError: no framework or several frameworks are imported, or another session is
                active.
            RunError: the run exists and ``force`` is False.
        """
        out, name = self.place.parent, self.place.name
        check_name(out, name, force=self.force)
        self.framework = framework_of(self.framework)
        if not _MEASURES.acquire(False):
            raise UsageError(
                "another lstmprof.profile is active in this process", "end that one first"
            )
        self._own.callback(_MEASURES.release)
        try:
            scratch = Path(self._own.enter_context(staging(out)))
            self._conditions = {"load_average_before": host.load_average(), "started_at": now()}
            profiler = self.profiler or profiler_of(self.framework)
            self._passes = StepPasses(self.plan, profiler, str(scratch))
            self._steps = self._passes.around_steps()
            next(self._steps)
            if "torch" in (self.framework or "") and "torch" in sys.modules:
                self._sizes = ModuleSizes(sys.modules["torch"])
                self._own.callback(self._sizes.close)
                self.op_inputs = self._sizes.inputs
        except BaseException:
            self._steps = self._passes = None
            self._own.close()
            raise

    @property
    def measured(self) -> bool:
        """Return whether measuring has ended."""
        return self._steps is None

    @property
    def is_over(self) -> bool:
        """Return whether the run was written or given up."""
        return self._passes is None

    @property
    def profiling(self) -> bool:
        """Return whether the profiler is on, also in sessions that are discarded."""
        return self._steps is not None and self._activity == PROFILING

    @property
    def rows(self) -> List[timing.Iteration]:
        """Return the times of all steps that were timed so far, including warm-up."""
        return list(self._passes.rows) if self._passes else []

    def step(self, outcome: Any = None) -> None:
        """End the current step, and begin the next step.

        Args:
            outcome: result of the step; JAX waits for it. If it is None, JAX waits for all arrays.

        Raises:
            UsageError: the call comes from another thread or from inside a phase.
        """
        if self._steps is None:
            return
        if self._in_step:
            self.step_end(outcome)
        self.step_begin()

    def step_begin(self) -> None:
        """Begin a step; do nothing if a step has begun.

        Raises:
            UsageError: the call comes from another thread or from inside a phase.
        """
        if self._is_mine() and not self._in_step:
            self._in_step = True
            self._advance(None)
            if self._sizes is not None:
                self._sizes.step_begins(self.profiling)

    def step_end(self, outcome: Any = None) -> None:
        """Wait for the device, then end the current step; do nothing outside of a step.

        Args:
            outcome: result of the step; JAX waits for it. If it is None, JAX waits for all arrays.

        Raises:
            UsageError: the call comes from another thread or from inside a phase.
        """
        if self._is_mine() and self._in_step:
            self._in_step = False
            self.steps += 1
            if self._sizes is not None:
                self._sizes.step_ends()
            self._advance(outcome)
            if self._sizes is not None and not self.profiling:
                self._sizes.close()

    def phase(self, name: str) -> ContextManager[Any]:
        """Return a context manager that names a part of the step: ``with session.phase("input"):``.

        The phase becomes a range in the profile. It also becomes an NVTX range if ``nvtx`` is
        installed.

        Raises:
            UsageError: ``name`` is ``"step"``.
        """
        if self._steps is None or not self._in_step:
            return _NOTHING
        return self._ranged(name)

    @contextlib.contextmanager
    def _ranged(self, name: str) -> Any:
        if name == STEP:
            raise UsageError("a phase cannot be named 'step'", "choose another name")
        passes = self._passes
        ranges = passes.ranges(name) if passes else _NOTHING
        outer, self._phase = self._phase, name
        try:
            with ranges:
                yield
        finally:
            self._phase = outer

    def _is_mine(self) -> bool:
        """Return whether this process measures; reject calls from a second thread or a phase."""
        if self._steps is None or os.getpid() != self._pid:  # a forked process
            return False
        # reject ``step()`` from a second thread: all steps must run in one thread
        thread = threading.get_ident()
        self._thread = self._thread or thread
        if thread != self._thread:
            self._misused("several threads called step()", "call step() in one thread")
        if self._phase is not None:
            self._misused(
                "step() was called inside the phase '{}'".format(self._phase), "end the phase first"
            )
        return True

    def _misused(self, fault: str, next_step: str) -> None:
        self.abandon(fault)
        raise UsageError(fault, next_step)

    def _advance(self, outcome: Any) -> None:
        """Run the passes until the user's next step begins or ends."""
        assert self._steps is not None
        try:
            self._steps.send(outcome)
        except StopIteration:
            self._steps = None
        except Exception as error:
            self.abandon("stopped while {}: {}".format(self._activity, _fault_in_a_line(error)))

    @property
    def _activity(self) -> str:
        return self._passes.doing if self._passes else "beginning"

    def abandon(self, reason: str = "the measurement was aborted") -> None:
        if os.getpid() != self._pid:
            return
        self._stop()
        if self._passes is None:
            return
        self._passes = None
        self.reason = one_line("did not write {}: {}".format(self.place, reason))
        self._own.close()
        self.report(self.reason)

    def _stop(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            with contextlib.suppress(Exception):  # a profiler that cannot be stopped
                steps.close()

    def end(self, error: Optional[Type[BaseException]] = None) -> None:
        """Stop measuring, and write the run if enough steps were measured.

        Args:
            error: type of the exception that ended the training; None if the training ended
                normally.
        """
        if os.getpid() != self._pid:
            return
        done = self.measured or self._activity == SAMPLING
        self._stop()
        passes = self._passes
        if passes is None:
            return
        try:
            if passes.profiled is None:
                passes.keep_latest()
            if passes.profiled is None:
                self.abandon(self._why_no_run(passes.fewest, error))
                return
            if not done:
                self.report(self._incomplete(passes))
            self._written(passes)
        except Exception as error:
            self.abandon(_fault_in_a_line(error))
        finally:
            self._passes = None
            self._own.close()

    def _why_no_run(self, fewest: int, error: Optional[Type[BaseException]]) -> str:
        if not self._in_step and not self.steps:
            return "the training never called step(); call step() at the end of each step"
        ended = "the training ended {}after {} steps, while {}".format(
            "by {} ".format(error.__name__) if error else "",
            self.observed + self.steps,
            self._activity,
        )
        # subtract 1, because ``fewest`` already counts one of the ``observed`` steps
        needs = fewest + max(self.observed - 1, 0)
        return "{}; a run needs {} steps{}".format(ended, needs, "" if error else "; train longer")

    def _incomplete(self, passes: StepPasses) -> str:
        """Return a line: how many steps were measured before the training ended early."""
        timed = sum(not row.warmup for row in passes.rows)
        profiled = len(passes.profiled.walls_ns) if passes.profiled else 0
        enough = self._activity == TIMING_AGAIN or profiled >= USUAL.steps
        doubt = "" if enough else "; these times are inaccurate, so train longer"
        return "the training ended while {}: the run has {} timed and {} profiled steps{}".format(
            self._activity, timed, profiled, doubt
        )

    def _written(self, passes: StepPasses) -> None:
        """Write the run, and print its diagnosis unless the session is quiet."""
        self._leave_result(passes, passes.folder)
        # write the run in a child process, because this process may lack libraries to write runs
        write_in_child(passes.folder, self.writer)
        self.path = self.place
        self.report(
            "wrote {}; next: lstmprof diagnose {}".format(self.path, shlex.quote(str(self.path)))
        )
        if not self.quiet:
            show_verdict(str(self.path), self.writer)

    def _leave_result(self, passes: StepPasses, folder: str, **changes: Any) -> None:
        """Write result.json, from which a child process writes the run."""
        profiled = passes.profiled
        assert profiled is not None
        facts = {
            **worker_facts(passes.profiler, host.allowed_cpus()),
            **self._conditions,
            **passes.cost,
            "framework": self.framework,
            "garbage_collector": "left as it was",
            "counters": {"reason": NOT_COUNTED},
            "warmup": sum(row.warmup and not row.after_profile for row in passes.rows),
            "profiled_wall_ns": profiled.walls_ns,
            "recording": [profiled.recording] if profiled.recording else None,
            "command": command_line(sys.argv),
            "ended_at": now(),
            "recompiled": recompiled_by_torch(),
            **self.facts,
        }
        result = {
            "metadata": facts,
            "timings": timing.columns(passes.rows),
            "profiles": [os.path.relpath(path, passes.folder) for path in profiled.files],
            "shapes": self._shapes(passes, len(profiled.walls_ns)),
            "place": str(self.place.resolve()),
            "force": self.force,
            "pid": os.getpid(),
            **changes,
        }
        with open(os.path.join(folder, RESULT), "w", encoding="utf-8") as file:
            json.dump(result, file)

    def _shapes(self, passes: StepPasses, steps: int) -> Optional[str]:
        """Write the input shapes of ops to a file; return the file's name."""
        try:
            inputs = self.op_inputs(steps, passes.later)
            path = shapes.written(inputs, os.path.join(passes.folder, shapes.FILE))
            return path and os.path.basename(path)
        except Exception as error:  # an unknown kind of module; the run then has no sizes
            self.report("could not record the sizes of layers: {}".format(_fault_in_a_line(error)))
            return None


def write_in_child(folder: str, python: str) -> None:
    """Write the run of a finished session in a child process."""
    done = _ended([python, "-m", "lstmprof.capture.captured_run", folder])
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LstmprofError(
            lines[-1]
            if lines
            else "the process that writes the run failed with status {}".format(done.returncode)
        )


def show_verdict(place: str, python: str, since: Optional[str] = None) -> None:
    """Print the diagnosis of a run on stderr; print nothing if the diagnosis fails."""
    text = verdict_of([place], python, *([] if since is None else ["--since", since]))
    if text:
        sys.stderr.write(text)


def verdict_of(places: List[str], python: str, *options: str) -> Optional[str]:
    """Return what ``lstmprof diagnose`` prints about these runs."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError):
        command = [python, "-m", "lstmprof", "diagnose", *places, *options]
        done = _ended(command, PYTHONIOENCODING=encoding)
        if not done.returncode:
            return str(done.stdout.decode(encoding, "replace"))
    return None


def _ended(command: List[str], **environment: str) -> Any:
    """Run a command to its end; its Python imports this copy of lstmprof."""
    package = os.path.dirname(FOLDER)
    paths = [package, os.environ.get("PYTHONPATH", "")]
    search = os.pathsep.join(p for p in paths if p)
    return subprocess.run(
        command,
        env=dict(os.environ, PYTHONPATH=search, **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def _fault_in_a_line(error: Exception) -> str:
    if isinstance(error, LstmprofError):
        return str(error)
    return "{}: {}".format(type(error).__name__, next(iter(str(error).splitlines()), ""))

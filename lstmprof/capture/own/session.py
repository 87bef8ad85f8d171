"""The session behind ``lp.profile``: it times and profiles steps of a training."""

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

import lstmprof
from lstmprof.capture.own.frameworks import framework_of, profiler_of
from lstmprof.capture.own.passes import PROFILING, SAMPLING, TIMING_AGAIN, Passes, Plan, Steps
from lstmprof.capture.request import RESULT
from lstmprof.capture.worker import host, shapes, timing
from lstmprof.capture.worker.metadata import now, worker_facts
from lstmprof.capture.worker.profilers import Profiler
from lstmprof.errors import LstmprofError, RunError, UsageError, command_line, one_line
from lstmprof.runs.directory import check_name, staging

Report = Callable[[str], None]

#: A process has one profiler: who holds this measures.
_MEASURES = threading.Lock()
_NOTHING = contextlib.nullcontext()  # type: ContextManager[Any]
STEP = "step"
#: Of the CPU's counters: they count threads that begin after them.
NOT_COUNTED = "the process had started its threads before"
USUAL = Plan()


def to_stderr(line: str) -> None:
    """Say ``line`` beside the program's own output."""
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
    """Time and profile the steps of your training loop.

    Use it in ``with lp.profile("traces/mine") as session:``, and call ``session.step()`` at the end
    of each step. When the block ends, the run is written to ``place``. Steps after the measured
    ones cost next to nothing.

    Args:
        place: folder of the run.
        framework: ``"torch"``, ``"tensorflow"``, ``"keras"`` or ``"jax"``; by default the one that
            is imported.
        warmup: steps before timing begins.
        timed: steps to time without a profiler, half of them before the profile and half after.
        steps: steps to profile.
        force: replace the run if it exists.
        quiet: print no verdict when the block ends.

    Raises:
        UsageError: a number is too small. When the block begins: no framework or several are
            imported, or another ``lp.profile`` is active in this process.
        RunError: the run exists already and ``force`` is False.
    """
    place = Path(place)
    try:
        check_name(place.parent, place.name, force=force)
    except RunError as error:
        raise RunError(error.fault, "pass force=True to overwrite it, or another place") from None
    plan = plan_of(warmup, timed, steps)
    return Session(place, framework=framework, plan=plan, force=force, quiet=quiet)


def plan_of(warmup: int, timed: int, steps: int) -> Plan:
    """The plan of so many steps.

    Raises:
        UsageError: a number is too small.
    """
    for name, number in (("warmup", warmup), ("timed", timed), ("steps", steps)):
        if number < 1:
            raise UsageError("{} must be at least 1, not {}".format(name, number))
    return Plan(warmup, timed, steps)


class Session:
    """Measures one training; ``lp.profile`` returns it, to be used in a ``with`` statement.

    ::

        begin ─▶ step_begin ─ phase … ─ step_end ─▶ step_begin … ─▶ end ─▶ a run at ``path``
                                  step() is step_end and step_begin          └ or ``reason``

    A step lasts from ``step_begin`` to ``step_end``; time between an end and the next begin belongs
    to no step. With ``step`` alone, steps follow each other without a gap, and the first call only
    begins a step. ``step_end`` waits for the device; between steps it starts or stops the profiler
    and writes its file. When all steps are measured, ``measured`` is True and these methods do
    nothing. ``end`` writes the run in a child process: then ``path`` is the run, or ``reason`` says
    in one line why there is none. ``abandon`` stops measuring and writes nothing. Both may be
    called at any time, also repeatedly.

    Call the other methods in one thread, that of the first step. A process forked meanwhile, such
    as a worker of a DataLoader, is not measured. After ``begin`` only misuse raises an error
    (``UsageError``); if measuring fails, ``report`` is called with one line and the training goes
    on.
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
        self.quiet = quiet  # no verdict on the run
        self.place, self.plan, self.force = Path(place), plan, force
        self.framework, self.report = framework, report
        self.profiler = profiler  # None: that of the framework
        self.facts = facts or {}  # of run.json, which the caller knows: mode, label …
        self.path: Optional[Path] = None
        self.reason: Optional[str] = None
        self.steps = 0
        self.found_by = 0  # steps before the first: by them it was found what ends one
        #: the inputs of ops, by how many steps the profile has
        self.op_inputs: Callable[[int], Iterable[Any]] = lambda count: ()
        self._steps: Optional[Steps] = None  # the passes, while they go on
        self._passes: Optional[Passes] = None
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
        """Check that a run can be written to ``place``, and get ready for the first step.

        Raises:
            UsageError: no framework or several are imported, or another session is active.
            RunError: the run exists already and ``force`` is False.
        """
        out, name = self.place.parent, self.place.name
        check_name(out, name, force=self.force)
        self.framework = framework_of(self.framework)
        if not _MEASURES.acquire(False):
            raise UsageError("another lstmprof.profile is active in this process", "end it first")
        self._own.callback(_MEASURES.release)
        try:
            scratch = Path(self._own.enter_context(staging(out)))
            self._conditions = {"load_average_before": host.load_average(), "started_at": now()}
            profiler = self.profiler or profiler_of(self.framework)
            self._passes = Passes(self.plan, profiler, str(scratch))
            self._steps = self._passes.around_steps()
            next(self._steps)
        except BaseException:
            self._steps = self._passes = None
            self._own.close()
            raise

    @property
    def measured(self) -> bool:
        """Whether all steps are measured."""
        return self._steps is None

    @property
    def is_over(self) -> bool:
        """Whether the run was written, or nothing will be."""
        return self._passes is None

    @property
    def profiling(self) -> bool:
        """Whether the profiler is on, also if this profile will be discarded."""
        return self._steps is not None and self._doing == PROFILING

    @property
    def rows(self) -> List[timing.Iteration]:
        """Steps that were timed so far, including warm-up."""
        return list(self._passes.rows) if self._passes else []

    def step(self, outcome: Any = None) -> None:
        """End the current step and begin the next one.

        ``outcome`` is the result of the step, for JAX to wait for; by default it waits for all
        arrays.
        """
        if self._steps is None:
            return
        if self._in_step:
            self.step_end(outcome)
        self.step_begin()

    def step_begin(self) -> None:
        """Begin a step; do nothing if one has begun."""
        if self._is_mine() and not self._in_step:
            self._in_step = True
            self._advance(None)

    def step_end(self, outcome: Any = None) -> None:
        """Wait for the device, then end the current step.

        ``outcome`` is the result of the step, for JAX to wait for; by default it waits for all
        arrays.
        """
        if self._is_mine() and self._in_step:
            self._in_step = False
            self.steps += 1
            self._advance(outcome)

    def phase(self, name: str) -> ContextManager[Any]:
        """Name a part of the step: ``with session.phase("input"):``.

        The phase is a range in the profile, and in NVTX if ``nvtx`` is installed.
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
        """Whether steps are measured, and in this process.

        Raises:
            UsageError: a step begins or ends where none can; nothing is measured any more.
        """
        if self._steps is None or os.getpid() != self._pid:
            return False
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
        """Go on with the passes to the next begin or end of a step."""
        assert self._steps is not None
        try:
            self._steps.send(outcome)
        except StopIteration:
            self._steps = None
        except Exception as error:
            self.abandon("stopped while {}: {}".format(self._doing, _told(error)))

    @property
    def _doing(self) -> str:
        return self._passes.doing if self._passes else "beginning"

    def abandon(self, reason: str = "the measurement was aborted") -> None:
        """Stop measuring, keep nothing, and report why no run is written."""
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
            with contextlib.suppress(Exception):  # a profiler that cannot even be stopped
                steps.close()

    def end(self, error: Optional[Type[BaseException]] = None) -> None:
        """Stop measuring, and write the run if enough steps were measured.

        ``error`` is the exception that ended the training, or None.
        """
        if os.getpid() != self._pid:
            return
        done = self.measured or self._doing == SAMPLING
        self._stop()
        passes = self._passes
        if passes is None:
            return
        try:
            if passes.profiled is None:
                passes.keep_latest()
            if passes.profiled is None:
                self.abandon(self._too_few(passes.fewest, error))
                return
            if not done:
                self.report(self._thin(passes))
            self._written(passes)
        except Exception as error:
            self.abandon(_told(error))
        finally:
            self._passes = None
            self._own.close()

    def _too_few(self, fewest: int, error: Optional[Type[BaseException]]) -> str:
        if not self._in_step and not self.steps:
            return "no step was seen; call step() at the end of each step"
        ended = "the training ended {}after {} steps, while {}".format(
            "by {} ".format(error.__name__) if error else "",
            self.found_by + self.steps,
            self._doing,
        )
        needs = fewest + max(self.found_by - 1, 0)  # the last of these is the first border
        return "{}; a run needs {} steps{}".format(ended, needs, "" if error else "; train longer")

    def _thin(self, passes: Passes) -> str:
        """Say what a run has whose training ended before all steps were measured."""
        timed = sum(not row.warmup for row in passes.rows)
        profiled = len(passes.profiled.walls_ns) if passes.profiled else 0
        enough = self._doing == TIMING_AGAIN or profiled >= USUAL.steps
        doubt = "" if enough else "; its times are rough, so train longer"
        return "the training ended while {}: the run has {} timed and {} profiled steps{}".format(
            self._doing, timed, profiled, doubt
        )

    def _written(self, passes: Passes) -> None:
        """Write the run by a child process, which reads the profile."""
        folder = passes.folder
        with open(os.path.join(folder, RESULT), "w", encoding="utf-8") as file:
            json.dump(self._result(passes), file)
        write_in_child(folder, self.writer)
        self.path = self.place
        self.report(
            "wrote {}; next: lstmprof diagnose {}".format(self.path, shlex.quote(str(self.path)))
        )
        if not self.quiet:
            show_verdict(str(self.path), self.writer)

    def _result(self, passes: Passes) -> Dict[str, Any]:
        """What the child writes the run of: as a worker leaves it, and where it shall be."""
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
            **self.facts,
        }
        return {
            "metadata": facts,
            "timings": timing.columns(passes.rows),
            "profiles": [os.path.relpath(path, passes.folder) for path in profiled.files],
            "shapes": self._shapes(passes.folder, len(profiled.walls_ns)),
            "place": str(self.place.resolve()),
            "force": self.force,
            "pid": os.getpid(),
        }

    def _shapes(self, folder: str, steps: int) -> Optional[str]:
        """The file of the inputs of ops in ``folder``; None without any."""
        try:
            return shapes.written(self.op_inputs(steps), os.path.join(folder, shapes.FILE))
        except Exception as error:  # a module unlike any other: the run goes without its sizes
            self.report("sizes of layers are unknown: {}".format(_told(error)))
            return None


def write_in_child(folder: str, python: str) -> None:
    """Write the run of the session that worked in ``folder``, by a process of ``python``.

    Raises:
        LstmprofError: it could not.
    """
    done = _ended([python, "-m", "lstmprof.capture.own.writing", folder])
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LstmprofError(
            lines[-1]
            if lines
            else "the process that writes the run failed with status {}".format(done.returncode)
        )


def show_verdict(place: str, python: str, since: Optional[str] = None) -> None:
    """Print on stderr what ``lstmprof diagnose`` says of the run at ``place``; nothing if it fails.

    The verdict is made by a process of ``python``. It ends with what the run gained ``since`` an
    earlier one.
    """
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError):
        command = [python, "-m", "lstmprof", "diagnose", place]
        command += [] if since is None else ["--since", since]
        done = _ended(command, PYTHONIOENCODING=encoding)
        if not done.returncode:
            sys.stderr.write(done.stdout.decode(encoding, "replace"))


def _ended(command: List[str], **environment: str) -> Any:
    """The process of a ``command`` of this lstmprof, ended."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(lstmprof.__file__)))
    paths = [package, os.environ.get("PYTHONPATH", "")]
    search = os.pathsep.join(p for p in paths if p)
    return subprocess.run(
        command,
        env=dict(os.environ, PYTHONPATH=search, **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def _told(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, LstmprofError):
        return str(error)
    return "{}: {}".format(type(error).__name__, next(iter(str(error).splitlines()), ""))

"""Measure a script while it runs: hooks in frameworks find the steps.

An error in lstmprof ends the measurement, never the script. Source: PEP 302, "Import Hook
Registration".
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.abc
import importlib.util
import os
import shlex
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence

from lstmprof.base.errors import LstmprofError, one_line
from lstmprof.capture.request import STOP, ScriptRequest
from lstmprof.capture.script import finders
from lstmprof.capture.script.ranges import OPTIMIZER, TorchRanges
from lstmprof.capture.script.ranks import Job
from lstmprof.capture.script.sizes import GraphSizes
from lstmprof.capture.script.steps import Steps

Attach = Callable[[Any], None]


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Watching:
    """Hooks into one script, finds its steps and measures the steps."""

    def __init__(self, request: ScriptRequest) -> None:
        self.request = request
        self.facts: Dict[str, Any] = dict(request.facts)
        self.steps = Steps(self._begun, self.report, self._measured, self._failed)
        self.session: Any = None
        self.sizes = GraphSizes()
        self._ranges: Optional[TorchRanges] = None
        self._lines: List[str] = []  # for the user, printed at the end
        self._reported = False  # the user knows why there is no run
        self._writing: Optional[threading.Thread] = None
        self.job = Job(request)
        self._path: Optional[str] = None  # of the run, once it is written
        self._pid = os.getpid()

    def install(self) -> None:
        """Watch every import and the end of the process."""
        self.steps.safely(self._install)

    def _install(self) -> None:
        optimizing = functools.partial(self.steps.safely, self._optimize)
        attach = finders.attachments(self.request, self.steps, optimizing, self.facts, self.sizes)
        attach.update(self.job.attachments(lambda: self.session is None, self.steps.safely))
        attach["multiprocessing.util"] = self._watch_forks
        if self.request.watch:
            attach["torch.utils.data.dataloader"] = self._time_input
        careful = {name: self._careful(do) for name, do in attach.items()}
        for name in [name for name in careful if name in sys.modules]:
            careful.pop(name)(sys.modules[name])
        ImportWatch(careful).install()
        atexit.register(self._at_exit)

    def _time_input(self, loader: Any) -> None:
        """Time how long a PyTorch DataLoader takes for each batch."""
        following = loader._BaseDataLoaderIter.__next__

        @functools.wraps(following)
        def timed(iterator: Any) -> Any:
            began_ns = time.perf_counter_ns()
            try:
                return following(iterator)
            finally:
                if self.session is not None and self.steps.here:
                    self.session.waited(time.perf_counter_ns() - began_ns)

        loader._BaseDataLoaderIter.__next__ = timed

    def _watch_forks(self, util: Any) -> None:
        """Measure a forked process too, unless its parent ran a step before the fork."""

        def forked(self: Watching) -> None:
            if self.session is None and not self.request.folder:
                self.job.child = True
                self._pid, self._lines = os.getpid(), []
                self.steps.restart()
                util.Finalize(None, self._at_exit, exitpriority=0)

        util.register_after_fork(self, forked)

    def report(self, line: str) -> None:
        """Keep a line until the script ends, so as not to interrupt a progress bar."""
        self._lines.append(one_line(line))

    def _print(self) -> None:
        while self._lines and sys.stderr is not None:
            sys.stderr.write("lstmprof: {}\n".format(self._lines.pop(0)))
            sys.stderr.flush()

    def _failed(self, error: Exception) -> None:
        """Stop measuring after an error in lstmprof, and report the error."""
        with contextlib.suppress(Exception):
            if self._ranges is not None:
                self._ranges.set(False)
        with contextlib.suppress(Exception):
            reason = "lstmprof failed with {!r}{}, but the script goes on; please report this error"
            reason = reason.format(error, _file_and_line(error))
            if self.session is not None and not self.session.is_over:
                self.session.abandon(reason)
            else:
                self.report("did not write {}: {}".format(self.request.place, reason))
            self._reported = True

    def _careful(self, attach: Callable[[Any], None]) -> Callable[[Any], None]:
        def attached(module: Any) -> None:
            try:
                attach(module)
            except Exception as error:
                self.report("cannot find the steps of {}: {!r}".format(module.__name__, error))

        return attached

    def _begun(self, source: str) -> Any:
        """Create and begin the session at the first step."""
        from lstmprof.capture.script.sessions import session_of

        try:
            rank = self.job.rank()
            if self.request.watch and rank is not None and rank[0] != 0:
                self._reported = True  # only rank 0 watches
                return None
            part = None if rank is None or self.request.watch else self.job.part_folder(rank)
            self.session = session_of(self.request, source, self.facts, self.report, part, rank)
            self.session.observed = self.steps.observed
            self.session.begin()
        except LstmprofError as error:
            self.report(str(error))
            self._reported = True
            return None
        if source.startswith("torch") and "torch" in sys.modules:
            self._ranges = TorchRanges(
                sys.modules["torch"], lambda name: self.session.phase(name), self.steps.safely
            )
        elif self.session.framework == "tensorflow":
            self.session.op_inputs = lambda count, later: self.sizes.inputs()
        return _Ranged(self.session, self._ranges)

    def _optimize(self, begins: bool) -> None:
        if self._ranges is None or not self.steps.profiling:
            return
        if begins:
            self._ranges.open(OPTIMIZER, OPTIMIZER)
        else:
            self._ranges.close(OPTIMIZER)

    def _measured(self) -> None:
        """Write the run after the last measured step; stop the script if requested."""
        self._report_backwards()
        if self.request.then != STOP:
            end = functools.partial(self.steps.safely, self._end)
            self._writing = threading.Thread(target=end, name="lstmprof")
            self._writing.start()
            return
        self._end()
        if threading.current_thread() is not threading.main_thread():
            self.report("cannot stop the script, because its steps do not run in the main thread")
            return
        raise SystemExit(0)

    def _report_backwards(self) -> None:
        ranges = self._ranges
        if ranges is None or not ranges.steps:
            return
        passes = ranges.backwards / ranges.steps
        if passes >= 2:
            self.report("the script runs {:.3g} backward passes per step".format(passes))

    def _end(self) -> None:
        if self.session is not None:
            self.session.end(getattr(sys, "last_type", None))  # an uncaught exception

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        self.steps.safely(self._finish)
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            self._print()
        if self._path is not None and not self.request.quiet:
            from lstmprof.capture.own.session import show_verdict

            with contextlib.suppress(KeyboardInterrupt):
                show_verdict(self._path, self.request.writer, self.request.compare_with)

    def _finish(self) -> None:
        if self._writing is not None:
            self._writing.join()
        if self.session is not None:
            if self._ranges is not None:
                self._ranges.set(False)
            self._end()
            self._path = None if self.session.path is None else str(self.session.path)
        self.job.give_up()
        if self.job.child or (self.job.launched or (0,))[0] != 0:
            if self.session is None or (self.job.rank() or (0,))[0] != 0:
                self._lines = []  # only rank 0 and the script's process print lines
            return
        parts = self.job.parts()
        if parts:
            self._join(len(parts))
        elif self.session is None and not self._reported:
            self.report("did not write {}: {}".format(self.request.place, self._why_no_step()))

    def _join(self, count: int) -> None:
        """Write one run from the results of all ranks."""
        from lstmprof.capture.own.session import write_in_child

        place = self.request.place
        try:
            write_in_child(self.job.folder, self.request.writer)
            self._path = place
            ranks = "" if count == 1 else " of {} ranks".format(count)
            words = "wrote {}{}; next: lstmprof diagnose {}"
            self.report(words.format(place, ranks, shlex.quote(place)))
        except LstmprofError as error:
            self.report("did not write {}: {}".format(place, error))
        finally:
            self.job.remove()

    def _why_no_step(self) -> str:
        function = self.request.step_function
        error = getattr(sys, "last_type", None)
        if error is not None:  # an uncaught exception
            return "{} ended the script before a step was seen".format(error.__name__)
        code = self.steps.exit_code
        if code not in (None, 0):
            status = code if isinstance(code, int) else 1
            return "the script ended with exit status {} before a step was seen".format(status)
        if function and not self.steps.functions:
            return "the script has no function '{}'; check --step-function".format(function)
        if function:
            return "the script never called '{}'".format(function)
        if self.steps.source is not None:
            return "the script ended before lstmprof recognised its steps; train longer"
        return (
            "lstmprof recognised no step: it saw no call of an optimizer, backward pass, gradient "
            "or train_on_batch; name the function that runs one step: --step-function NAME"
        )


class _Ranged:
    """Wraps a session, and adds ranges (phases, modules) to its profiled steps."""

    def __init__(self, session: Any, ranges: Optional[TorchRanges]) -> None:
        self._session, self._ranges = session, ranges

    @property
    def profiling(self) -> bool:
        return bool(self._session.profiling)

    @property
    def measured(self) -> bool:
        return bool(self._session.measured)

    def step_begin(self) -> None:
        self._session.step_begin()
        if self._ranges is not None:
            self._ranges.set(self._session.profiling)

    def step_end(self, outcome: Any) -> None:
        if self._ranges is not None:
            self._ranges.close(None)
        self._session.step_end(outcome)
        if self._ranges is not None and not self._session.profiling:
            self._ranges.set(False)


def _file_and_line(error: Exception) -> str:
    """Return where lstmprof raised an error: ``(lstmprof/capture/nsys.py:41)``."""
    trace = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in trace if frame.filename.startswith(_PACKAGE)]
    if not own:
        return ""
    return " ({}:{})".format(os.path.relpath(own[-1].filename, _PACKAGE), own[-1].lineno)


class ImportWatch(importlib.abc.MetaPathFinder):
    """Calls a function after the import of a module."""

    def __init__(self, attach: Dict[str, Attach]) -> None:
        self._attach = dict(attach)

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[Any]:
        """Find a watched module and wrap its loader; return None for other modules."""
        attach = self._attach.pop(name, None)
        if attach is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Watched(spec.loader, attach)
        return spec


class _Watched(importlib.abc.Loader):
    """A loader that loads a module as usual, then passes the module to a function."""

    def __init__(self, loader: Any, attach: Attach) -> None:
        self._loader, self._attach = loader, attach

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._attach(module)

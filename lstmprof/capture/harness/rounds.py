"""Capture runs in rounds: each round is a new worker process with a share of the iterations.

Finished rounds are kept on disk until their run is written (``kept_rounds``), so that an
interrupted sweep can resume.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lstmprof.base.errors import LstmprofError, RunError, UsageError
from lstmprof.base.numbers import number_of
from lstmprof.capture import nsys
from lstmprof.capture.captured_run import write_captured
from lstmprof.capture.harness.kept_rounds import ROUNDS as KEPT_IN, KeptRounds, Making, making
from lstmprof.capture.harness.supervisor import Seat, Turns, capture
from lstmprof.capture.request import (
    FRAMEWORKS_OWN,
    NSYS,
    PROFILED,
    ROUNDS,
    CaptureRequest,
    CaptureResult,
    check,
    run_name,
)
from lstmprof.capture.worker.machine import host
from lstmprof.runs.directory import check_name, staging
from lstmprof.runs.run import Run

Progress = Callable[[str], None]

#: Largest number of workers that take turns; a worker's framework needs 0.5 GB of memory.
MOST_IN_TURNS = 8


def capture_run(
    request: CaptureRequest,
    out: Path,
    *,
    name: str | None = None,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
) -> Run:
    """Time and profile one implementation, and write its run."""
    name = name or run_name(request)
    runs = captured_runs([{name: request}], out, rounds=rounds, force=force, progress=progress)
    result = dict(runs)[name]
    if isinstance(result, LstmprofError):
        raise result
    return result


def captured_runs(
    groups: Sequence[Mapping[str, CaptureRequest]],
    out: Path,
    *,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
) -> Iterator[tuple[str, Run | LstmprofError]]:
    """Capture groups of runs, and yield (name, run or error) after each run."""
    sweep = _Sweep(out, force, progress)
    try:
        for name, request in (item for group in groups for item in group.items()):
            error = sweep.begin(name, request, rounds)
            if error:
                yield name, error
        if sweep.captures:
            with staging(out) as scratch:
                # CPU workers take turns at each iteration, so that a slow phase affects all runs
                for place, (names, number) in enumerate(_rounds(groups, sweep.captures)):
                    yield from sweep.round(names, number, scratch / f"{place}")
    except BaseException as stop:
        words = sweep.kept_rounds_message()
        if words and not isinstance(stop, GeneratorExit):
            stop.add_note(words)
        raise


@dataclasses.dataclass
class _Capture:
    """An unfinished run: requests of all rounds, and results of finished rounds."""

    requests: list[CaptureRequest]
    makings: list[Making]
    kept: KeptRounds
    results: list[CaptureResult] = dataclasses.field(default_factory=list)


def _rounds(
    groups: Sequence[Mapping[str, CaptureRequest]], captures: Mapping[str, _Capture]
) -> Iterator[tuple[list[str], int]]:
    """Yield (runs to capture together, round), such as ``(["run a", "run b"], 0)``."""
    for group in groups:
        members = [name for name in group if name in captures]
        rounds = max((len(captures[name].requests) for name in members), default=0)
        for number in range(rounds):
            some = [n for n in members if n in captures and number < len(captures[n].requests)]
            # reverse the order in every second round, so that a slow drift of speed cancels out
            some = some if number % 2 == 0 else some[::-1]
            if _can_take_turns([captures[name].requests[number] for name in some]):
                yield some, number
            else:
                for name in some:
                    if name in captures:
                        yield [name], number


def _can_take_turns(requests: Sequence[CaptureRequest]) -> bool:
    """Return whether workers can take turns without slowing each other down."""
    # waiting GPU workers keep GPU memory, and waiting thread pools keep CPUs busy
    on_gpu = bool(host.cuda_devices())
    return 1 < len(requests) <= MOST_IN_TURNS and all(
        (request.device == "cpu" or (request.device == "auto" and not on_gpu))
        and request.threads in (None, 1)
        and request.sampler is None
        and request.profiler == FRAMEWORKS_OWN  # Nsight Systems keeps the worker's input to itself
        for request in requests
    )


@dataclasses.dataclass(frozen=True)
class _Together:
    """A worker's seat in the turn order, and the names and CPUs of all these workers."""

    seat: Seat
    names: tuple[str, ...]
    cpus: tuple[int, ...]


class _Sweep:
    def __init__(self, out: Path, force: bool, progress: Progress) -> None:
        self.out, self.force, self.progress = out, force, progress
        self.captures: dict[str, _Capture] = {}
        self.pace = Pace()

    def begin(self, name: str, request: CaptureRequest, rounds: int | None) -> LstmprofError | None:
        """Add a run to the sweep, with the finished rounds of an earlier capture."""
        try:
            check(request)
            if request.profiler == NSYS:
                nsys.nsys_path()
            check_name(self.out, name, force=self.force)
            shares = _shares(request, rounds)
        except LstmprofError as error:
            return error
        makings = [making(share, len(shares)) for share in shares]
        kept = KeptRounds(self.out, name)
        self._report_kept(name, kept, makings)
        self.captures[name] = _Capture(shares, makings, kept)
        self.pace.plan(name, len(shares))
        return None

    def _report_kept(self, name: str, kept: KeptRounds, makings: list[Making]) -> None:
        """Report the rounds of a stopped capture, and discard unusable rounds."""
        there = number_of(len(kept), "round", "rounds")
        change = "--force is given" if self.force else kept.change(makings)
        if not len(kept):
            kept.discard()
        elif change:
            self.progress(f"{name}: discarding {there} of a stopped capture, because {change}")
            kept.discard()
        else:
            self.progress(f"resuming {name}: {len(kept)} of {len(makings)} rounds are done")

    def round(
        self, names: Sequence[str], number: int, scratch: Path
    ) -> Iterator[tuple[str, Run | LstmprofError]]:
        """Capture one round of several runs; yield each run that is complete or failed."""
        there = {name: self._earlier_result(name, number) for name in names}
        left = [name for name, result in there.items() if result is None]
        began_s = time.monotonic()
        captured = self._captured_in_turns(left, number, scratch)
        took_s = (time.monotonic() - began_s) / max(len(left), 1)
        for name in names:
            result = there[name] or captured[name]
            ended = self._round_done(name, result, took_s if name in captured else None)
            if ended:
                yield name, ended

    def _earlier_result(self, name: str, number: int) -> CaptureResult | LstmprofError | None:
        try:
            return self.captures[name].kept.result(number)
        except LstmprofError as error:
            return error

    def _captured_in_turns(
        self, names: Sequence[str], number: int, scratch: Path
    ) -> dict[str, CaptureResult | LstmprofError]:
        """Run one worker per run, in turns if there are several."""
        if len(names) < 2:
            return {name: self._result_or_error(name, number, scratch) for name in names}
        scratch.mkdir()
        cpus, turns = tuple(host.idlest(host.allowed_cpus(), 1)), Turns(names)

        def captured(place: int, name: str) -> CaptureResult | LstmprofError:
            together = _Together(Seat(turns, name), tuple(names), cpus)
            try:
                return self._result_or_error(name, number, scratch / f"{place}", together)
            finally:
                turns.leave(name)

        with ThreadPoolExecutor(len(names)) as pool:
            try:
                futures = {n: pool.submit(captured, place, n) for place, n in enumerate(names)}
                return {name: future.result() for name, future in futures.items()}
            except BaseException:
                turns.stop()
                raise

    def _result_or_error(
        self, name: str, number: int, scratch: Path, together: _Together | None = None
    ) -> CaptureResult | LstmprofError:
        try:
            return self._captured(name, number, scratch, together)
        except LstmprofError as error:
            return error

    def _captured(
        self, name: str, number: int, scratch: Path, together: _Together | None
    ) -> CaptureResult:
        """Run the worker of one round, and move its result to the kept rounds."""
        of = self.captures[name]
        request, rounds = of.requests[number], len(of.requests)
        where = self.pace.words(name, number, rounds)
        if where:
            self.progress(where)
        turn = f", round {number + 1} of {rounds}" if rounds > 1 else ""
        who = f"{request.implementation} {request.label}".strip()

        def say(line: str) -> None:
            self.progress(f"{who}{turn}: {line}")

        if together is None:
            result = capture(request, scratch, say)
        else:
            request = dataclasses.replace(request, turn_with=together.names, cpus=together.cpus)
            result = capture(request, scratch, say, together.seat)
        of.kept.keep(number, scratch, result, of.makings[number])
        kept_result = of.kept.result(number)
        if kept_result is None:
            raise RunError(
                f"{of.kept.folder}: another capture removed a round", "repeat the capture"
            )
        return kept_result

    def _round_done(
        self, name: str, result: CaptureResult | LstmprofError, took_s: float | None
    ) -> Run | LstmprofError | None:
        """Add a round's result to its run; write the run after its last round."""
        of = self.captures[name]
        if isinstance(result, LstmprofError):
            if len(of.kept):
                self.progress(f"{name}: {self._words([of])}")
            return self._ended(name, result)
        of.results.append(result)
        self.pace.finished(name, took_s)
        if len(of.results) < len(of.requests):
            return None
        return self._ended(name, self._written(name, of))

    def _written(self, name: str, of: _Capture) -> Run | LstmprofError:
        """Write the run, then delete its rounds, except after a ``RunError``."""
        try:
            run = write_captured(name, of.results, self.out, force=self.force)
        except RunError as error:
            return error
        except LstmprofError as error:
            of.kept.discard()
            return error
        of.kept.discard()
        return run

    def _ended(self, name: str, result: Run | LstmprofError) -> Run | LstmprofError:
        del self.captures[name]
        self.pace.ended(name)
        return result

    def kept_rounds_message(self) -> str:
        """Return the message that says which rounds are kept and how to resume."""
        # discard rounds of existing runs: a command without --force skips existing runs
        if self.force:
            for name, of in self.captures.items():
                if (self.out / name).exists():
                    of.kept.discard()
        return self._words([of for of in self.captures.values() if len(of.kept)])

    def _words(self, captures: Sequence[_Capture]) -> str:
        if not captures:
            return ""
        rounds = number_of(sum(len(of.kept) for of in captures), "round", "rounds")
        runs = number_of(len(captures), "run", "runs")
        how = "the same command without --force" if self.force else "the same command"
        return f"kept {rounds} of {runs} in {self.out / KEPT_IN}; {how} resumes from there"


def _shares(request: CaptureRequest, rounds: int | None) -> list[CaptureRequest]:
    """Return one request per round, each with a part of the iterations."""
    count = min(ROUNDS, request.iterations) if rounds is None else rounds
    if request.iterations < count:
        raise UsageError(
            f"{request.iterations} iterations are fewer than {count} rounds",
            "raise --iterations or lower --rounds",
        )
    if request.profile_steps == 0:
        raise UsageError("a run needs at least 1 profiled step", "raise --profile-steps")
    steps = -(-PROFILED // count) if request.profile_steps is None else request.profile_steps
    least, more = divmod(request.iterations, count)
    return [
        dataclasses.replace(
            request,
            iterations=least + (number < more),
            profile_steps=steps,
            # measure the machine's peak rates only in the first round
            peaks=request.peaks and number == 0,
            sampler_s=request.sampler_s / count,
        )
        for number in range(count)
    ]


class Pace:
    """Estimates the time that is left in a sweep."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._took_s: dict[str, list[float]] = {}

    def plan(self, name: str, rounds: int) -> None:
        self._left[name] = rounds
        self._took_s[name] = []

    def finished(self, name: str, took_s: float | None) -> None:
        self._left[name] -= 1
        self._took_s[name] += [] if took_s is None else [took_s]  # None: an earlier capture ran it

    def ended(self, name: str) -> None:
        self._left[name] = 0

    def left_s(self) -> float | None:
        """Estimate how long the remaining rounds will take."""
        measured = [took_s for run_times in self._took_s.values() for took_s in run_times]
        if not measured:
            return None
        usual_s = statistics.fmean(measured)
        return sum(
            left * (statistics.fmean(self._took_s[name]) if self._took_s[name] else usual_s)
            for name, left in self._left.items()
        )

    def words(self, name: str, number: int, rounds: int) -> str:
        """Return the progress, such as ``3 of 8 captures, about 4 min left``."""
        planned, left_s = list(self._left), self.left_s()
        parts = [f"{planned.index(name) + 1} of {len(planned)} captures"]
        parts += [f"round {number + 1} of {rounds}"] if rounds > 1 else []
        parts += [f"about {span(left_s)} left"] if left_s else []
        return ", ".join(parts if len(planned) > 1 else parts[1:])


def span(seconds: float) -> str:
    """Format a duration: ``40 s``, ``4 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

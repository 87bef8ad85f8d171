"""What a notebook and a script call: ``import lstmprof as lp``.

::

    read, read_all ─▶ Run ─▶ ledger, table, timings, what_if ─▶ Table ─▶ to_pandas …
    capture, ingest ─▶ Run        compare, diagnose ─▶ Diagnosis        gate ─▶ Gate
    profile ─▶ a run on disk      report, charts    ─▶ a page, an Altair chart
                                  sql               ─▶ Table

Targets are what the commands take: a run, a folder of runs, a raw profile, a folder of ranks, a tar
archive, a URL. Every error is an ``LstmprofError`` of one line.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import importlib
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lstmprof import workloads
from lstmprof.breakdown import Breakdown, break_down, sql as database
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.result import Table, html_table
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.timings import Timings
from lstmprof.capture.implementation_file import implementation_file, is_file
from lstmprof.capture.interpreters import Wish
from lstmprof.capture.own.session import profile
from lstmprof.capture.plan import make_ready, plan
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.rounds import capture_run
from lstmprof.diagnose.diagnosis import Diagnosis, diagnose_all
from lstmprof.diagnose.gate.limits import limits
from lstmprof.diagnose.gate.verdict import Gate, gate as gate_of
from lstmprof.diagnose.history import history as series_of, table as history_table
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of
from lstmprof.diagnose.what_ifs import Asked
from lstmprof.errors import (
    ForeignFileError,
    LeftOutWarning,
    LstmprofError,
    RunError,
    UsageError,
    unknown_name,
)
from lstmprof.names import FAIL_IF, FORMS, USUAL_TABLES
from lstmprof.numbers import milliseconds, percent
from lstmprof.replay import CHANGES, Prediction
from lstmprof.report import report_of
from lstmprof.report.charts import CHARTS, alone
from lstmprof.report.page import refuse, write
from lstmprof.runs import baselines
from lstmprof.runs.cache import open_runs
from lstmprof.runs.ingest import ingest_profiles
from lstmprof.runs.metadata import RunInfo
from lstmprof.runs.run import Run as StoredRun
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import named

if TYPE_CHECKING:
    import altair

__all__ = [
    "Diagnosis",
    "Gate",
    "Run",
    "Table",
    "capture",
    "charts",
    "compare",
    "diagnose",
    "gate",
    "history",
    "ingest",
    "profile",
    "read",
    "read_all",
    "report",
    "sql",
]

Target = str | Path


class Run:
    """One captured run or one profile that was read; ``lp.read`` makes it.

    ``step_range`` is a regular expression: the host ranges that it finds are the steps.
    """

    def __init__(self, stored: StoredRun, step_range: str | None = None) -> None:
        self.stored = stored
        self.step_range = step_range

    @property
    def name(self) -> str:
        """What it is called."""
        return self.stored.name

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.stored.path

    @property
    def info(self) -> RunInfo:
        """What ran: run.json, typed; None is unknown."""
        return self.stored.info

    @functools.cached_property
    def breakdown(self) -> Breakdown:
        """The breakdown of its steps, as the other stages take it."""
        return break_down(
            self.stored, self.step_range, (*USUAL_TABLES, "launch_gaps", "casts", "collectives")
        )

    def ledger(self) -> Table:
        """Every nanosecond of each step and device once."""
        return self.table("ledger")

    def table(self, name: str) -> Table:
        """A table of docs/tables.md: ``kernels``, ``ops``, ``launches`` …

        Raises:
            UsageError: no table has this name.
        """
        rows = self.breakdown.table(name)
        return Table(name, rows, TABLES[name].columns)

    def timings(self) -> Timings | None:
        """Return the length, interval and warnings of the clean step; None if no step was timed."""
        return self.breakdown.timings

    def what_if(
        self,
        without: str | None = None,
        *,
        gemm_at_roofline: bool = False,
        form: str | None = None,
    ) -> Prediction:
        """The median step without a cause (``launch``, ``casts``, ``syncs`` …), with the matrix
        products at their roofline, or a forecast of it in another ``form`` (``layer``,
        ``compiled``); ``saved_ns`` is what it would save.

        Raises:
            UsageError: not one of them is asked for, or no such cause or form is known.
        """
        if (without is not None) + gemm_at_roofline + (form is not None) != 1:
            raise UsageError(
                "what_if takes one change", "give without=…, gemm_at_roofline=True or form=…"
            )
        if without is not None and without not in CHANGES:
            raise unknown_name("cause", without, CHANGES)
        if form is not None and form not in FORMS:
            raise unknown_name("form", form, FORMS)
        asked = Asked(
            (without,) if without else (), gemm_at_roofline, forms=(form,) if form else ()
        )
        return diagnose_all([self.breakdown], asked=asked)[0].what_ifs[0].prediction

    def to_perfetto(self, path: Target, *, force: bool = False) -> Path:
        """Write it as a trace that ui.perfetto.dev draws, and return where.

        Raises:
            RunError: the file is there already and ``force`` is not given, or cannot be written.
        """
        from lstmprof.export import perfetto

        perfetto.write(break_down(self.stored, self.step_range, ()), Path(path), force=force)
        return Path(path)

    def __repr__(self) -> str:
        return f"<Run {self.name} at {self.path}>"

    def _repr_html_(self) -> str:
        """Its steps' lengths and the largest parts of each lane."""
        heads = [("lane", ""), ("state", ""), ("part", ""), ("ms per step", ""), ("share", "")]
        rows = [
            (
                lane_words(lane.rank, lane.device),
                state,
                part,
                milliseconds(ns / lane.steps),
                percent(ns / lane.total_ns),
            )
            for lane in self.breakdown.steps()
            for state, part, ns in lane.parts
        ]
        return f"<p>Run {html.escape(self.name)}</p>" + html_table(heads, rows)


def read(target: Target, *, step_range: str | None = None) -> Run:
    """The one run that ``target`` means; a raw profile is read into a cache, not beside the file.

    Raises:
        ProfileError: it cannot be read as a profile.
        RunError: it is damaged.
        UsageError: it means several runs.
    """
    runs = read_all(target, step_range=step_range)
    if len(runs) != 1:
        raise UsageError(f"{target}: holds {len(runs)} runs", "lp.read_all reads them")
    return runs[0]


def read_all(*targets: Target | Iterable[Target], step_range: str | None = None) -> list[Run]:
    """Every run that ``targets`` mean, in their order; of others a ``LeftOutWarning`` is given.

    Raises:
        ProfileError: nothing of a target can be read as a profile, and nothing of any other.
        RunError: so it is with runs, which are damaged.
        UsageError: no target is given, or one is no path.
    """
    words = [word for target in targets for word in _words(target)]
    if not words:
        raise UsageError("no run is named", "give a run, a folder of runs or a profile")
    return [Run(stored, step_range) for stored in open_runs(words, leave_out=_left_out)]


def _left_out(fault: LstmprofError) -> None:
    if not isinstance(fault, ForeignFileError):
        warnings.warn(f"left out: {fault}", LeftOutWarning, stacklevel=5)


def _words(target: Any) -> list[Target]:
    if isinstance(target, (str, Path)):
        return [target]
    if isinstance(target, Iterable) and not isinstance(target, (bytes, Mapping)):
        return [word for inner in target for word in _words(inner)]
    raise UsageError(f"{target!r} is no path and no URL", "give text or a pathlib.Path")


Runs = Run | Target | Iterable[Run | Target]


def _runs(given: Runs) -> list[Run]:
    """What a function is given as runs: runs, or what is read as such."""
    if isinstance(given, Run):
        return [given]
    if isinstance(given, (str, Path)):
        return read_all(given)
    if isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        return [run for element in given for run in _runs(element)]
    raise UsageError(f"{given!r} is no run", "give what lp.read returns, or a path")


def ingest(target: Target, out: Target = "traces", *, force: bool = False) -> list[Run]:
    """Read the raw profiles at ``target`` into runs in the folder ``out``.

    Raises:
        ProfileError: a file of them cannot be read.
        RunError: a run is there already and ``force`` is not given.
    """
    done = ingest_profiles(target, Path(out), force=force)
    for error in (*done.errors, *(() if done.runs else done.foreign)):
        raise error
    return [Run(run) for run in (*done.runs, *done.kept) if isinstance(run, StoredRun)]


def capture(
    implementation: str,
    workload: str | Workload,
    *,
    out: Target = "traces",
    name: str | None = None,
    rounds: int | None = None,
    force: bool = False,
    packages: Collection[str] = (),
    era: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Run:
    """Run, time and profile one implementation, in ``rounds`` processes of its own.

    ``implementation`` is a name of ``lstmprof list``, or a file of yours, ``"mymodel.py:build"``.

    None is three rounds, or as many as iterations; stopped, the same call goes on with those that
    were done. ``options`` are the fields of ``CaptureRequest`` (``precision="amp-fp16"``,
    ``iterations=50`` …) and of the workload (``time_steps=20``, ``batch=32`` …). ``packages`` are
    installed into an environment for the worker (``["torch==2.4.1"]``), with what these versions
    need beside them; ``era`` is such an environment by its name (``"torch-1.4.0"``).

    Raises:
        UsageError: the request cannot be meant.
        CaptureError: the worker died, hung or refused; no run is left.
        RunError: the run is there already and ``force`` is not given.
    """
    network = named(workload) if isinstance(workload, str) else workload
    given = {"implementation", "workload", "file"}
    fields = {f.name for f in dataclasses.fields(CaptureRequest)} - given
    sizes = {f.name for f in dataclasses.fields(Workload)} - {"name"}
    for option in options:
        if option not in fields | sizes:
            raise unknown_name("option", option, sorted(fields | sizes))
    changed = {key: value for key, value in options.items() if key in sizes}
    asked = {key: value for key, value in options.items() if key not in sizes}
    wish = Wish(asked.pop("python", None), tuple(packages), era)
    network = workloads.with_overrides(network, **changed) if changed else network
    if is_file(implementation):
        asked["file"] = implementation_file(implementation)
        implementation = asked["file"].name
    request = CaptureRequest(implementation, network, **asked)
    place = Path(out)
    files = {implementation: request.file}
    (planned,) = plan(files, [network], [request.precision], request, place, wish)
    make_ready(planned, place / (name or planned.name), force=force, progress=progress)
    return Run(
        capture_run(
            planned.request, place, name=name, rounds=rounds, force=force, progress=progress
        )
    )


def compare(
    one: Run | Target,
    other: Run | Target,
    *,
    across: Collection[str] = (),
    rank: int | None = None,
    device: int | None = None,
) -> Diagnosis:
    """Why the slower of two runs is slower; ``across`` names conditions that may differ.

    ``rank`` and ``device`` are those to speak of, as for ``diagnose``.

    Raises:
        UsageError: they differ in another condition, these are not two runs, or one has no such
            rank or device.
    """
    runs = _runs([one, other])
    if len(runs) != 2:
        raise UsageError(f"these are {len(runs)} runs", "compare takes two; diagnose takes any")
    asked = Asked(rank=rank, device=device)
    breakdowns = [run.breakdown for run in runs]
    return diagnose_all(breakdowns, _names(across), asked, must_compare=True)[0]


def diagnose(
    runs: Runs,
    *,
    across: Collection[str] = (),
    rank: int | None = None,
    device: int | None = None,
) -> list[Diagnosis]:
    """Compare each run with the fastest that can be compared with it; alone if there is none.

    A run of several ranks or devices is seen on ``device`` of ``rank``; by default on the one that
    the others wait for in collectives, where there is one, else the busiest of the first rank.

    Raises:
        UsageError: ``across`` names no condition; a run has no such rank or device.
    """
    asked = Asked(rank=rank, device=device)
    return diagnose_all([run.breakdown for run in _runs(runs)], _names(across), asked)


def gate(base: Runs, new: Runs, fail_if: str = FAIL_IF, *, across: Collection[str] = ()) -> Gate:
    """Whether each of ``new`` is certain to keep ``fail_if`` against its like in ``base``.

    Its ``state`` is ``pass``, ``fail`` or ``inconclusive``, and so is that of each of its
    ``verdicts``. ``"baseline:NAME"`` is what ``lstmprof compare --save-baseline NAME`` kept.

    Raises:
        UsageError: ``fail_if`` cannot be meant; two runs, one a side, differ in a condition that
            ``across`` does not name; of several none has its like.
    """
    asked = limits(fail_if)
    return gate_of(_step_profiles(base), _step_profiles(new), asked, _names(across))


def history(runs: Runs) -> Table:
    """How the step of each implementation went from run to run, and where it changed.

    A row a run, the series one after the other, each the oldest first: docs/history.md.
    """
    return history_table(series_of(_step_profiles(runs)))


def _step_profiles(given: Runs) -> list[StepProfile]:
    if isinstance(given, str):
        given = baselines.place_of(given)
    return [step_profile_of(run.breakdown) for run in _runs(given)]


def _names(across: Collection[str]) -> Collection[str]:
    return (across,) if isinstance(across, str) else across


def sql(query: str, runs: Runs) -> Table:
    """The answer of one SELECT (DuckDB's SQL) over the tables of ``runs``: docs/tables.md.

    Raises:
        UsageError: it is no single SELECT, or DuckDB refuses it.
    """
    with database.answer(query, [run.stored for run in _runs(runs)]) as answer:
        columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    return Table("answer", pa.table(dict(zip(answer.columns, columns, strict=True))))


def report(
    runs: Runs,
    out: Target = "report.html",
    *,
    title: str | None = None,
    across: Collection[str] = (),
    force: bool = False,
) -> Path:
    """Write one HTML page about ``runs``, and return where.

    Raises:
        RunError: the file is there already and ``force`` is not given, or cannot be written.
    """
    refuse(Path(out), force=force)
    write(
        report_of([run.breakdown for run in _runs(runs)], title, _names(across)),
        Path(out),
        force=force,
    )
    return Path(out)


class Charts:
    """The charts of a report, each of runs and to be restyled: ``lp.charts.ledger(runs)``."""

    def __dir__(self) -> list[str]:
        return list(CHARTS)

    def __getattr__(self, name: str) -> Callable[..., altair.TopLevelMixin]:
        if name not in CHARTS:
            raise AttributeError(f"no chart is called {name}; there are {', '.join(CHARTS)}")
        return functools.partial(_chart, name)


def _chart(name: str, runs: Runs, *, across: Collection[str] = ()) -> altair.TopLevelMixin:
    """The chart ``name`` of ``runs``; one below the other where not all can be compared.

    Raises:
        RunError: the runs hold nothing that it could show.
    """
    import altair

    drawn = report_of([run.breakdown for run in _runs(runs)], None, _names(across))
    figures = importlib.import_module(f"lstmprof.report.charts.{name}").figures(drawn)
    if not figures:
        raise RunError(f"the runs hold nothing for the chart {name}", "see docs/tables.md")
    drawings = [altair.Chart.from_dict(alone(figure)) for figure in figures]
    return drawings[0] if len(drawings) == 1 else altair.vconcat(*drawings)


charts = Charts()

"""Runs in Python: ``lp.read`` returns a ``Run``, which has tables, timings and predictions."""

from __future__ import annotations

import functools
import html
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lstmprof.api.wording import in_python, with_arguments
from lstmprof.base.errors import (
    ForeignFileError,
    LeftOutWarning,
    LstmprofError,
    UsageError,
    unknown_name,
)
from lstmprof.base.names import FORMS, USUAL_TABLES
from lstmprof.base.numbers import milliseconds, percent
from lstmprof.breakdown import TIMINGS, Breakdown, break_down, rows_of, timing_columns
from lstmprof.breakdown.clean.timings import Timings
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.replay import CHANGES, Prediction
from lstmprof.breakdown.result import Table, html_table
from lstmprof.breakdown.tables import TABLES
from lstmprof.diagnose.diagnosis import diagnose_all
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions
from lstmprof.events.counters import COLUMNS as COUNTERS
from lstmprof.events.schema import COLUMNS as EVENTS, schema
from lstmprof.runs import cache
from lstmprof.runs.cache import open_runs
from lstmprof.runs.fields import ITERATIONS, SAMPLES
from lstmprof.runs.ingest import ingest_profiles
from lstmprof.runs.metadata import RunInfo
from lstmprof.runs.run import Run as StoredRun

Target = str | Path

#: Files of a run that ``Run.table`` reads, beside the tables of ``breakdown --table``.
FILES = {"events": EVENTS, "iterations": ITERATIONS, "samples": SAMPLES, "counters": COUNTERS}


class Run:
    """A captured run, or a profile that another tool recorded; ``lp.read`` returns it.

    ``step_range`` is a regular expression. A range on the CPU (``record_function``, NVTX) is a step
    if its name matches. If ``step_range`` is None, the profile's own step markers, such as
    ``ProfilerStep#3``, are used.
    """

    def __init__(self, stored: StoredRun, step_range: str | None = None) -> None:
        self.stored = stored
        self.step_range = step_range

    @property
    def name(self) -> str:
        """Return ``name`` of run.json, or the name of the run's folder if run.json has no name."""
        return self.stored.name

    @property
    def path(self) -> Path:
        """Return the folder of the run."""
        return self.stored.path

    @property
    def info(self) -> RunInfo:
        """Return the content of run.json: workload, device, versions and settings.

        Fields that run.json lacks are None. docs/tables.md lists the fields.
        """
        return self.stored.info

    @functools.cached_property
    @in_python
    def breakdown(self) -> Breakdown:
        """Return where the time of the run's steps goes: a breakdown by kernel, by op and so on.

        The breakdown also contains statistics of the iterations that were timed without a
        profiler, and the clean step (see ``step_ms``).

        Raises:
            RunError: a file of the run is missing or damaged.
            UsageError: the run's ``step_range`` is not a regular expression or matches no range on
                the CPU.
        """
        return break_down(
            self.stored, self.step_range, (*USUAL_TABLES, "launch_gaps", "casts", "collectives")
        )

    @functools.cached_property
    @in_python
    def step_profile(self) -> StepProfile:
        """Return the step that ``lp.diagnose`` explains, divided into busy time and idle time.

        This is the clean step (see ``step_ms``) on the rank and device that ``lp.diagnose`` chooses
        by default.

        Raises:
            RunError: the profile has no events, or a file of the run is missing or damaged.
        """
        return step_profile_of(self.breakdown)

    @property
    @in_python
    def step_ms(self) -> float | None:
        """Return the length of the clean step in ms, or None if the profile has no step markers.

        The clean step is the time that a step takes without disturbances by other processes and
        without profiler overhead (docs/ledger.md). If the profile has too few steps or too many
        events to estimate the clean step, return the mean of the profiled steps instead, which
        includes disturbances and overhead.

        Raises:
            RunError: the profile has no events, or a file of the run is missing or damaged.
        """
        profile = self.step_profile
        return profile.length_ns / 1e6 if profile.marked else None

    def ledger(self) -> Table:
        """Return the table ``ledger``: what the time of each step on each device consists of.

        Busy time is divided by category (matmul, copy …), idle time by cause (launch, Python …).
        The parts of a step sum to its length.
        """
        return self.table("ledger")

    @in_python
    def table(self, name: str) -> Table:
        """Return a table of the run; docs/tables.md describes the columns.

        The table is empty if the run has no data for it.

        Args:
            name: name of the table. The tables of ``lstmprof breakdown --table``, such as
                ``"kernels"``, ``"ops"`` or ``"timings"``, are computed from the run. The tables
                ``"events"``, ``"iterations"``, ``"samples"`` and ``"counters"`` are files of the
                run.

        Raises:
            UsageError: no table has this name.
            RunError: a file of the run is missing or damaged.
        """
        if name == TIMINGS:
            timings = rows_of([self.breakdown], TIMINGS)
            rows = [{k: v for k, v in row.items() if k != "run"} for row in timings]
            columns = timing_columns()
            return Table(name, pa.Table.from_pylist(rows, schema(columns)), columns)
        if name in FILES:
            return Table(name, self._file(name), FILES[name])
        if name not in TABLES:
            raise unknown_name("table", name, (TIMINGS, *TABLES, *FILES))
        return Table(name, self.breakdown.table(name), TABLES[name].columns)

    def _file(self, name: str) -> pa.Table:
        """Return the rows of a file of the run, or an empty table if the run lacks the file."""
        if name == "events":
            return self.breakdown.events().arrow
        if name == "counters":
            parts = list(self.stored.counters())
            table = pa.concat_tables(parts) if parts else None
        else:
            table = self.stored.timings() if name == "iterations" else self.stored.samples()
        return schema(FILES[name]).empty_table() if table is None else table

    @in_python
    def timings(self) -> Timings | None:
        """Return statistics of the iterations that were timed without a profiler.

        Return None if no iteration was timed, as in a profile from another tool.
        """
        return self.breakdown.timings

    @in_python
    def what_if(
        self,
        without: str | None = None,
        *,
        gemm_at_roofline: bool = False,
        form: str | None = None,
    ) -> Prediction:
        """Predict the length of the step after one change, and return the prediction.

        Each argument is a change; give exactly one. ``saved_ns`` of the result is the time in ns
        that the change saves per step.

        Args:
            without: cost to remove: ``"launch"`` (launch calls and latency), ``"casts"``
                (conversions of data types), ``"syncs"`` (waits for the device), ``"copies"`` (copy
                ops, except copies that autograd makes for gradients), ``"python"`` (Python code),
                ``"dispatch"`` (ops that only call other ops), ``"backward-copies"`` (copies that
                autograd makes for gradients), ``"zero-fills"`` (filling tensors with zeros) or
                ``"slice-backward"`` (adding up the gradients of slices ``x[t]``).
            gemm_at_roofline: True assumes that every matmul runs at the measured peak rates of the
                device.
            form: ``"layer"`` assumes that each recurrent layer runs as one op, like ``nn.LSTM``;
                ``"compiled"`` assumes that the step runs as compiled code.

        Raises:
            UsageError: not exactly one change is given, a name is not valid, or the run lacks the
                data for the change (the device's peak rates, the matmuls' shapes, or the network's
                sizes).
            RunError: the profile has no events, or a file of the run is missing or damaged.
        """
        if (without is not None) + gemm_at_roofline + (form is not None) != 1:
            raise UsageError(
                "what_if takes one change", "give without=…, gemm_at_roofline=True or form=…"
            )
        if without is not None and without not in CHANGES:
            raise unknown_name("cause", without, CHANGES)
        if form is not None and form not in FORMS:
            raise unknown_name("form", form, FORMS)
        wanted = DiagnosisOptions(
            (without,) if without else (), gemm_at_roofline, forms=(form,) if form else ()
        )
        return diagnose_all([self.breakdown], wanted=wanted)[0].what_ifs[0].prediction

    @in_python
    def to_perfetto(self, path: Target, *, force: bool = False) -> Path:
        """Write the run as a trace for ui.perfetto.dev to the file ``path``, and return ``path``.

        Raises:
            RunError: ``path`` exists and ``force`` is False, or ``path`` cannot be written.
        """
        from lstmprof.export import perfetto

        perfetto.write(break_down(self.stored, self.step_range, ()), Path(path), force=force)
        return Path(path)

    def __repr__(self) -> str:
        return f"<Run {self.name} at {self.path}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the step's parts, with one group of rows per rank and device."""
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


Runs = Run | Target | Iterable[Run | Target]


@in_python
def read(target: Target, *, step_range: str | None = None) -> Run:
    """Read the run or profile at ``target``, and return it as a run.

    A raw profile is converted to a run in lstmprof's cache; the folder of the profile is not
    changed.

    Args:
        target: path or URL of a run's folder, a raw profile, a folder with one profile per rank, or
            a tar archive.
        step_range: regular expression for the names of the ranges on the CPU (``record_function``,
            NVTX) that are the steps; by default, the profile's step markers are used.

    Raises:
        ProfileError: ``target`` does not exist, or cannot be read as a profile.
        RunError: the run is damaged, or none of several profiles can be read.
        UsageError: ``target`` contains several runs.
    """
    runs = read_all(target, step_range=step_range)
    if len(runs) != 1:
        raise UsageError(f"{target}: holds {len(runs)} runs", "lp.read_all reads them")
    return runs[0]


@in_python
def read_all(*targets: Target | Iterable[Target], step_range: str | None = None) -> list[Run]:
    """Read all runs and profiles at ``targets``, and return the runs in the order of the targets.

    A run or profile that cannot be read is skipped with a ``LeftOutWarning`` if at least one other
    can be read. Files of unknown formats are skipped without a warning.

    Args:
        targets: paths and URLs, or lists of paths and URLs; a folder stands for all runs in it.
        step_range: regular expression for the names of the ranges on the CPU (``record_function``,
            NVTX) that are the steps; by default, each profile's step markers are used.

    Raises:
        ProfileError: there is one target, and it does not exist or cannot be read as a profile.
        RunError: there is one target, and it is a damaged run; or there are several runs and
            profiles, and none can be read.
        UsageError: no target is given, or a target is neither a path nor a URL.
    """
    words = [word for target in targets for word in _words(target)]
    if not words:
        raise UsageError("no run is named", "give a run, a folder of runs or a profile")
    return [Run(stored, step_range) for stored in open_runs(words, leave_out=_left_out)]


def _left_out(fault: LstmprofError) -> None:
    if not isinstance(fault, ForeignFileError):
        warnings.warn(with_arguments(f"left out: {fault}"), LeftOutWarning, stacklevel=6)


def _words(target: Any) -> list[Target]:
    if isinstance(target, (str, Path)):
        return [target]
    if isinstance(target, Iterable) and not isinstance(target, (bytes, Mapping)):
        return [word for inner in target for word in _words(inner)]
    raise UsageError(f"{target!r} is neither a path nor a URL", "give text or a pathlib.Path")


@in_python
def ingest(target: Target, out: Target = "traces", *, force: bool = False) -> list[Run]:
    """Read the raw profiles at ``target``, write each profile as a run, and return the runs.

    The profiles of all ranks of a job become one run. If ``out`` already contains the run of a
    profile, and the profile has not changed since this run was written, this run is returned.

    Args:
        target: path or URL of a profile, a folder of profiles or a tar archive.
        out: folder for the runs.
        force: replace existing runs with the same names.

    Raises:
        ProfileError: a profile cannot be read.
        RunError: ``out`` contains a run with the same name that was made from another profile, and
            ``force`` is False.
    """
    done = ingest_profiles(target, Path(out), force=force)
    for error in (*done.errors, *(() if done.runs else done.foreign)):
        raise error
    return [Run(run) for run in (*done.runs, *done.made_before) if isinstance(run, StoredRun)]


def runs_of(given: Runs) -> list[Run]:
    """Return the runs in ``given``, and the runs at the paths and URLs in it, as one list.

    Raises:
        UsageError: an element is neither a run, a path nor a URL.
    """
    if isinstance(given, Run):
        return [given]
    if isinstance(given, (str, Path)):
        return read_all(given)
    if isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        return [run for element in given for run in runs_of(element)]
    raise UsageError(f"{given!r} is not a run", "give what lp.read returns, or a path")


def step_profiles_of(given: Runs) -> list[StepProfile]:
    """Return ``Run.step_profile`` of each run in ``given``.

    ``given`` is runs or paths, or ``"baseline:NAME"``, which stands for the runs that ``lstmprof
    compare --save-baseline NAME`` saved.
    """
    if isinstance(given, str):
        given = cache.resolve_baseline(given)
    return [run.step_profile for run in runs_of(given)]

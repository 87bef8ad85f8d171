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
    """A recorded run: its profile, timings and metadata; ``lp.read`` returns it."""

    def __init__(self, stored: StoredRun, step_range: str | None = None) -> None:
        self.stored = stored
        self.step_range = step_range

    @property
    def name(self) -> str:
        """Return the name of the run."""
        return self.stored.name

    @property
    def path(self) -> Path:
        """Return the folder of the run."""
        return self.stored.path

    @property
    def info(self) -> RunInfo:
        """Return the metadata of the run, such as workload, device, versions and settings.

        Unknown fields are None. docs/tables.md lists the fields.
        """
        return self.stored.info

    @functools.cached_property
    @in_python
    def breakdown(self) -> Breakdown:
        """Return the breakdown: busy time by category of work, and idle time by cause.

        Raises:
            RunError: a file of the run is missing or damaged.
            UsageError: the ``step_range`` that was passed to ``lp.read`` is not a regular
                expression, or matches no range on the CPU.
        """
        return break_down(
            self.stored, self.step_range, (*USUAL_TABLES, "launch_gaps", "casts", "collectives")
        )

    @functools.cached_property
    @in_python
    def step_profile(self) -> StepProfile:
        """Return the busy time and the idle time of one step.

        This step is the clean step (see ``step_ms``), or the mean of the profiled steps if the run
        has no clean step. To find the causes of the times, call ``lp.diagnose``.

        Raises:
            RunError: the profile has no events, or a file of the run is missing or damaged.
        """
        return step_profile_of(self.breakdown)

    @property
    @in_python
    def step_ms(self) -> float | None:
        """Return the time of the clean step in ms, or None if the profile has no step markers.

        The clean step is a step without profiler overhead and without disturbances by other
        processes. If its time cannot be estimated, return the mean of the profiled steps.

        Raises:
            RunError: the profile has no events, or a file of the run is missing or damaged.
        """
        profile = self.step_profile
        return profile.length_ns / 1e6 if profile.marked else None

    def ledger(self) -> Table:
        """Return a table of each step's busy time by category of work, and idle time by cause.

        The times of a step sum to the length of the step.
        """
        return self.table("ledger")

    @in_python
    def table(self, name: str) -> Table:
        """Return a table of the run; the table is empty if the run has no data for it.

        Args:
            name: name of the table, such as ``"kernels"``, ``"ops"``, ``"timings"`` or
                ``"events"``. docs/tables.md lists all tables and their columns.

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

        Return None for a profile from another tool, which has no timed iterations.
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
        """Predict the length of the step after one change, such as the removal of all casts.

        Each argument describes a change; give exactly one argument. ``saved_ns`` of the result is
        the time that the change saves per step.

        Args:
            without: cost that the change removes: ``"launch"`` (launches of kernels), ``"casts"``
                (dtype conversions), ``"syncs"`` (waits for the device), ``"copies"`` (copies of
                tensors), ``"python"`` (Python code), ``"dispatch"`` (time that the framework needs
                to call ops), ``"backward-copies"`` (copies that autograd makes), ``"zero-fills"``
                (filling tensors with zeros) or ``"slice-backward"`` (adding up the gradients of
                slices ``x[t]``).
            gemm_at_roofline: True to run every matmul at the peak rates of the device.
            form: ``"layer"`` to run each recurrent layer as one op, like ``nn.LSTM``, or
                ``"compiled"`` to run the step as compiled code.

        Raises:
            UsageError: not exactly one change is given, a name is not valid, or the run lacks the
                data for the prediction.
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
        """Write the run as a trace for ui.perfetto.dev, and return the path of the file.

        Raises:
            RunError: the file exists and ``force`` is False, or cannot be written.
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
    """Read one run (a folder that lstmprof wrote) or one profile of another tool.

    lstmprof converts a profile to a run in its cache.

    Args:
        target: path or URL of a run, a profile, a folder with one profile per rank, or a tar
            archive.
        step_range: regular expression that matches the names of the ranges (``record_function``,
            NVTX) around the steps; by default, the profile's step markers delimit the steps.

    Raises:
        ProfileError: ``target`` does not exist, or cannot be read as a profile.
        RunError: the run is damaged, or no profile in the folder can be read.
        UsageError: ``target`` contains several runs.
    """
    runs = read_all(target, step_range=step_range)
    if len(runs) != 1:
        raise UsageError(f"{target}: holds {len(runs)} runs", "lp.read_all reads them")
    return runs[0]


@in_python
def read_all(*targets: Target | Iterable[Target], step_range: str | None = None) -> list[Run]:
    """Read all runs and profiles at ``targets``.

    If only some runs and profiles can be read, lstmprof skips the others with a ``LeftOutWarning``.

    Args:
        targets: paths and URLs, or lists of paths and URLs; a folder means all runs in the
            folder.
        step_range: regular expression that matches the names of the ranges around the steps; see
            ``read``.

    Raises:
        ProfileError: the only target does not exist or is not a profile.
        RunError: the only target is a damaged run, or none of several profiles can be read.
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
    """Convert the profiles at ``target`` to runs in the folder ``out``, and return the runs.

    The profiles of all ranks of a job become one run. A profile that did not change since an
    earlier conversion is not converted again.

    Args:
        target: path or URL of a profile, a folder of profiles or a tar archive.
        out: folder for the runs.
        force: replace existing runs with the same names.

    Raises:
        ProfileError: a profile cannot be read.
        RunError: a run with the same name but from another profile exists, and ``force`` is False.
    """
    done = ingest_profiles(target, Path(out), force=force)
    for error in (*done.errors, *(() if done.runs else done.foreign)):
        raise error
    return [Run(run) for run in (*done.runs, *done.made_before) if isinstance(run, StoredRun)]


def runs_of(given: Runs) -> list[Run]:
    """Return the given runs, and the runs at the given paths and URLs, as one list.

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
    """Return ``Run.step_profile`` (busy and idle time of one step) for each run or path.

    The text ``"baseline:NAME"`` means the runs of a saved baseline.
    """
    if isinstance(given, str):
        given = cache.resolve_baseline(given)
    return [run.step_profile for run in runs_of(given)]

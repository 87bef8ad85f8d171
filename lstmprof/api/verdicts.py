"""Why runs are slow, in Python: ``diagnose``, ``compare``, ``gate``, ``history`` and ``check``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from lstmprof.api.runs import Run, Runs, Target, runs_of, step_profiles_of
from lstmprof.api.wording import in_python
from lstmprof.base.errors import UsageError, one_line
from lstmprof.base.names import FAIL_IF
from lstmprof.base.numbers import cropped, cut_text, milliseconds
from lstmprof.breakdown.check import check as checked
from lstmprof.breakdown.check.document import Document
from lstmprof.breakdown.result import Table
from lstmprof.diagnose.diagnosis import Diagnosis, diagnose_all
from lstmprof.diagnose.gate import Gate, gate as gate_of, limits
from lstmprof.diagnose.history import history as series_of, table as history_table
from lstmprof.diagnose.verdict.verdict_text import in_short, worst_first
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions
from lstmprof.events.schema import Column, schema

if TYPE_CHECKING:
    import pandas

#: Largest number of diagnoses that ``repr`` shows in full, and of lines if there are more.
_IN_FULL, _LINES = 3, 30
#: Largest number of characters of a run's name in the line of a diagnosis, and of the line.
_NAME, _LINE = 32, 100
#: Why a column about the baseline is null.
_SINGLE = "the run was not compared"
VERDICTS = (
    Column.text("subject", "name of the run"),
    Column.text("baseline", "name of the run that it is compared with", _SINGLE),
    Column.real("step_ns", "clean step of the run"),
    Column.integer("baseline_ns", "clean step of the baseline", _SINGLE),
    Column.real("ratio", "step_ns divided by baseline_ns", _SINGLE),
    Column.text(
        "bottleneck",
        "kind of time, such as matmul, that adds most to the step",
        "no cause is identified",
    ),
    Column.integer(
        "bottleneck_ns",
        "time that the bottleneck takes in a step, minus its time in the baseline's step, if any",
    ),
    Column.text("cause", "what in the code takes the time", "it is unknown"),
    Column.text("fix", "what to change first", "no fix fits"),
    Column.integer("saves_ns", "time that the fix saves (on a GPU: at most)", "it is unknown"),
    Column.text("certainty", "certainty of the cause: measured, likely or unknown"),
    Column.text("sentence", "the verdict in one sentence"),
)


class Diagnoses(tuple[Diagnosis, ...]):
    """A tuple of diagnoses; ``lp.diagnose`` returns it for several runs."""

    __slots__ = ()

    def table(self) -> Table:
        """Return a ``Table`` with one row per diagnosis."""
        rows = []
        for verdict in (diagnosis.verdict for diagnosis in self):
            fix = verdict.fixes[0] if verdict.fixes else None
            rows.append(
                {
                    "subject": verdict.subject,
                    "baseline": verdict.baseline,
                    "step_ns": verdict.step.ns,
                    "baseline_ns": verdict.baseline_ns,
                    "ratio": None if verdict.ratio is None else verdict.ratio.value,
                    "bottleneck": verdict.bottleneck,
                    "bottleneck_ns": verdict.bottleneck_ns,
                    "cause": verdict.cause or None,
                    "fix": None if fix is None else fix.fix,
                    "saves_ns": None if fix is None else fix.gain_ns or fix.saves_ns,
                    "certainty": verdict.certainty,
                    "sentence": verdict.sentence,
                }
            )
        return Table("verdicts", pa.Table.from_pylist(rows, schema(VERDICTS)), VERDICTS)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per diagnosis."""
        return self.table().to_pandas()

    def __repr__(self) -> str:
        if len(self) <= _IN_FULL:
            return "\n\n".join(map(repr, self)) or "no diagnoses"
        lines = [_in_a_line(diagnosis) for diagnosis in self[:_LINES]]
        left = len(self) - len(lines)
        return "\n".join([*lines, *([f"… {left:,} more: .to_pandas() has all"] if left else [])])

    def _repr_html_(self) -> str:
        """Return the verdicts as an HTML table with one row per diagnosis."""
        return self.table()._repr_html_()


def _in_a_line(diagnosis: Diagnosis) -> str:
    """Return one line: ``lstmcell   51.4 ms   1.41× nn-lstm   50 LSTMCell calls per step``."""
    verdict = diagnosis.verdict
    times = "" if verdict.baseline is None else f"{verdict.times} {cropped(verdict.baseline, 24)}"
    step = f"{milliseconds(verdict.step.ns):>9} ms"
    head = f"{cropped(verdict.subject, _NAME):{_NAME}} {step}  {times:<30}".rstrip()
    return cut_text(one_line(f"{head}  {in_short(diagnosis)}"), _LINE)


@overload
def diagnose(
    runs: Run, /, *, across: Collection[str] = ..., rank: int | None = ..., device: int | None = ...
) -> Diagnosis: ...


@overload
def diagnose(
    runs: list[Run] | list[Target] | list[str] | tuple[Run | Target, ...],
    /,
    *,
    across: Collection[str] = ...,
    rank: int | None = ...,
    device: int | None = ...,
) -> Diagnoses: ...


@overload
def diagnose(
    one: Run,
    other: Run,
    /,
    *,
    across: Collection[str] = ...,
    rank: int | None = ...,
    device: int | None = ...,
) -> Diagnosis: ...


@overload
def diagnose(
    *runs: Runs,
    across: Collection[str] = ...,
    rank: int | None = ...,
    device: int | None = ...,
) -> Diagnosis | Diagnoses: ...


@in_python
def diagnose(
    *runs: Runs,
    across: Collection[str] = (),
    rank: int | None = None,
    device: int | None = None,
) -> Diagnosis | Diagnoses:
    """Explain why runs are slow, and what to change.

    - ``diagnose(run)`` explains which work takes the time of a step of the run.
    - ``diagnose(a, b)`` explains why the slower run is slower.
    - ``diagnose(a, b, c)`` explains why each run is slower than the fastest run.
    - ``diagnose("traces/")`` or ``diagnose([a, b, c])`` compares each run with the fastest run that
      has the same workload and settings.

    ``diagnose(run)`` and ``diagnose(a, b)`` return one ``Diagnosis``. If there are several
    diagnoses, or if you pass a list, ``diagnose`` returns ``Diagnoses``: a tuple of ``Diagnosis``
    objects.

    Args:
        runs: runs or paths.
        across: settings in which compared runs may differ, such as ``["threads"]``. By default, the
            workload, precision, mode, device, threads and seed must be equal.
        rank: rank to diagnose; by default the rank for which the other ranks wait.
        device: number of the device of this rank; by default the busiest device.

    Raises:
        UsageError: no run is given, a setting, rank or device does not exist, or ``a``, ``b`` and
            ``c`` differ in a setting that is not in ``across``.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    if not runs:
        raise UsageError("no run is given", "give a run, two runs, or a folder of runs")
    each = [runs_of(given) for given in runs]
    one_by_one = len(each) > 1 and all(len(runs_of_path) == 1 for runs_of_path in each)
    breakdowns = [run.breakdown for runs_of_path in each for run in runs_of_path]
    diagnoses = diagnose_all(
        breakdowns,
        _names(across),
        DiagnosisOptions(rank=rank, device=device),
        must_compare=one_by_one,
    )
    named = len(runs) > 1 or isinstance(runs[0], (Run, str, Path))
    if named and len(diagnoses) == 1:
        return diagnoses[0]
    return Diagnoses(worst_first(diagnoses))


@in_python
def compare(
    one: Run | Target,
    other: Run | Target,
    *,
    across: Collection[str] = (),
    rank: int | None = None,
    device: int | None = None,
) -> Diagnosis:
    """Explain why the slower of two runs is slower.

    Args:
        one: a run or its path.
        other: the other run or its path.
        across: settings in which the runs may differ, such as ``["threads"]``; see ``diagnose``.
        rank: rank to compare; see ``diagnose`` for the default.
        device: number of the device of this rank; see ``diagnose`` for the default.

    Raises:
        UsageError: the runs differ in a setting that is not in ``across``, a path contains several
            runs, or a run has no such rank or device.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    runs = runs_of([one, other])
    if len(runs) != 2:
        raise UsageError(f"these are {len(runs)} runs", "compare takes two; diagnose takes any")
    wanted = DiagnosisOptions(rank=rank, device=device)
    breakdowns = [run.breakdown for run in runs]
    return diagnose_all(breakdowns, _names(across), wanted, must_compare=True)[0]


@in_python
def gate(base: Runs, new: Runs, fail_if: str = FAIL_IF, *, across: Collection[str] = ()) -> Gate:
    """Check whether new runs are slower than base runs, for example in CI.

    lstmprof compares each new run with the base run of the same name, or else with the base run of
    the same implementation. The ``state`` of the result is ``"pass"``, ``"fail"`` or
    ``"inconclusive"``.

    Args:
        base: runs or paths, or ``"baseline:NAME"`` for a saved baseline (``lstmprof compare
            --save-baseline NAME``).
        new: runs or paths.
        fail_if: condition under which the check fails: ``"slower > 3 %"`` (the default), ``"faster
            > 20 %"`` or ``"step > 12 ms"``. Join several conditions by ``or``.
        across: settings in which the compared runs may differ, such as ``["threads"]``; see
            ``diagnose``.

    Raises:
        UsageError: ``fail_if`` is not valid, no new run has a comparable base run, or no baseline
            is called NAME.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    parsed = limits(fail_if)
    return gate_of(step_profiles_of(base), step_profiles_of(new), parsed, _names(across))


@in_python
def history(runs: Runs) -> Table:
    """Return a table that shows how step times changed from run to run, with one row per run.

    Runs with the same implementation, workload and settings are in consecutive rows, with the
    oldest run first. docs/history.md describes the columns.

    Raises:
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    return history_table(series_of(step_profiles_of(runs)))


@in_python
def check(runs: Runs) -> Document:
    """Check whether profiles are complete, and whether the profiler slowed the steps down.

    The list ``runs`` of the result has one entry per run. The ``state`` of an entry is ``"ok"``,
    ``"warn"`` or ``"fail"``. ``to_pandas()`` of the result returns all checks as a DataFrame.

    Raises:
        RunError: a file of a run is missing or damaged.
    """
    return checked([run.breakdown for run in runs_of(runs)])


def _names(across: Collection[str]) -> Collection[str]:
    return (across,) if isinstance(across, str) else across

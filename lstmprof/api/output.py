"""Pages, charts and tables of runs: ``report``, ``charts``, ``table`` and ``sql``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lstmprof.api.runs import Runs, Target, runs_of
from lstmprof.api.wording import in_python
from lstmprof.base.errors import RunError
from lstmprof.breakdown import sql as database
from lstmprof.breakdown.result import Table
from lstmprof.report import report_of, typeset
from lstmprof.report.charts import CHARTS, alone, stacked
from lstmprof.report.grid import DEFAULT_VALUE, Grid, grid
from lstmprof.report.page import refuse, write

if TYPE_CHECKING:
    import altair
    import pandas


@dataclass(frozen=True, repr=False)
class PaperTable:
    """A table for a paper; ``lp.table`` returns it.

    Each cell shows one run. Each row and each column stands for a value of a property of the runs
    (implementation, workload, precision …). ``repr`` is the table in Markdown. ``grid`` contains
    the cells and the caption.
    """

    grid: Grid

    def to_markdown(self) -> str:
        """Return the table in Markdown, followed by its caption."""
        return typeset.markdown(self.grid)

    def to_latex(self) -> str:
        """Return the table in LaTeX; your LaTeX document needs the package booktabs."""
        return typeset.latex(self.grid)

    def to_html(self) -> str:
        """Return the table as an HTML ``<table>`` element."""
        return typeset.page(self.grid)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per table row.

        If the cells of a column have several numbers, such as ``12.3 ± 0.4``, the DataFrame has
        one column per number. If a cell has no run, its numbers are missing (NaN).
        """
        import pandas

        columns, rows = typeset.rows(self.grid)
        return pandas.DataFrame.from_records(rows, columns=columns)

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()


@in_python
def table(
    runs: Runs,
    rows: str | Sequence[str] | None = None,
    columns: str | Sequence[str] = "workload",
    value: str | Sequence[str] = DEFAULT_VALUE,
) -> PaperTable:
    """Return a table for a paper, one cell per run.

    The properties of a run, such as its implementation and its workload, select the row and the
    column of its cell. Runs are comparable if their workload, device and other settings are equal
    (see ``report``). The fastest of several comparable runs is bold. Another of these runs is bold,
    too, if the 95 % interval of its clean step overlaps the interval of the fastest run. Runs
    without timings are skipped.

    Args:
        runs: runs or paths.
        rows: properties that select the row, such as ``"implementation"`` or ``["implementation",
            "hidden"]``; by default the implementation. If several runs fall into one cell, their
            row is split by properties in which these runs differ.
        columns: properties that select the column.
        value: content of a cell: ``"step ± interval"`` (clean step, see ``Run.step_ms``, ± half of
            its 95 % interval), ``"step"`` (clean step alone), ``"median"`` or ``"mean ± std"`` (of
            the timed iterations), ``"slowdown"`` (clean step divided by the clean step of the
            fastest comparable run), ``"samples/s"`` or ``"first step"`` (time of the first step).
            Join several of these by commas.

    Raises:
        UsageError: a name is not valid, no run was timed, or two runs cannot have separate cells
            because their properties are equal.
    """
    breakdowns = [run.breakdown for run in runs_of(runs)]
    row_names = None if rows is None else _joined(rows)
    return PaperTable(grid(breakdowns, row_names, _joined(columns), _joined(value)))


def _joined(names: str | Sequence[str]) -> str:
    return names if isinstance(names, str) else ",".join(names)


@in_python
def sql(query: str, runs: Runs) -> Table:
    """Run one SELECT in DuckDB's SQL over the tables of ``runs``, and return the result.

    Each table has the rows of all runs; its first column ``run`` is the name of the run.
    docs/tables.md lists the tables and columns.

    Raises:
        UsageError: ``query`` is not a single SELECT, or DuckDB rejects it.
    """
    with database.answer(query, [run.stored for run in runs_of(runs)]) as answer:
        columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    return Table("answer", pa.table(dict(zip(answer.columns, columns, strict=True))))


@in_python
def report(
    runs: Runs,
    out: Target = "report.html",
    *,
    title: str | None = None,
    across: Collection[str] = (),
    force: bool = False,
) -> Path:
    """Write an HTML report about ``runs`` to the file ``out``, and return the path of the file.

    Args:
        runs: runs or paths.
        out: file to write.
        title: title of the page; by default the names of the runs and the workload.
        across: settings in which compared runs may differ, such as ``["threads"]``. By default,
            only runs with equal workload, precision, mode, device, threads and seed are compared.
        force: replace the file if it exists.

    Raises:
        UsageError: ``across`` contains a name that is not one of these settings.
        RunError: ``out`` exists and ``force`` is False, ``out`` cannot be written, or no profile
            has events.
    """
    refuse(Path(out), force=force)
    names = (across,) if isinstance(across, str) else across
    page = report_of([run.breakdown for run in runs_of(runs)], title, names)
    write(page, Path(out), force=force)
    return Path(out)


class Charts:
    """Functions that draw one chart of a report each, such as ``lp.charts.ledger("traces/")``.

    ``dir(lp.charts)`` lists the functions. Each of them takes ``runs`` (runs or paths) and
    ``across``, as ``lp.report`` does, and returns an Altair chart.
    """

    def __dir__(self) -> list[str]:
        return list(CHARTS)

    def __getattr__(self, name: str) -> Callable[..., altair.TopLevelMixin]:
        if name not in CHARTS:
            raise AttributeError(f"no chart is called {name}; there are {', '.join(CHARTS)}")
        return functools.partial(_chart, name)


@in_python
def _chart(name: str, runs: Runs, *, across: Collection[str] = ()) -> altair.TopLevelMixin:
    """Return the chart ``name`` of ``runs``.

    If not all runs are comparable, the result contains one chart per group of comparable runs, one
    below the other.

    Raises:
        RunError: the runs have no data for the chart.
    """
    import altair

    names = (across,) if isinstance(across, str) else across
    drawn = report_of([run.breakdown for run in runs_of(runs)], None, names)
    figures = list(importlib.import_module(f"lstmprof.report.charts.{name}").figures(drawn))
    if not figures:
        raise RunError(f"the runs have no data for the chart {name}", "see docs/tables.md")
    if len(figures) == 1:
        return altair.Chart.from_dict(alone(figures[0]))
    return altair.VConcatChart.from_dict(stacked(figures))


charts = Charts()

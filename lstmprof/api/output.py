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
    """A table of measured runs for a paper; ``lp.table`` returns it."""

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

        A column with two numbers per cell, such as ``12.3 ± 0.4``, becomes two columns.
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
    """Return a table for a paper, in which each cell shows the numbers of one run.

    Among runs with the same workload and settings, the fastest run is bold. Runs that may be as
    fast (overlapping 95 % intervals) are bold, too.

    Args:
        runs: runs or paths. Runs without timings are skipped.
        rows: properties of runs that label the rows, such as ``"implementation"`` (the default) or
            ``["implementation", "hidden"]``.
        columns: properties of runs that label the columns.
        value: number that each cell shows: ``"step"`` (time of the clean step, see
            ``Run.step_ms``), ``"step ± interval"`` (the same time, and half the width of its 95 %
            interval), ``"median"`` or ``"mean ± std"`` (of the times of the steps that ran without
            a profiler), ``"first step"`` (time of the first step, including compilation),
            ``"slowdown"`` (step time divided by the step time of the fastest run of the same
            workload and settings) or ``"samples/s"`` (sequences per second). For several numbers
            per cell, join their names with commas, or pass a list.

    Raises:
        UsageError: a name is not valid, no run was timed, or two runs fall into one cell.
    """
    breakdowns = [run.breakdown for run in runs_of(runs)]
    row_names = None if rows is None else _joined(rows)
    return PaperTable(grid(breakdowns, row_names, _joined(columns), _joined(value)))


def _joined(names: str | Sequence[str]) -> str:
    return names if isinstance(names, str) else ",".join(names)


@in_python
def sql(query: str, runs: Runs) -> Table:
    """Run a SELECT (DuckDB's SQL dialect) over the tables of ``runs``, and return the result.

    Each table has the rows of all runs. Its first column ``run`` is the name of the run.
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
    """Write an HTML report about ``runs``, and return its path.

    Args:
        runs: runs or paths.
        out: file to write.
        title: title of the page; by default the names of the runs and the workload.
        across: settings in which compared runs may differ, such as ``["threads"]``; see
            ``diagnose``.
        force: replace the file if it exists.

    Raises:
        UsageError: ``across`` contains an unknown setting.
        RunError: the file exists and ``force`` is False, or cannot be written, or no profile has
            events.
    """
    refuse(Path(out), force=force)
    names = (across,) if isinstance(across, str) else across
    page = report_of([run.breakdown for run in runs_of(runs)], title, names)
    write(page, Path(out), force=force)
    return Path(out)


class Charts:
    """Functions that draw the charts of a report, such as ``lp.charts.ledger("traces/")``.

    ``dir(lp.charts)`` lists the functions. Each function takes runs or paths, and returns an Altair
    chart.
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

"""``--open``: the report of runs as a page in the cache, shown by the user's browser."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstmprof.errors import LstmprofError

if TYPE_CHECKING:
    from lstmprof.breakdown import Breakdown

#: What the page and its charts are made with, and what ``pip`` calls it.
NEEDED = {"altair": "altair", "jinja2": "jinja2", "vl_convert": "vl-convert-python"}


def refuse_without_libraries() -> None:
    """Nothing where a page can be made.

    Raises:
        LstmprofError: the extra ``report`` is not installed.
    """
    missing = [name for module, name in NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        raise LstmprofError(
            f"the report needs {', '.join(missing)}", "install it: pip install 'lstmprof[report]'"
        )


def tables() -> tuple[str, ...]:
    """The tables of a run that a page draws."""
    from lstmprof.report import TABLES

    return tuple(TABLES)


def open_report(breakdowns: Sequence[Breakdown], across: Collection[str] = ()) -> None:
    """Write the report on ``breakdowns`` into the cache, over that of the same runs; show it.

    Raises:
        RunError: the page cannot be written.
        LstmprofError: no browser opened it.
    """
    from lstmprof.report import page, report_of
    from lstmprof.runs.ingest import cache_folder

    path = cache_folder() / "reports" / f"{_name(breakdowns)}.html"
    size = page.write(report_of(breakdowns, across=across), path, force=True)
    click.echo(f"wrote {path} ({size / 1e6:.1f} MB)", err=True)
    show(path)


def _name(breakdowns: Sequence[Breakdown]) -> str:
    """One name for the same runs in the same order, however they are called."""
    import hashlib

    folders = [str(breakdown.run.path.resolve()) for breakdown in breakdowns]
    return hashlib.sha256("\n".join(folders).encode()).hexdigest()[:16]


def show(path: Path) -> None:
    """Open the page at ``path`` in the browser that the user prefers ($BROWSER).

    Raises:
        LstmprofError: no browser could be started.
    """
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise LstmprofError(
            f"{path}: no browser could be started", "set BROWSER, or open the file by hand"
        )

"""``lstmprof list``: implementations, workloads, systems that do not run, known environments."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from lstmprof.capture import eras
from lstmprof.capture.eras import Era
from lstmprof.capture.here import here, in_era
from lstmprof.capture.templates import TEMPLATES, template_text
from lstmprof.commands import options, terminal
from lstmprof.errors import UsageError
from lstmprof.implementations import FRAMEWORKS, NOT_RUN, TABLE, Implementation
from lstmprof.numbers import known
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import NAMED

WHAT = ("implementations", "workloads", "systems", "eras")


@click.command(name="list")
@click.argument("what", type=click.Choice(WHAT), required=False)
@options.format_
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    help="Print a file to begin an implementation of your own with, for capture --impl.",
)
def command(what: str | None, format_: str, template: str | None) -> None:
    """Show the implementations, the workloads and the environments that capture knows.

    Systems are those of the studies that it does not run, with the reasons.

    \b
    Example:
      lstmprof list
      lstmprof list workloads --format json
      lstmprof list eras
      lstmprof list --template torch > mymodel.py
    """
    if template:
        print(template_text(template), end="")
        return
    if format_ == "json":
        terminal.write_json(_rows(what) if what else {kind: _rows(kind) for kind in WHAT})
    elif format_ == "csv":
        if what is None:
            names = " or ".join(f"'{name}'" for name in WHAT)
            raise UsageError("CSV holds one table", f"say {names}")
        rows = _rows(what)
        terminal.write_csv(rows, list(rows[0]))
    else:
        _show(what)


def _rows(what: str) -> list[dict[str, Any]]:
    if what == "workloads":
        return [dataclasses.asdict(w) for w in NAMED]
    if what == "systems":
        return [dataclasses.asdict(system) for system in NOT_RUN]
    return [_era(era) for era in eras.TABLE] if what == "eras" else [_row(i) for i in TABLE]


def _row(row: Implementation) -> dict[str, Any]:
    return {
        "name": row.name,
        "aliases": list(row.aliases),
        "framework": row.framework,
        "form": {device: row.form_on(device) for device in ("cpu", "cuda")},
        "summary": row.summary,
        "here": here(row),
        "refuses": row.refusals(),
    }


def _era(era: Era) -> dict[str, Any]:
    return {
        "name": era.name,
        "packages": list(era.packages),
        "pythons": list(era.pythons),
        "download_mb": era.download_mb,
        "disk_mb": era.disk_mb,
        "tried": era.tried,
        "here": in_era(era.name),
    }


def _form(row: Implementation) -> str:
    on_gpu = row.form_on("cuda")
    return row.form if on_gpu == row.form else f"{row.form}; {on_gpu} on a GPU"


def _show(what: str | None) -> None:
    if what in (None, "implementations"):
        terminal.write_table(
            "Implementations",
            ["name", "framework", "form", "here", "what it is"],
            [[i.name, i.framework, _form(i), here(i), i.summary] for i in TABLE],
            crop="what it is",
        )
        terminal.write_table("What they refuse", ["who", "what", "why"], _refusals(), crop="why")
    if what in (None, "workloads"):
        terminal.write_table(
            "Workloads (any field can be overridden: see lstmprof capture --help)",
            ["name", "network", ">batch", ">time steps", ">features", ">classes", "loss"],
            [_workload_cells(w) for w in NAMED],
        )
    if what in (None, "systems"):
        terminal.write_line("Systems of the studies that do not run here", style="bold")
        for system in NOT_RUN:
            head = f"{system.name}:"
            terminal.write_line(f"{head} {system.why}. It would need {system.needs}.", head=head)
        terminal.write_line()
    if what in (None, "eras"):
        terminal.write_table(
            "Eras: what is known to run together (lstmprof capture --era NAME)",
            ["name", "packages", "Python", ">download", "here"],
            [_era_cells(row) for row in _rows("eras")],
            crop="packages",
        )


def _era_cells(row: dict[str, Any]) -> list[str]:
    packages, pythons = " ".join(row["packages"]), ", ".join(row["pythons"])
    return [row["name"], packages, pythons, known(row["download_mb"], "{:,} MB"), row["here"]]


def _refusals() -> list[list[str]]:
    of_all = [(f"all of {f}", refuses) for f, refuses in FRAMEWORKS.items()]
    of_rows = [(row.name, row.refuses) for row in TABLE]
    return [[who, what, why] for who, refuses in of_all + of_rows for what, why in refuses.items()]


def _workload_cells(w: Workload) -> list[str]:
    network = f"{w.layers}×{w.hidden}" + (" bidirectional" if w.bidirectional else "")
    steps = f"{w.shortest}…{w.time_steps}" if w.shortest else str(w.time_steps)
    loss = f"{w.loss}, {w.labels} labels" if w.labels else w.loss
    return [w.name, network, str(w.batch), steps, str(w.features), str(w.classes), loss]

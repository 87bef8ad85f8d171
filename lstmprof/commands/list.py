"""``lstmprof list``: the implementations and the workloads."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from lstmprof.capture.here import here
from lstmprof.capture.templates import TEMPLATES, template_text
from lstmprof.commands import options, terminal
from lstmprof.errors import UsageError
from lstmprof.implementations import FRAMEWORKS, TABLE, Implementation
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import NAMED

WHAT = ("implementations", "workloads")


@click.command(name="list")
@click.argument("what", type=click.Choice(WHAT), required=False)
@options.format_
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    help="Print a file to begin an implementation of your own with, for capture --impl.",
)
def command(what: str | None, format_: str, template: str | None) -> None:
    """Show the implementations and the workloads that capture knows.

    \b
    Example:
      lstmprof list
      lstmprof list workloads --format json
      lstmprof list --template torch > mymodel.py
    """
    if template:
        click.echo(template_text(template), nl=False)
        return
    rows = {
        "implementations": [_row(i) for i in TABLE],
        "workloads": [dataclasses.asdict(w) for w in NAMED],
    }
    if format_ == "json":
        terminal.write_json(rows[what] if what else rows)
    elif format_ == "csv":
        if what is None:
            raise UsageError("CSV holds one table", "say 'implementations' or 'workloads'")
        terminal.write_csv(rows[what], list(rows[what][0]))
    else:
        _show(what)


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


def _form(row: Implementation) -> str:
    on_gpu = row.form_on("cuda")
    return row.form if on_gpu == row.form else f"{row.form}; {on_gpu} on a GPU"


def _show(what: str | None) -> None:
    if what != "workloads":
        terminal.write_table(
            "Implementations",
            ["name", "framework", "form", "here", "what it is"],
            [[i.name, i.framework, _form(i), here(i), i.summary] for i in TABLE],
            crop="what it is",
        )
        terminal.write_table("What they refuse", ["who", "what", "why"], _refusals(), crop="why")
    if what != "implementations":
        terminal.write_table(
            "Workloads (any field can be overridden: see lstmprof capture --help)",
            ["name", "network", ">batch", ">time steps", ">features", ">classes", "loss"],
            [_workload_cells(w) for w in NAMED],
        )


def _refusals() -> list[list[str]]:
    of_all = [(f"all of {f}", refuses) for f, refuses in FRAMEWORKS.items()]
    of_rows = [(row.name, row.refuses) for row in TABLE]
    return [[who, what, why] for who, refuses in of_all + of_rows for what, why in refuses.items()]


def _workload_cells(w: Workload) -> list[str]:
    network = f"{w.layers}×{w.hidden}" + (" bidirectional" if w.bidirectional else "")
    steps = f"{w.shortest}…{w.time_steps}" if w.shortest else str(w.time_steps)
    loss = f"{w.loss}, {w.labels} labels" if w.labels else w.loss
    return [w.name, network, str(w.batch), steps, str(w.features), str(w.classes), loss]

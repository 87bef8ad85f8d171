"""``lstmprof list``: implementations, workloads, environments, and what lstmprof cannot run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from lstmprof.base.errors import UsageError
from lstmprof.base.names import LISTED
from lstmprof.base.numbers import or_dash
from lstmprof.capture.implementation_file import TEMPLATES, template_text
from lstmprof.capture.interpreters import eras, here, in_era
from lstmprof.commands import completion, options, terminal
from lstmprof.implementations import (
    FAMILIES,
    FRAMEWORKS,
    NOT_RUN,
    ROWS,
    TABLE,
    Implementation,
    unknown,
)
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import NAMED

_ABSENT = re.compile(r"(\w+) is not installed")


@click.command(name="list")
@click.argument("what", required=False, metavar="[WHAT]", shell_complete=completion.listed)
@click.option("--all", "all_", is_flag=True, help="Show all rows of all tables.")
@options.format_
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    help="Print a template for your own implementation, to be run by capture --impl.",
)
def command(what: str | None, all_: bool, format_: str, template: str | None) -> None:
    """List the implementations, workloads and environments that capture can run.

    Without WHAT, list prints an overview. WHAT is one implementation, a family like torch, or one
    of implementations, workloads, eras (environments with old versions of a framework) and systems
    (programs of published studies that lstmprof cannot run, with the reason).

    \b
    Example:
      lstmprof list
      lstmprof list torch
      lstmprof list --all
      lstmprof list workloads --format json
      lstmprof list eras
      lstmprof list --template torch > mymodel.py
    """
    if template:
        print(template_text(template), end="")
        return
    implementations = _chosen(what)
    if format_ == "json":
        kinds = {kind: _rows(kind, TABLE) for kind in LISTED} if what is None else None
        terminal.write_json(kinds or _rows(what, implementations))
    elif format_ == "csv":
        if what is None:
            names = " or ".join(f"'{name}'" for name in LISTED)
            raise UsageError("--format csv prints one table only", f"add {names}")
        rows = _rows(what, implementations)
        terminal.write_csv(rows, list(rows[0]))
    elif what is None and not all_:
        _show_overview()
    else:
        _show(what, implementations)


def _chosen(what: str | None) -> Sequence[Implementation]:
    """Return the implementations that ``what`` names."""
    if what is None or what in LISTED:
        return TABLE
    if what in FAMILIES:
        return [row for row in TABLE if row.family == what]
    if what in ROWS:
        return [ROWS[what]]
    raise UsageError(
        f"unknown family or implementation '{what}'",
        f"{unknown(what).next_step}; families: {', '.join(FAMILIES)}",
    )


def _rows(what: str | None, implementations: Sequence[Implementation]) -> list[dict[str, Any]]:
    if what == "workloads":
        return [dataclasses.asdict(w) for w in NAMED]
    if what == "systems":
        return [dataclasses.asdict(system) for system in NOT_RUN]
    if what == "eras":
        return [
            {
                "name": era.name,
                "packages": list(era.packages),
                "pythons": list(era.pythons),
                "download_mb": era.download_mb,
                "disk_mb": era.disk_mb,
                "tried": era.tried,
                "here": in_era(era.name),
            }
            for era in eras.TABLE
        ]
    return [
        {
            "name": row.name,
            "aliases": list(row.aliases),
            "framework": row.framework,
            "form": {device: row.form_on(device) for device in ("cpu", "cuda")},
            "summary": row.summary,
            "here": here(row),
            "refuses": row.refusals(),
        }
        for row in implementations
    ]


def _form(row: Implementation) -> str:
    on_gpu = row.form_on("cuda")
    return row.form if on_gpu == row.form else f"{row.form}; {on_gpu} on a GPU"


def _show_overview() -> None:
    """Print one row per family of implementations, and the commands that show more."""
    terminal.write_table(
        "Implementations by family (details: lstmprof list torch)",
        ["family", ">count", "runs here", "names"],
        [_family_cells(family, _chosen(family)) for family in FAMILIES],
        crop="names",
    )
    terminal.write_table(
        "",
        ["more", ">count", "command", "example"],
        [
            ["workloads", str(len(NAMED)), "lstmprof list workloads", NAMED[0].name],
            ["eras (old versions)", str(len(eras.TABLE)), "lstmprof list eras", eras.TABLE[0].name],
            ["systems that lstmprof cannot run", str(len(NOT_RUN)), "lstmprof list systems", ""],
            ["all tables", "", "lstmprof list --all", ""],
        ],
    )


def _family_cells(family: str, rows: Sequence[Implementation]) -> list[str]:
    where = Counter(_ABSENT.sub(r"no \1", here(row).removeprefix("yes, ")) for row in rows)
    words = [word if len(where) == 1 else f"{n} {word}" for word, n in where.items()]
    return [family, str(len(rows)), ", ".join(words), ", ".join(row.name for row in rows)]


def _show(what: str | None, implementations: Sequence[Implementation]) -> None:
    if what not in ("workloads", "systems", "eras"):
        terminal.write_table(
            "Implementations (form: separate ops in a loop, one op per cell, or one op per layer)",
            ["name", "framework", "form", "runs here", "description"],
            [[i.name, i.framework, _form(i), here(i), i.summary] for i in implementations],
            crop="description",
        )
        terminal.write_table(
            "Unsupported settings",
            ["implementation", "setting", "reason"],
            _refusals(implementations),
            crop="reason",
        )
    if what in (None, "workloads"):
        terminal.write_table(
            "Workloads (options of lstmprof capture override any field)",
            ["name", "network", ">batch", ">time steps", ">features", ">classes", "loss"],
            [_workload_cells(w) for w in NAMED],
        )
    if what in (None, "systems"):
        terminal.write_line("Systems of published studies that lstmprof cannot run", style="bold")
        for system in NOT_RUN:
            head = f"{system.name}:"
            terminal.write_line(f"{head} {system.why}. Needed: {system.needs}.", head=head)
        terminal.write_line()
    if what in (None, "eras"):
        terminal.write_table(
            "Eras: tested environments with old versions (lstmprof capture --era NAME)",
            ["name", "packages", "Python", ">download", "runs here"],
            [
                [
                    *(era["name"], " ".join(era["packages"]), ", ".join(era["pythons"])),
                    *(or_dash(era["download_mb"], "{:,} MB"), era["here"]),
                ]
                for era in _rows("eras", ())
            ],
            crop="packages",
        )


def _refusals(implementations: Sequence[Implementation]) -> list[list[str]]:
    used = dict.fromkeys(row.framework for row in implementations)
    shared = [(f"all of {name}", FRAMEWORKS[name]) for name in FRAMEWORKS if name in used]
    own = [(row.name, row.refuses) for row in implementations]
    return [[who, what, why] for who, refuses in shared + own for what, why in refuses.items()]


def _workload_cells(w: Workload) -> list[str]:
    network = f"{w.layers}×{w.hidden}" + (" bidirectional" if w.bidirectional else "")
    steps = f"{w.shortest}…{w.time_steps}" if w.shortest else str(w.time_steps)
    loss = f"{w.loss}, {w.labels} labels" if w.labels else w.loss
    return [w.name, network, str(w.batch), steps, str(w.features), str(w.classes), loss]

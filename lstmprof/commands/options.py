"""Options that several commands have: stated once, so that their words cannot drift apart."""

from __future__ import annotations

import re

import click

from lstmprof.errors import UsageError

#: What must agree for two runs to be compared: the keys of ``diagnose.comparability.CONDITIONS``,
#: which help must not import.
CONDITIONS = ("workload", "precision", "mode", "device", "threads", "seed")


def _checked_regex(_: click.Context, option: click.Parameter, pattern: str | None) -> str | None:
    """``pattern``, looked at before any profile is read."""
    try:
        re.compile(pattern or "")
    except re.error as fault:
        raise UsageError(
            f"{option.opts[0]} '{pattern}' is no regular expression ({fault})",
            "write \\ before a sign that stands for itself",
        ) from fault
    return pattern


step_range = click.option(
    "--step-range",
    metavar="REGEX",
    callback=_checked_regex,
    help="Host ranges (NVTX, record_function) whose name this finds are the steps.",
)
across = click.option(
    "--across",
    multiple=True,
    type=click.Choice(CONDITIONS),
    metavar="NAME",
    help=f"Compare runs that differ in this; repeat for more: {', '.join(CONDITIONS)}.",
)
open_ = click.option(
    "--open",
    "open_",
    is_flag=True,
    help="Draw the report of these runs into the cache too, and open it in a browser ($BROWSER).",
)

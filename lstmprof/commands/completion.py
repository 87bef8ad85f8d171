"""Shell completion: functions that return possible values for a half-typed word.

For ``--device cu``, ``devices`` returns ``cuda``, ``cuda:0`` and so on. Arguments that are paths
need the function ``paths``, because click's bash completion offers no files by default.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from lstmprof.base.names import LISTED


def _items(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def paths(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Let the shell complete files and folders."""
    return [CompletionItem(begun, type="file")]


def implementations(
    context: click.Context, option: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return matching names of implementations, or files if no name matches."""
    from lstmprof.implementations import TABLE

    return _items((row.name for row in TABLE), begun) or paths(context, option, begun)


def listed(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the words that may follow ``lstmprof list``."""
    from lstmprof.implementations import FAMILIES, TABLE

    return _items((*LISTED, *FAMILIES, *(row.name for row in TABLE)), begun)


def workloads(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    from lstmprof.workloads.studies import NAMED

    return _items((workload.name for workload in NAMED), begun)


def precisions(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    from lstmprof.capture.request import PRECISIONS

    return _items(PRECISIONS, begun)


def devices(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return ``auto``, ``cpu``, ``cuda`` and this machine's GPUs."""
    from lstmprof.capture.worker.machine.host import cuda_devices

    gpus = (f"cuda:{number}" for number in range(cuda_devices()))
    return _items(("auto", "cpu", "cuda", *gpus), begun)


def eras(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return names of eras (known environments with old framework versions)."""
    from lstmprof.capture.interpreters.eras import TABLE

    return _items((era.name for era in TABLE), begun)

"""What a shell completes: names of the tables where a name is asked for, else paths.

Click's completion in bash offers nothing for an argument that says nothing of itself, not even
files; what takes paths says so with ``paths``.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from lstmprof.names import LISTED


def _of(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def paths(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files and folders."""
    return [CompletionItem(begun, type="file")]


def implementations(
    context: click.Context, option: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Names of implementations; files where none begins so."""
    from lstmprof.implementations import TABLE

    return _of((row.name for row in TABLE), begun) or paths(context, option, begun)


def listed(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """What ``lstmprof list`` shows one by one."""
    from lstmprof.implementations import FAMILIES, TABLE

    return _of((*LISTED, *FAMILIES, *(row.name for row in TABLE)), begun)


def workloads(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of workloads."""
    from lstmprof.workloads.studies import NAMED

    return _of((workload.name for workload in NAMED), begun)


def precisions(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of precisions."""
    from lstmprof.capture.request import PRECISIONS

    return _of(PRECISIONS, begun)


def devices(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """``auto``, ``cpu``, ``cuda`` and the GPUs of this machine."""
    from lstmprof.capture.worker.host import cuda_devices

    gpus = (f"cuda:{number}" for number in range(cuda_devices()))
    return _of(("auto", "cpu", "cuda", *gpus), begun)


def eras(_: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of eras."""
    from lstmprof.capture.interpreters.eras import TABLE

    return _of((era.name for era in TABLE), begun)

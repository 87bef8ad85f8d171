"""``lstmprof mcp``: lstmprof's answers as tools of the Model Context Protocol, for agents."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.commands import options

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_INSTRUCTIONS = """\
lstmprof explains why a training step of an LSTM takes as long as it does, and what to change.
Record a run in a shell: `lstmprof run train.py` writes traces/train. Then call `verdict` on the
run, and apply the first fix of the answer. Record the changed script under another name, and call
`compare` on the two runs. Keep the fix only if the answer's state is `pass`. The resource
lstmprof://docs/agents.md describes this procedure in detail."""
#: Number of rows that a tool returns by default. A table may have millions of rows.
_ROWS = 50


@click.command(name="mcp")
def command() -> int:
    """Serve lstmprof's answers to agents, over the Model Context Protocol.

    The server talks over stdin and stdout until its client closes them. It reads the runs and
    profiles that you may read, and writes only to lstmprof's cache. It needs the extra mcp: pip
    install 'lstmprof[mcp]'.

    \b
    Example:
      claude mcp add lstmprof -- lstmprof mcp
      lstmprof mcp
    """
    server().run("stdio")
    return 0


def server() -> MCPServer:
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.server.mcpserver.resources import FileResource
    except ImportError:
        raise UsageError("the package mcp is missing", "pip install 'lstmprof[mcp]'") from None

    def answering(tool: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``tool`` so that agents can read the message of its errors (ToolError)."""

        @functools.wraps(tool)
        def answer(*args: Any, **kwargs: Any) -> Any:
            try:
                return tool(*args, **kwargs)
            except LstmprofError as error:
                raise ToolError(str(error)) from None

        return answer

    made = MCPServer("lstmprof", instructions=_INSTRUCTIONS)
    for tool in (list_runs, verdict, compare, breakdown_table, query, check):
        made.tool()(answering(tool))
    for page in sorted(options.bundled("docs", "docs").glob("*.md")):
        uri = f"lstmprof://docs/{page.name}"
        made.add_resource(FileResource(uri=uri, path=page, mime_type="text/markdown"))
    return made


def list_runs(folder: str = "traces") -> list[dict[str, Any]]:
    """List the runs in a folder: name, path, framework, implementation, mode and device."""
    import lstmprof

    return [
        {
            "name": run.name,
            "path": str(run.path),
            "framework": run.info.framework,
            "implementation": run.info.implementation,
            "mode": run.info.mode,
            "device": run.info.device,
        }
        for run in lstmprof.read_all(folder)
    ]


def verdict(paths: list[str]) -> list[dict[str, Any]]:
    """Explain why each run or profile is slow, and what to change, the slowest first.

    If several paths of single runs are given, each run is compared with the fastest one. In the
    answer, `cause` is what in the code takes the time, `fixes` are sorted, best first, and
    `certainty` is measured, likely or unknown. Times are in nanoseconds per step.
    """
    import lstmprof

    found = lstmprof.diagnose(*paths)
    each = found if isinstance(found, lstmprof.Diagnoses) else (found,)
    verdicts: list[dict[str, Any]] = [diagnosis.to_dict()["verdict"] for diagnosis in each]
    return verdicts


def compare(base: str, new: str, fail_if: str = "slower > 3 %") -> dict[str, Any]:
    """Check whether a new run is slower than a baseline, by the 95 % interval of the ratio.

    `state` is pass, fail or inconclusive. Verify a fix with fail_if="slower > 0 %".
    """
    import lstmprof

    return lstmprof.gate(base, new, fail_if).to_dict()


def breakdown_table(path: str, table: str = "ledger", rows: int = _ROWS) -> list[dict[str, Any]]:
    """Return the first rows of a table of a run: where each nanosecond of its steps goes.

    Tables: ledger, steps, kernels, ops, layers, modules, casts, copies, launches, memory and more;
    lstmprof://docs/tables.md describes each column.
    """
    import lstmprof

    return lstmprof.read(path).table(table).rows()[:rows]


def query(sql: str, paths: list[str], rows: int = _ROWS) -> list[dict[str, Any]]:
    """Run one SELECT in DuckDB's SQL over the tables of the runs; nothing else is executed."""
    import lstmprof

    return lstmprof.sql(sql, paths).rows()[:rows]


def check(paths: list[str]) -> dict[str, Any]:
    """Check what profiles lack, and return the names of recipes that record the missing data."""
    import msgspec

    import lstmprof

    document: dict[str, Any] = msgspec.to_builtins(lstmprof.check([*paths]))
    return document

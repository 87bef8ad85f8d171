"""A scripted agent with the client of the MCP SDK: record, diagnose, fix, verify, in this folder.

Its arguments are the interpreter that has PyTorch, and the fixes that it knows as JSON: name of a
fix → the script that has it. It prints what the tools answered as one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def main(torch_python: str, changed: dict[str, str], path: str) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "lstmprof", "mcp"], env={"PYTHONPATH": path}
    )

    def record(script: str) -> None:
        command = [torch_python, "-P", "-m", "lstmprof", "run", "--quiet", script]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    async with Client(parameters) as client:

        async def ask(tool: str, **arguments: Any) -> Any:
            answer = await client.call_tool(tool, arguments)
            if answer.is_error:
                return {"error": answer.content[0].text}
            content = answer.structured_content
            return content["result"] if set(content) == {"result"} else content

        answers: dict[str, Any] = {
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "docs": [str(page.uri) for page in (await client.list_resources()).resources],
        }
        page = await client.read_resource("lstmprof://docs/agents.md")
        answers["page"] = page.contents[0].text
        answers["missing"] = await ask("verdict", paths=["traces/no-such-run"])
        record("train.py")
        (answers["before"],) = await ask("verdict", paths=["traces/train"])
        fix = next(fix["name"] for fix in answers["before"]["fixes"] if fix["name"] in changed)
        record(changed[fix])
        after = "traces/" + changed[fix].removesuffix(".py")
        answers["gate"] = await ask(
            "compare", base="traces/train", new=after, fail_if="slower > 0 %"
        )
        answers["runs"] = await ask("list_runs")
        answers["layers"] = await ask("breakdown_table", path=after, table="layers")
        answers["count"] = await ask("query", sql="SELECT count(*) AS n FROM ops", paths=[after])
        answers["drop"] = await ask("query", sql="DROP TABLE ops", paths=[after])
        answers["check"] = await ask("check", paths=[after])
    print(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))

"""``lstmprof mcp`` with the SDK's own client: an agent finds and verifies the fix of tutorial 1."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from in_process import lstmprof

from lstmprof.base.errors import CaptureError
from lstmprof.capture.interpreters.environments import environment
from lstmprof.runs.directory import cache_folder

ROOT = Path(__file__).resolve().parents[2]
AGENT = Path(__file__).with_name("agent.py")
TOOLS = {"list_runs", "verdict", "compare", "breakdown_table", "query", "check"}


@pytest.fixture(scope="module")
def python() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [requirement.partition(";")[0].strip() for requirement in project["dependencies"]]
    needed += project["optional-dependencies"]["mcp"]
    try:
        return str(environment(needed, cache_folder() / "environments").made())
    except CaptureError as fault:
        pytest.skip(str(fault))


@pytest.mark.measured
def test_an_agent_finds_and_verifies_the_fix_of_the_first_tutorial(
    python: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "slow_lstm.md").read_text("utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if named := re.match(r"# (train|faster)\.py\n", code):
            (tmp_path / f"{named[1]}.py").write_text(code, encoding="utf-8")
    fixes = json.dumps({"layer in one op": "faster.py"})
    done = subprocess.run(
        [python, str(AGENT), sys.executable, fixes, str(ROOT)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert set(answers["tools"]) == TOOLS
    assert {f"lstmprof://docs/{p.name}" for p in (ROOT / "docs").glob("*.md")} == {*answers["docs"]}
    assert answers["page"] == (ROOT / "docs" / "agents.md").read_text("utf-8")
    assert "no-such-run" in answers["missing"]["error"]
    assert answers["before"]["cause"].endswith("50 LSTMCell calls per step")
    assert answers["gate"]["state"] == "pass"
    assert {run["name"] for run in answers["runs"]} == {"train", "faster"}
    assert [row["form"] for row in answers["layers"]] == ["layer op"]
    assert answers["count"][0]["n"] > 0
    assert "SELECT" in answers["drop"]["error"]
    assert answers["check"]["runs"][0]["run"] == "faster"


def test_without_the_sdk_the_command_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = lstmprof("mcp")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'lstmprof[mcp]'" in done.stderr


def test_the_skill_names_commands_that_exist() -> None:
    from lstmprof.commands import VERBS

    text = (ROOT / "skills" / "lstmprof" / "SKILL.md").read_text("utf-8")
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", text)
    assert head
    assert head[1] == "lstmprof"
    named = set(re.findall(r"`lstmprof ([a-z]+)", text))
    assert {"run", "diagnose", "compare", "check"} <= named <= set(VERBS)

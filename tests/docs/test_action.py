"""action.yml and the workflow: their steps run here as they are written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.interpreters.environments import environment
from lstmprof.runs.directory import cache_folder

yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
#: What the workflow gives to the action.
(INPUTS,) = (
    step["with"] for step in WORKFLOW["jobs"]["step-time"]["steps"] if step.get("uses") == "./"
)
SAMPLES = ROOT / "traces"
#: GitHub's command line, which is not here: a run with an artifact, and a comment that is kept.
GH = """#!/bin/bash
echo "$@" >> gh-calls
case "$1 $2" in
  "run list") [ -d base ] && echo 4711 ;;
  "run download") cp -r base lstmprof-base ;;
  "pr comment") cp lstmprof-comment.md posted.md ;;
esac
"""


def step_of_action(name: str) -> dict[str, Any]:
    (found,) = (step for step in ACTION["runs"]["steps"] if step["name"] == name)
    return dict(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (
        ("gh", GH),
        ("lstmprof", f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -P -m lstmprof "$@"\n'),
    ):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


def run(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action in ``folder``."""
    assert set(environment) == set(step_of_action(name).get("env", {}))
    outside = {"GITHUB_OUTPUT": str(folder / "outputs"), "GITHUB_STEP_SUMMARY": str(folder / "sum")}
    path = f"{folder / 'tools'}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **outside, **environment}
    return shell(step_of_action(name)["run"], folder, environ)


def shell(script: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script with bash as GitHub does: -e, -o pipefail."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def fetch(folder: Path) -> None:
    github = {"GH_TOKEN": "secret", "GH_REPO": "o/r", "BRANCH": "main", "WORKFLOW": "CI"}
    done = run("Fetch the baseline", folder, BASELINE="lstmprof-baseline", **github)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("base", "fail_if", "state", "status"),
    [
        ("torch-lstmcell-basic", "slower > 5 %", "pass", 0),
        ("torch-nn-lstm", "step > 1 ms", "fail", 1),
        ("torch-nn-lstm", "slower > no", "not comparable", 0),
        (None, "slower > 5 %", "no baseline", 0),
    ],
)
def test_the_steps_compare_comment_and_fail(
    base: str | None, fail_if: str, state: str, status: int, folder: Path
) -> None:
    shutil.copytree(SAMPLES / "torch-nn-lstm", folder / "lstmprof-runs" / "run")
    if base is not None:
        shutil.copytree(SAMPLES / base, folder / "base" / "run")
    fetch(folder)
    done = run("Compare", folder, FAIL_IF=fail_if)
    assert done.returncode == 0, done.stderr
    assert (folder / "outputs").read_text() == f"state={state}\n"
    comment = (folder / "lstmprof-comment.md").read_text("utf-8")
    assert (folder / "sum").read_text("utf-8") == comment
    assert "torch-nn-lstm" in comment
    assert ("| verdict | comparison |" in comment) == (state in ("pass", "fail"))
    github = {"GH_TOKEN": "secret", "GH_REPO": "o/r"}
    assert not run("Comment on the pull request", folder, NUMBER="7", **github).returncode
    assert (folder / "posted.md").read_text("utf-8") == comment
    assert "pr comment 7 --body-file" in (folder / "gh-calls").read_text()
    assert run("Fail if the step is slower", folder, STATE=state).returncode == status


@pytest.mark.measured
@pytest.mark.parametrize("script", ["train.py", ""])
def test_the_action_records_a_script_or_the_workflow_s_capture(script: str, folder: Path) -> None:
    pytest.importorskip("torch")
    code = (ROOT / "tests" / "own_code" / "torch_words.py").read_text("utf-8")
    (folder / "train.py").write_text(code, encoding="utf-8")
    done = run("Record", folder, SCRIPT=script, CAPTURE="" if script else INPUTS["capture"])
    assert done.returncode == 0, done.stderr
    (record,) = (folder / "lstmprof-runs").glob("*/run.json")
    assert (record.parent.name == "train") == bool(script)


def test_the_workflow_builds_a_wheel_that_answers_and_the_action_installs_itself(
    tmp_path: Path,
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [requirement.partition(";")[0].strip() for requirement in project["dependencies"]]
    try:
        made = environment([*needed, "hatchling>=1.26"], cache_folder() / "environments").made()
    except CaptureError as fault:
        pytest.skip(str(fault))
    new = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", str(new)], check=True)
    (packages,) = new.glob("lib/*/site-packages")
    (there,) = made.parents[1].glob("lib/*/site-packages")
    (packages / "needed.pth").write_text(f"{there}\n", encoding="utf-8")
    unseen = shutil.ignore_patterns("__pycache__", ".*", "build", "dist")
    for name in ("lstmprof", "docs", "traces"):
        shutil.copytree(ROOT / name, tmp_path / "clone" / name, ignore=unseen)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "clone")
    path = f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": path}
    for step in (step for step in WORKFLOW["jobs"]["wheel"]["steps"] if "run" in step):
        done = shell(step["run"], tmp_path / "clone", environ)
        assert done.returncode == 0, (step, done.stderr)
    assert "a loop runs the cell 20 times per step" in done.stdout
    assert str(packages / "lstmprof" / "samples") in done.stdout
    # The wheel instead of the action's folder, because pip builds a folder with packages of PyPI.
    (wheel,) = (tmp_path / "clone" / "dist").glob("*.whl")
    default = ACTION["inputs"]["package"]["default"]
    environ |= {"PACKAGE": default, "GITHUB_ACTION_PATH": str(wheel)}
    for folder in packages.glob("lstmprof*"):
        shutil.rmtree(folder)
    done = shell(step_of_action("Install lstmprof")["run"], tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert (packages / "lstmprof" / "cli.py").is_file()


def test_no_expression_reaches_a_shell_but_through_its_environment() -> None:
    for each in ACTION["runs"]["steps"]:
        assert "${{" not in each.get("run", "")
        assert set(re.findall(r"inputs\.([\w-]+)", str(each))) <= set(ACTION["inputs"])


def test_the_workflow_runs_the_steps_of_the_script_of_ci() -> None:
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("the sdist has no .ci/run")
    steps = [line for line in script.read_text("utf-8").splitlines() if line.startswith("make ")]
    jobs = WORKFLOW["jobs"]
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == steps
    assert set(INPUTS) <= set(ACTION["inputs"])

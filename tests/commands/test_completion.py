"""What a shell is offered, asked through bash as a user's shell asks."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lstmprof.capture.request import PRECISIONS
from lstmprof.commands import VERBS, completion
from lstmprof.implementations import TABLE
from lstmprof.workloads.studies import NAMED

#: The line of README, then one TAB at the end of ``$@``.
_TAB = """
eval "$(_LSTMPROF_COMPLETE=bash_source lstmprof)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { echo "$@"; }
_lstmprof_completion lstmprof
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command and a file to complete."""
    if shutil.which("bash") is None:
        pytest.skip("no bash is here")
    folder = tmp_path_factory.mktemp("shell")
    command = folder / "lstmprof"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lstmprof "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("capture --impl torch-c", [row.name for row in TABLE if "torch-c" in row.name]),
        ("capture --workload 4x", [row.name for row in NAMED if row.name.startswith("4x")]),
        ("capture --precision amp", [name for name in PRECISIONS if name.startswith("amp")]),
        ("capture --device c", ["cpu", "cuda"]),
        ("capture --era lasagne", ["lasagne-0.1"]),
        ("recommend --impl keras-j", ["keras-jax-lstm"]),
        ("list ker", ["keras", *(row.name for row in TABLE if row.name.startswith("keras"))]),
        ("breakdown --table launch", ["launches", "launch_gaps"]),
        ("breakdown tra", ["-o default"]),
        ("capture --impl mymodel.p", ["-o default"]),
    ],
)
def test_bash_completes(words: str, offered: list[str], folder: Path) -> None:
    arguments = ["bash", "-c", _TAB, "bash", "lstmprof", *words.split()]
    path = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}
    asked = subprocess.run(arguments, capture_output=True, text=True, env=path, check=True)
    assert asked.stderr == ""
    got = [line for line in asked.stdout.splitlines() if line]
    assert [line for line in got if not line.startswith("cuda:")] == offered


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_that_takes_paths_completes_them(verb: str) -> None:
    command = importlib.import_module(f"lstmprof.commands.{VERBS[verb][0]}.{verb}").command
    for argument in (p for p in command.params if p.name in ("path", "paths", "profiles")):
        assert argument._custom_shell_complete is completion.paths

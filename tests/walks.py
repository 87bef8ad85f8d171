"""The walks of a page: its files are written and its commands run in a clean folder, as they stand.

A block of Python that begins with ``# name.py`` is a file; in a block of the console a line after
``$`` is a command, and what follows it is what it printed, ``…`` for what was left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LEFT_OUT = "…"


@dataclass(frozen=True)
class Command:
    """A command of a page, and the lines that it printed there."""

    text: str
    printed: tuple[str, ...]


def walks(page: Path) -> dict[str, str]:
    """The text of each part of the page, by its heading."""
    parts = re.split(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def commands(walk: str, folder: Path) -> Iterator[Command]:
    """The commands of a walk in turn; the files before each are written into ``folder``."""
    for language, block in _BLOCK.findall(walk):
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            if name:
                (folder / name[1]).write_text(block, encoding="utf-8")
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            text, _, rest = part.replace("\\\n", "").partition("\n")
            yield Command(text.split("  # ")[0].strip(), tuple(rest.splitlines()))


def run(command: Command, folder: Path, tools: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder`` by bash, with this interpreter's lstmprof and python."""
    tools.mkdir(exist_ok=True)
    for name, words in {"lstmprof": "-m lstmprof ", "python": ""}.items():
        shim = tools / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        shim.chmod(0o755)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "LSTMPROF": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        ["bash", "-c", command.text],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def lacking(command: Command, done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of the page that the command did not print now, one after the other.

    A line that ends in ``…`` is the beginning of one.
    """
    lines = iter([*done.stdout.splitlines(), *done.stderr.splitlines()])
    lacks = []
    for line in filter(None, (line.strip() for line in command.printed)):
        start = line.removesuffix(_LEFT_OUT)
        match = str.startswith if line.endswith(_LEFT_OUT) else str.__eq__
        if start and not any(match(other.strip(), start) for other in lines):
            lacks.append(line)
            break
    return lacks

"""The command line within the tests' own process: what it prints, and the exit code.

A process of its own costs half a second for its imports, that of a report two. One is started
where a process is what is tested: what it imports, its streams, its signals, its limits.
"""

from __future__ import annotations

import io
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from lstmprof import cli


def lstmprof(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command with these arguments, ended, as ``subprocess.run`` tells of one."""
    words = [*map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with chdir(cwd or Path.cwd()), redirect_stdout(out), redirect_stderr(err):
        code = cli.run(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

"""A stand-in for nsys: runs what it is given, and exports two steps with a matmul each."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

PUSH_POP, THREAD = 59, 1 << 48 | 7 << 24 | 7


def options(arguments: list[str]) -> dict[str, str]:
    """Those of ``--name=value``."""
    return dict(a[2:].split("=", 1) for a in arguments if a.startswith("--"))


def profile(arguments: list[str]) -> int:
    """Run the command behind the options; leave a report, and the options in it."""
    command = next(n for n, argument in enumerate(arguments) if not argument.startswith("--"))
    given = options(arguments[:command])
    # in a session of its own, as nsys starts it
    code = subprocess.run(arguments[command:], check=False, start_new_session=True).returncode
    if given["nvtx-capture"] == "profile@lstmprof":
        Path(given["output"] + ".nsys-rep").write_text("a report")
    return 128 - code if code < 0 else code


def export(arguments: list[str]) -> int:
    """A database of NVTX ranges and of nothing else."""
    names = ((0, 800, "step"), (10, 90, "forward"))
    ranges = [(at + a, at + b, name) for at in (0, 900) for a, b, name in names]
    with closing(sqlite3.connect(options(arguments)["output"])) as database:
        database.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid)")
        database.executemany(
            f"INSERT INTO NVTX_EVENTS VALUES (?, ?, {PUSH_POP}, ?, {THREAD})", ranges
        )
        database.commit()
    return 0


if __name__ == "__main__":
    verb, *others = sys.argv[1:]
    sys.exit({"profile": profile, "export": export}[verb](others))

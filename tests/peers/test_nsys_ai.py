"""nsys-ai on the same exports of Nsight Systems. docs/peers.md explains what differs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import shared_traces
from peers import accounts

accounts.peer("nsys_ai", "nsys-ai")

pytestmark = shared_traces.needed

#: nsys-ai rounds milliseconds to two decimals.
ROUNDED_NS = 5_000


@pytest.mark.parametrize(
    "path",
    [p for p in shared_traces.profiles() if p.match("nsys/*.sqlite")],
    ids=shared_traces.name,
)
def test_every_kernel_ran_as_often_and_as_long(path: Path, tmp_path: Path) -> None:
    ours = accounts.by_name(accounts.chosen(accounts.events_of(path), {"kernel"}))
    if not ours:
        pytest.skip("no kernel")
    copied = shutil.copy(path, tmp_path)  # nsys-ai writes its cache beside the file
    command = ["-m", "nsys_ai", "skill", "run", "top_kernels", str(copied), "-p", "limit=100000"]
    done = subprocess.run(
        [sys.executable, *command, "--format", "json"],
        env={**os.environ, "NSYS_AI_CACHE_MODE": "direct"},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = {row["kernel_name"]: row for row in json.loads(done.stdout)}
    counts = {name: row["invocations"] for name, row in theirs.items()}
    assert counts == {name: count for name, (count, _) in ours.items()}
    for name, (_, total_ns) in ours.items():
        assert theirs[name]["total_ms"] * 1e6 == pytest.approx(total_ns, abs=ROUNDED_NS + 1)

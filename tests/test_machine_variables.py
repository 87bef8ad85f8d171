"""What a machine sets for whatever runs on it reaches no test, and no process of a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
HOSTILE = {
    **{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    **{"LC_ALL": "C", "COLUMNS": "20", "NO_COLOR": "", "FORCE_COLOR": "1", "CI": "true"},
    **{"PYTHONUTF8": "0", "PYTHONUNBUFFERED": "1"},
}
SEES = """
import json, os, pathlib, subprocess, sys

def test_it():
    say = "import json, os; print(json.dumps(dict(os.environ)))"
    said = subprocess.run([sys.executable, "-c", say], capture_output=True, check=True).stdout
    pathlib.Path("seen.json").write_text(json.dumps([dict(os.environ), json.loads(said)]))
"""


def test_no_test_and_no_process_of_one_sees_what_a_machine_sets(tmp_path: Path) -> None:
    for name in ("conftest.py", "tries.py"):
        shutil.copy(TESTS / name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(SEES)
    # Which kernels of BLAS are right on a processor its machine alone knows.
    own = {**os.environ, **HOSTILE, "LANG": "C", "OPENBLAS_CORETYPE": "Haswell"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", "1"]
    ran = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert b"\x1b[" in ran.stdout  # FORCE_COLOR is for what pytest itself says
    for seen in json.loads((tmp_path / "seen.json").read_text()):
        assert not HOSTILE.keys() & seen.keys()
        assert (seen["LANG"], seen["OPENBLAS_CORETYPE"]) == ("C.UTF-8", "Haswell")

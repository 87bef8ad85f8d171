"""A test that measures has three tries, each with fixtures of its own, and no more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
MEASURES = """
import pytest

made = []

@pytest.fixture(scope="module")
def number():
    made.append(len(made) + 1)
    yield made[-1]
    assert made[-1] != 1, "it does not end well"

@pytest.mark.measured
def test_disturbed_twice(number):
    assert number == 3

def test_after_it(number):
    assert number == 3

@pytest.mark.measured
def test_broken(number):
    assert number > 100

@pytest.fixture(scope="module")
def broken_capture():
    made.append(len(made) + 1)
    raise OSError(f"capture {len(made)}")

@pytest.mark.measured
def test_of_a_broken_capture(broken_capture):
    pass

def test_plain():
    made.append(len(made) + 1)
    assert False, f"plain {len(made)}"
"""


def test_a_test_that_measures_is_tried_three_times_with_fixtures_made_anew(tmp_path: Path) -> None:
    for name in ("conftest.py", "tries.py"):
        shutil.copy(TESTS / name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = measured\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text(MEASURES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout
    said = ran.stdout.splitlines()
    assert "2 failed, 2 passed, 1 error" in said[-1]
    assert "E       assert 5 > 100" in said  # capture 3 was there; 4 and 5 were made for it
    assert "E       OSError: capture 8" in said
    assert "E       AssertionError: plain 9" in said
    again = said[said.index(next(line for line in said if " measured again " in line)) + 1 :]
    assert again[0] == "test_it.py::test_disturbed_twice: assert 1 == 3"
    assert again[1] == "test_it.py::test_disturbed_twice: assert 2 == 3"
    assert not [line for line in again if "test_broken:" in line]

"""What a loop sets for its whole process, put back where a test runs one in pytest's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parent / "nsys_stand_in.py"


@pytest.fixture
def path_with_nsys(tmp_path: Path) -> str:
    """A PATH on which ``nsys`` is the stand-in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "nsys"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def _denormals_as_before() -> Iterator[None]:
    """A torch loop flushes denormals for good; hypothesis and NumPy need them."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)

"""What a loop sets for its whole process, put back where a test runs one in pytest's own."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture.rows import captured_once
from tries import EARLIER_TRIES

from lstmprof.capture.harness.supervisor import CaptureResult
from lstmprof.capture.interpreters import environments

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


@pytest.fixture(scope="session")
def of_row(
    session_folder: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[[str], CaptureResult]:
    """What a row's capture brought back: one for all tests, whichever process runs them.

    After a test that failed and is tried again, another: the first may have been disturbed.
    """
    if again := pytestconfig.stash.get(EARLIER_TRIES, 0):
        return functools.partial(captured_once, tmp_path_factory.getbasetemp() / f"rows-{again}")
    return functools.partial(captured_once, session_folder / "rows")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine's interpreters answer late."""
    monkeypatch.setattr(environments, "ANSWERS_WITHIN_S", 600.0)


@pytest.fixture(autouse=True)
def _denormals_as_before() -> Iterator[None]:
    """A torch loop flushes denormals for good; hypothesis and NumPy need them."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)

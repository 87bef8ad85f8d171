"""What a loop sets for its whole process, put back where a test runs one in pytest's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _denormals_as_before() -> Iterator[None]:
    """A torch loop flushes denormals for good; hypothesis and NumPy need them."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)

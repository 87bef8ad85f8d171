"""Charts and the page are tested where the library that draws them is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.opening import CHROMIUM, PATIENCE_MS, Opened

collect_ignore_glob = [] if importlib.util.find_spec("altair") else ["test_*.py"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox"], timeout=PATIENCE_MS
        )
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any, path: Path) -> Iterator[Opened]:
    """The page at the module's ``path``, on a wide light screen."""
    made = Opened(browser, path, 1280, "light")
    yield made
    made.context.close()

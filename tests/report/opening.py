"""A page as a real browser shows it: what it says, what it complained of, what it asked for."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

#: Of a page and its parts to come: against a hang alone.
PATIENCE_MS = 600_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needed = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="there is no chromium on this machine, or playwright is not installed",
)


class Opened:
    """A page that is drawn, with what it complained of and asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri())
        self.drawn()

    def drawn(self) -> None:
        """Wait until every figure is drawn that is not folded."""
        self.tab.wait_for_selector("html[data-ready]")
        self.tab.wait_for_selector("#timeline-canvas[data-drawn]", state="attached")

    def unfold(self) -> None:
        """Open all sections, and wait until their figures are drawn."""
        self.tab.evaluate(
            "for (const fold of document.querySelectorAll('details.section')) fold.open = true"
        )
        undrawn = "document.querySelector('figure:not([hidden]) .chart:not([data-drawn])') === null"
        self.tab.wait_for_function(undrawn)

    def texts(self, selector: str) -> list[str]:
        """The text of every element that ``selector`` finds."""
        found: list[str] = self.tab.eval_on_selector_all(
            selector, "all => all.map(one => one.textContent)"
        )
        return found

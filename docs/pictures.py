"""The pictures of the documentation: screenshots of a report on the sample runs in traces/.

Taken by Chromium through Playwright. Write them anew with ``make pictures``, after a change of what
a report looks like.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lstmprof as lp

DOCS = Path(__file__).parent
SAMPLES = DOCS.parent / "traces"
#: What is shown: one network in three frameworks.
RUNS = ("torch-nn-lstm", "torch-lstmcell-basic", "tf-lstmcell", "keras-lstm", "jax-scan")
#: The part of the page that a picture shows, by CSS selector.
PICTURES = {
    "demo.png": "#ledger figure",
    "report.png": "#verdict",
    "timeline.png": "#timeline",
}
#: CSS pixels: the width of the page, what is left around a part; a picture has several of each.
WIDTH, MARGIN, SCALE = 1080, 4, 2
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: A page with five runs is drawn in seconds; this is against a hang alone.
_PATIENCE_MS = 600_000


def draw(runs: Sequence[Path], names: Sequence[str], folder: Path) -> None:
    """Write the pictures ``names`` of a report on ``runs`` into ``folder``.

    Raises:
        LookupError: there is no Chromium on the PATH, or the page lacks a part.
    """
    with tempfile.TemporaryDirectory() as place:
        page = lp.report([str(run) for run in runs], Path(place) / "report.html")
        with _opened(page) as tab:
            for name in names:
                (folder / name).write_bytes(_picture(tab, PICTURES[name]))


def _picture(tab: Any, selector: str) -> bytes:
    part = tab.query_selector(selector)
    if part is None:
        raise LookupError(f"the report has no {selector}")
    box = part.bounding_box()
    clip = {
        "x": box["x"] - MARGIN,
        "y": box["y"] - MARGIN,
        "width": box["width"] + 2 * MARGIN,
        "height": box["height"] + 2 * MARGIN,
    }
    picture: bytes = tab.screenshot(full_page=True, clip=clip, animations="disabled")
    return picture


@contextmanager
def _opened(page: Path) -> Iterator[Any]:
    """The page in a browser, once every figure is drawn."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise LookupError(f"none of {', '.join(_BROWSERS)} is on the PATH; install Chromium")
    with sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=browser, args=["--headless", "--no-sandbox"], timeout=_PATIENCE_MS
        )
        context = launched.new_context(
            viewport={"width": WIDTH, "height": 900},
            device_scale_factor=SCALE,
            color_scheme="light",
        )
        context.set_default_timeout(_PATIENCE_MS)
        tab = context.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.wait_for_selector("#timeline-canvas[data-drawn]")
        yield tab
        launched.close()


if __name__ == "__main__":
    try:
        draw([SAMPLES / name for name in RUNS], list(PICTURES), DOCS)
    except LookupError as error:
        sys.exit(f"{error}")
    print("wrote " + ", ".join(f"docs/{name}" for name in PICTURES))

"""The page in Firefox, from disk: what is drawn there, and that its controls work there too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from report import runs
from report.marionette import Firefox

from lstmprof.breakdown import break_down
from lstmprof.report import TABLES, page, report_of

FIREFOX = shutil.which("firefox") or shutil.which("firefox-esr")
pytestmark = pytest.mark.skipif(FIREFOX is None, reason="there is no firefox on this machine")
TEXTS = "[...document.querySelectorAll('{}')].map(one => one.textContent)"
BARS = TEXTS.format("[data-figure=waterfall] .mark-text text")


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    folder = tmp_path_factory.mktemp("firefox")
    path = folder / "report.html"
    made = [break_down(run, None, TABLES) for run in runs.three(folder / "runs")]
    page.write(report_of(made), path)
    (folder / "profile").mkdir()
    assert FIREFOX
    opened = Firefox(FIREFOX, folder / "profile")
    try:
        opened.command("WebDriver:Navigate", url=path.as_uri())
        opened.wait("document.documentElement.hasAttribute('data-ready')")
        opened.wait("Number(document.querySelector('#timeline-canvas').dataset.drawn) > 0")
        yield opened
    finally:
        opened.close()


def test_every_figure_is_drawn_and_fits(firefox: Firefox) -> None:
    figures = "document.querySelectorAll('figure:not([hidden]) .chart{}').length"
    assert firefox.value(figures.format("")) == firefox.value(figures.format(" > svg")) >= 6
    root = "document.documentElement"
    assert firefox.value(f"{root}.scrollWidth") <= firefox.value("window.innerWidth")


def test_hostile_names_are_text(firefox: Firefox) -> None:
    assert "<script>alert(1)</script>" in " ".join(
        firefox.value(TEXTS.format("#runs td, .verdict"))
    )
    assert firefox.value("document.querySelectorAll('main img, main iframe').length") == 0


def test_the_pair_and_the_theme_can_be_chosen(firefox: Firefox) -> None:
    before = firefox.value(BARS)
    chosen = "document.querySelector('#pair-other')"
    firefox.value(f"({chosen}.value = 'slow', {chosen}.dispatchEvent(new Event('change')))")
    firefox.wait(f"{BARS}.join() !== {','.join(before)!r}")
    assert "slow takes" in firefox.value("document.querySelector('#pair-said').textContent")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = firefox.value(ground)
    firefox.value("document.querySelector('#theme').click()")
    firefox.wait(f"{ground} !== {light!r}")


def test_the_timeline_zooms(firefox: Firefox) -> None:
    shown = "Number(document.querySelector('#timeline-canvas').dataset.to)"
    whole = firefox.value(shown)
    firefox.value("document.querySelector('[data-zoom=in]').click()")
    firefox.wait(f"{shown} < {whole}")

"""Call stacks and ranks in a real browser: they open, fit, and obey mouse and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diagnose.made_job import breakdown_of
from report import opening, test_icicles, test_ranks
from report.opening import Opened

from lstmprof.report import page, report_of
from lstmprof.report.palette import COLLECTIVES, HUES, PARTS, PRODUCTS

pytestmark = opening.needed


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    made = [
        breakdown_of(folder / "<b>stacks", test_icicles.ROWS),
        breakdown_of(folder / "ranks", test_ranks.rows()),
    ]
    page.write(report_of(made), folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_without_complaint_and_fits(
    browser: Any, path: Path, width: int, scheme: str
) -> None:
    made = Opened(browser, path, width, scheme)
    assert made.complaints == []
    assert made.tab.evaluate("document.documentElement.scrollWidth") == width
    made.unfold()
    for key in ("parts", "late", "work"):
        assert made.tab.query_selector(f"[data-figure=ranks-{key}-0] svg")
    made.context.close()


def shown(opened: Opened) -> list[str]:
    return opened.texts("#stacks-tree button:not([hidden])")


def test_a_box_is_as_wide_as_its_time(opened: Opened) -> None:
    widths = "[...document.querySelectorAll('#stacks-tree button')].map(one => one.style.width)"
    assert shown(opened) == ["LSTM_0", "aten::mm", "aten::view"]
    width = [float(text.removesuffix("%")) for text in opened.tab.evaluate(widths)]
    assert width == pytest.approx([100, 100 * 80 / 300, 100 * 4 / 300], rel=1e-4)
    assert "host time by module" in opened.texts("#stacks-said")[0]


def test_a_click_makes_a_box_as_wide_as_the_picture_and_escape_shows_all(opened: Opened) -> None:
    opened.tab.click("#stacks-tree button:has-text('aten::mm')")
    assert shown(opened) == ["LSTM_0", "aten::mm"]
    assert opened.tab.locator("#stacks-tree button").nth(1).evaluate("b => b.style.width") == "100%"
    assert opened.texts("#stacks-picked")[0].startswith(
        "aten::mm · dispatch · 80 ns, 26.7 % of all"
    )
    opened.tab.keyboard.press("Escape")
    assert shown(opened) == ["LSTM_0", "aten::mm", "aten::view"]


def test_the_arrows_lead_around_inside_and_beside(opened: Opened) -> None:
    opened.tab.focus("#stacks-tree button")
    focused = "document.activeElement.textContent"
    for key, name in (
        ("ArrowDown", "aten::mm"),
        ("ArrowRight", "aten::view"),
        ("ArrowLeft", "aten::mm"),
        ("ArrowUp", "LSTM_0"),
    ):
        opened.tab.keyboard.press(key)
        assert opened.tab.evaluate(focused) == name
    assert (
        opened.tab.eval_on_selector_all(
            "#stacks-tree button", "all => all.filter(one => one.tabIndex === 0).length"
        )
        == 1
    )


def test_search_counts_the_time_of_what_is_found_once(opened: Opened) -> None:
    opened.tab.select_option("#stacks-what", label="host time by Python frame")
    opened.tab.fill("#stacks-find", "aten")
    assert opened.texts("#stacks-found") == ["1 found, 8 %"]
    opened.tab.press("#stacks-find", "Enter")
    assert opened.texts("#stacks-picked")[0].startswith("aten::mm")
    assert opened.texts("#stacks-tree button.dim") == ["train.py(3): step"]


def test_a_page_of_paper_has_the_boxes(opened: Opened) -> None:
    opened.tab.emulate_media(media="print")
    assert opened.tab.is_visible("#stacks-tree button")
    assert not opened.tab.is_visible("#stacks-whole")


def test_every_mark_of_ranks_and_stacks_has_a_legend(opened: Opened) -> None:
    named = set(opened.texts("#ranks .legend a"))
    assert {PRODUCTS.name, COLLECTIVES.name} <= named <= set(HUES)
    assert PARTS["gemm"].shown in opened.texts("#stacks .legend a")

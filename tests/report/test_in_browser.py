"""The page in a real browser: what it shows, what its controls do, what it asks of the network."""

from __future__ import annotations

import base64
import csv
import dataclasses
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from click.testing import CliRunner
from ingested import ingest_profile
from report import opening, runs
from report.opening import Opened

from lstmprof.breakdown import break_down
from lstmprof.cli import cli
from lstmprof.report import TABLES, page, report_of
from lstmprof.report.model import Report, Timeline
from lstmprof.report.palette import PARTS

pytestmark = opening.needed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    made = runs.three(folder)
    made.append(
        runs.run(folder, "wide", implementation="x", hidden=64, walls_ns=runs.walls(30_000))
    )
    return report_of([break_down(run, None, TABLES) for run in made])


@pytest.fixture(scope="module")
def path(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    page.write(report, out)
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_without_complaint_or_request_and_fits(
    browser: Any, path: Path, width: int, scheme: str
) -> None:
    made = Opened(browser, path, width, scheme)
    folds = made.tab.evaluate("document.querySelectorAll('details.section:not([open])').length")
    assert folds == 1 if width == 1280 else folds > 5
    made.unfold()
    assert made.complaints == []
    assert [url for url in made.requests if not url.startswith("data:")] == [path.as_uri()]
    figures = made.tab.query_selector_all("figure:not([hidden]) .chart")
    assert len(figures) >= 8
    assert all(figure.query_selector("svg") for figure in figures)
    assert made.tab.evaluate("document.documentElement.scrollWidth") == width
    for table in ("#runs .scroll", "#layers .scroll"):
        found = f"document.querySelector('{table}')"
        assert made.tab.evaluate(f"({found}?.scrollWidth - {found}?.clientWidth) || 0") == 0, table
    assert made.tab.evaluate("document.querySelectorAll('main img, main iframe').length") == 0
    made.context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_when_the_figures_are_drawn(browser: Any, path: Path, width: int) -> None:
    heights = (
        "[...document.querySelectorAll('details')].map(fold => fold.open = true),"
        "[...document.querySelectorAll('main > section')].map(s => [s.id, s.offsetHeight])"
    )
    viewport = {"width": width, "height": 900}
    plain = browser.new_context(viewport=viewport, java_script_enabled=False)
    tab = plain.new_page()
    tab.goto(path.as_uri())
    before = tab.evaluate(heights)
    plain.close()
    made = Opened(browser, path, width, "light")
    made.unfold()
    unlike = list(zip(before, made.tab.evaluate(heights), strict=True))
    assert [(one, other) for one, other in unlike if one != other and one[0] != "kernels"] == []
    made.context.close()


@pytest.mark.parametrize("width", [1280, 1010, 390])
def test_the_labels_of_the_times_are_whole(browser: Any, path: Path, width: int) -> None:
    made = Opened(browser, path, width, "light")
    beyond = (
        "[...document.querySelectorAll('[data-figure=times-0] .mark-text text')].filter(one =>"
        " one.getBoundingClientRect().right > one.closest('svg').getBoundingClientRect().right)"
        ".map(one => one.textContent)"
    )
    assert made.texts("[data-figure=times-0] .mark-text text")
    assert made.tab.evaluate(beyond) == []
    made.context.close()


def test_hostile_names_are_shown_as_text(opened: Opened) -> None:
    opened.tab.select_option("#kernels-run", label="hostile")
    names = opened.texts("#kernels-table td.name")
    assert "<script>alert(1)</script>" in names
    assert "</script><img src=x onerror=alert(1)>" in names
    assert any("</script><img" in text for text in opened.texts("#runs td"))
    assert opened.complaints == []


def of_breakdown(run: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables that ``lstmprof breakdown RUN --format json`` writes."""
    ran = CliRunner().invoke(cli, ["breakdown", str(run), "--format", "json"])
    assert ran.exit_code == 0, ran.output
    tables: dict[str, list[dict[str, Any]]] = json.loads(ran.stdout)
    return tables


@pytest.mark.parametrize("run", ["fast", "slow"])
def test_the_kernel_table_shows_the_numbers_of_breakdown(
    opened: Opened, folder: Path, run: str
) -> None:
    opened.tab.select_option("#kernels-run", label=run)
    heads = opened.texts("#kernels-table thead th")
    cells = opened.texts("#kernels-table tbody td")
    rows = [cells[at : at + len(heads)] for at in range(0, len(cells), len(heads))]
    shown = [dict(zip(heads, row, strict=True)) for row in rows]
    assert shown == [
        {
            "total ms": f"{row['total_ns'] / 1e6:.3f}",
            "share": f"{100 * row['share']:.1f} %",
            "calls": str(row["count"]),
            "median µs": f"{row['p50_ns'] / 1e3:.1f}",
            "category": PARTS[row["category"]].shown,
            "name": row["name"],
        }
        for row in of_breakdown(folder / run)["kernels"]
    ]


def test_a_bar_of_the_ledger_has_the_length_that_breakdown_tells(
    opened: Opened, folder: Path
) -> None:
    rows = [
        row
        for row in of_breakdown(folder / "slow")["ledger"]
        if (row["state"], row["part"]) == ("idle", "launch call")
    ]
    mean_ms = sum(row["ns"] for row in rows) / len(rows) / 1e6
    bar = "[data-figure=ledger-0] path[aria-label*='run: torch-cell; part: launch call;']"
    (label,) = opened.tab.eval_on_selector_all(bar, "all => all.map(one => one.ariaLabel)")
    assert f"time, ms: {mean_ms:.4f};" in label
    opened.tab.hover(bar)
    opened.tab.wait_for_selector("#vg-tooltip-element.visible")
    assert f"time, ms{mean_ms:.4f}" in "".join(opened.texts("#vg-tooltip-element td"))


def turned(value: Any) -> Any:
    """``value`` with the columns of every table in it from last to first."""
    if isinstance(value, list):
        return [turned(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"columns", "rows"}:
        return {"columns": value["columns"][::-1], "rows": [row[::-1] for row in value["rows"]]}
    return {name: turned(item) for name, item in reversed(value.items())}


def unpacked(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def repacked(value: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def test_the_page_reads_columns_by_name_whatever_their_order(
    browser: Any, opened: Opened, path: Path, tmp_path: Path
) -> None:
    def other_way(script: re.Match[str]) -> str:
        head, text, end = script.groups()
        if "timeline-data" in head:
            return head + repacked(turned(unpacked(text))) + end
        return head + json.dumps(turned(json.loads(text))).replace("<", "\\u003c") + end

    sent = path.read_text(encoding="utf-8")
    scripts = r'(<script type="application/[^>]*>)(.*?)(</script>)'
    out = tmp_path / "turned.html"
    out.write_text(re.sub(scripts, other_way, sent, flags=re.DOTALL), encoding="utf-8")
    other = Opened(browser, out, 1280, "light")
    assert other.complaints == []
    canvas = "document.querySelector('#timeline-canvas').toDataURL()"
    for tab in (opened.tab, other.tab):
        tab.select_option("#kernels-run", label="slow")
        tab.select_option("#pair-other", label="slow")
        tab.wait_for_function("document.querySelector('#pair-said').textContent.includes('slow')")
    for texts in ("#kernels-table", "#pair-said", "[data-figure=waterfall] .mark-text text"):
        assert other.texts(texts) == opened.texts(texts) != []
    assert other.tab.evaluate(canvas) == opened.tab.evaluate(canvas)
    other.context.close()


def test_the_pair_chooser_changes_the_waterfall(opened: Opened) -> None:
    drawn = "[data-figure=waterfall] .mark-text text"
    before, said = opened.texts(drawn), opened.texts("#pair-said")
    opened.tab.select_option("#pair-other", label="slow")
    opened.tab.wait_for_function(
        "before => [...document.querySelectorAll('" + drawn + "')]"
        ".map(one => one.textContent).join() !== before",
        arg=",".join(before),
    )
    assert opened.texts("#pair-said") != said
    assert "slow takes" in opened.texts("#pair-said")[0]
    assert "clean steps from 2 profiled steps" in opened.texts("#pair-caption")[0]
    after = opened.texts(drawn)
    opened.tab.click("#theme")
    opened.drawn()
    opened.tab.wait_for_function(
        "wanted => [...document.querySelectorAll('" + drawn + "')]"
        ".map(one => one.textContent).join() === wanted",
        arg=",".join(after),
    )


def test_a_link_opens_the_fold_that_it_leads_into(opened: Opened) -> None:
    assert not opened.tab.is_visible("#glossary-gemm")
    opened.tab.click(".legend [data-part=gemm]")
    opened.tab.wait_for_selector("#glossary-gemm", state="visible")


def test_only_comparable_runs_are_offered(opened: Opened) -> None:
    assert "wide" not in opened.texts("#pair-one option")
    opened.tab.select_option("#pair-one", label="slow")
    assert set(opened.texts("#pair-other option")) == {"fast", "hostile"}


def test_of_many_figures_of_a_section_one_or_all_are_shown(opened: Opened) -> None:
    visible = "#launch-gaps figure:not([hidden]) .chart svg"
    assert len(opened.texts(visible)) == 1
    opened.tab.select_option("#launch-gaps select", label="all 4")
    opened.tab.wait_for_function(f"document.querySelectorAll('{visible}').length === 4")


def test_search_filters_the_kernels(opened: Opened) -> None:
    opened.tab.select_option("#kernels-run", label="slow")
    assert len(opened.texts("#kernels-table tbody tr")) == 2
    opened.tab.fill("#kernels-search", "SGEMM")
    assert opened.texts("#kernels-table td.name") == ["ampere_sgemm_128x64_nn"]
    assert opened.texts("#kernels-count") == ["1 of 2"]


def test_tables_sort_by_any_column_what_is_unknown_last(opened: Opened) -> None:
    steps = "#runs-table tbody td[data-label='step ms']"
    names, head = "#runs-table tbody th", "#runs-table thead th:nth-child({}) button"
    opened.tab.click(head.format(2))
    falling = [float(text) for text in opened.texts(steps) if text != "–"]
    assert falling == sorted(falling, reverse=True)
    assert opened.tab.get_attribute("#runs-table thead th:nth-child(2)", "aria-sort") == (
        "descending"
    )
    opened.tab.click(head.format(2))
    assert [float(text) for text in opened.texts(steps) if text != "–"] == falling[::-1]
    opened.tab.click(head.format(1))
    assert opened.texts(names) == sorted(opened.texts(names))
    opened.tab.click(head.format(2))
    opened.tab.evaluate(
        "document.querySelector('#runs-table tbody td').textContent = '–';"
        "document.querySelector('#runs-table thead th:nth-child(2) button').click()"
    )
    assert opened.texts(steps)[-1] == "–"


def test_the_kernel_table_stays_sorted_from_run_to_run(opened: Opened) -> None:
    opened.tab.click("#kernels-table thead th:last-child button")
    for run in ("slow", "hostile"):
        opened.tab.select_option("#kernels-run", label=run)
        names = opened.texts("#kernels-table td.name")
        assert names == opened.tab.evaluate(
            "names => [...names].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))", names
        )


def test_a_table_is_copied_as_csv_as_it_is_shown(opened: Opened) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.tab.select_option("#kernels-run", label="slow")
    opened.tab.fill("#kernels-search", "sgemm")
    opened.tab.click("[data-copy=kernels-table]")
    opened.tab.wait_for_function(
        "document.querySelector('[data-copy=kernels-table]').textContent === 'Copied'"
    )
    copied = opened.tab.evaluate("navigator.clipboard.readText()").splitlines()
    heads, *rows = csv.reader(copied)
    assert heads == opened.texts("#kernels-table thead th")
    assert rows == [[text.replace(",", "") for text in opened.texts("#kernels-table tbody td")]]


def test_kernels_of_several_devices_say_which(browser: Any, report: Report, tmp_path: Path) -> None:
    other = [{**row, "device": 1} if place else row for place, row in enumerate(report.kernels)]
    out = tmp_path / "devices.html"
    page.write(dataclasses.replace(report, kernels=other), out)
    made = Opened(browser, out, 1280, "light")
    assert made.texts("#kernels-table thead th")[-2:] == ["device", "name"]
    assert made.texts("#kernels-table tbody tr:first-child td")[-2] == "0"
    made.context.close()


def test_no_cell_of_a_copied_table_is_run_by_a_spreadsheet(opened: Opened) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    name = '=HYPERLINK("http://x"), a'
    opened.tab.evaluate(
        "name => { document.querySelector('#runs-table tbody th').textContent = name; }", name
    )
    opened.tab.click("[data-copy=runs-table]")
    opened.tab.wait_for_function(
        "document.querySelector('[data-copy=runs-table]').textContent === 'Copied'"
    )
    _, first, *_ = csv.reader(opened.tab.evaluate("navigator.clipboard.readText()").splitlines())
    assert first[0] == "'" + name


def test_parts_have_their_shade_of_the_theme(opened: Opened) -> None:
    drawn = (
        "[...document.querySelectorAll('[data-figure=ledger-0] .mark-rect path')]"
        ".map(one => one.getAttribute('fill'))"
    )
    square = (
        "getComputedStyle(document.querySelector('.legend [data-part=gemm] i')).backgroundColor"
    )
    light, of_legend = opened.tab.evaluate(drawn), opened.tab.evaluate(square)
    assert set(light) <= {part.colour for part in PARTS.values()}
    opened.tab.click("#theme")
    opened.tab.wait_for_function(f"before => {drawn}.join() !== before", arg=",".join(light))
    assert set(opened.tab.evaluate(drawn)) <= {part.dark for part in PARTS.values()}
    assert of_legend == rgb(PARTS["gemm"].colour)
    assert opened.tab.evaluate(square) == rgb(PARTS["gemm"].dark)


def rgb(colour: str) -> str:
    """``#rrggbb`` as a browser says it."""
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_on_a_phone_the_rows_of_the_sweep_are_told_in_full(browser: Any, path: Path) -> None:
    made = Opened(browser, path, 390, "light")
    made.unfold()
    labels = "[data-figure=sweep] .role-axis-label text"
    said = [text for text in made.texts(labels) if "units" in text]
    assert any("32 units" in text for text in said)
    assert all("…" not in text for text in said if "torch-c" in text)
    left = (
        f"Math.min(...[...document.querySelectorAll('{labels}')]"
        ".map(one => one.getBoundingClientRect().left))"
    )
    assert made.tab.evaluate(left) >= 0
    made.context.close()


def test_dark_mode_follows_the_button(opened: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = opened.tab.evaluate(ground)
    opened.tab.click("#theme")
    assert opened.tab.evaluate(ground) != light
    assert opened.tab.get_attribute("#theme", "aria-pressed") == "true"
    opened.tab.click("#theme")
    assert opened.tab.evaluate(ground) == light


def view_of(opened: Opened) -> tuple[float, float]:
    canvas = opened.tab.query_selector("#timeline-canvas")
    return float(canvas.get_attribute("data-from")), float(canvas.get_attribute("data-to"))


def seen_after(opened: Opened, before: tuple[float, float]) -> tuple[float, float]:
    """What the timeline shows once it shows something else than ``before``."""
    opened.tab.wait_for_function(
        "([from, to]) => { const at = document.querySelector('#timeline-canvas').dataset;"
        " return Number(at.from) !== from || Number(at.to) !== to; }",
        arg=list(before),
    )
    return view_of(opened)


def test_the_timeline_zooms_and_moves_by_button_key_wheel_and_drag(opened: Opened) -> None:
    whole = view_of(opened)
    assert whole[0] == 0
    opened.tab.click("[data-zoom=in]")
    half = seen_after(opened, whole)
    assert half[1] - half[0] == pytest.approx(whole[1] / 2)
    opened.tab.focus("#timeline-canvas")
    opened.tab.keyboard.press("ArrowRight")
    moved = seen_after(opened, half)
    assert moved[0] > half[0]
    assert moved[1] - moved[0] == pytest.approx(half[1] - half[0])
    opened.tab.locator("#timeline-canvas").scroll_into_view_if_needed()
    box = opened.tab.locator("#timeline-canvas").bounding_box()
    opened.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    opened.tab.keyboard.down("Control")
    opened.tab.mouse.wheel(0, -100)
    opened.tab.keyboard.up("Control")
    closer = seen_after(opened, moved)
    assert closer[1] - closer[0] < moved[1] - moved[0]
    opened.tab.mouse.down()
    opened.tab.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
    opened.tab.mouse.up()
    dragged = seen_after(opened, closer)
    assert dragged[0] > closer[0]
    opened.tab.keyboard.press("Home")
    assert seen_after(opened, dragged) == whole


def test_the_timeline_names_what_is_under_the_mouse(opened: Opened) -> None:
    opened.tab.locator("#timeline-canvas").scroll_into_view_if_needed()
    box = opened.tab.locator("#timeline-canvas").bounding_box()
    opened.tab.mouse.move(box["x"] + 2, box["y"] + 22 + 19 + 10)
    opened.tab.wait_for_selector("#tip:not([hidden])")
    assert opened.texts("#tip")[0].startswith("Python\n500 ns, from 0")
    opened.tab.mouse.click(box["x"] + 2, box["y"] + 22 + 19 + 10)
    assert opened.texts("#timeline-picked")[0].startswith("Python · 500 ns")


def jumped_to(opened: Opened, wanted: str) -> str:
    """What is told of the first event that is found by ``wanted``."""
    opened.tab.fill("#timeline-find", wanted)
    opened.tab.press("#timeline-find", "Enter")
    return opened.texts("#timeline-picked")[0]


def test_search_jumps_from_one_event_to_the_next_and_back(opened: Opened) -> None:
    whole = view_of(opened)
    assert jumped_to(opened, "cudaLaunch").startswith("cudaLaunchKernel")
    assert opened.texts("#timeline-found") == ["1 of 2"]
    first = seen_after(opened, whole)
    assert first[1] - first[0] < whole[1] - whole[0]
    opened.tab.press("#timeline-find", "Enter")
    assert opened.texts("#timeline-found") == ["2 of 2"]
    assert seen_after(opened, first)[0] > first[0]
    opened.tab.press("#timeline-find", "Shift+Enter")
    assert opened.texts("#timeline-found") == ["1 of 2"]


def test_an_event_tells_all_that_was_recorded_and_arrows_lead_to_what_it_launched(
    opened: Opened,
) -> None:
    told = jumped_to(opened, "cudaLaunch").splitlines()
    assert told[1:] == [
        "on thread 1",
        "correlation id: 1",
        "launches vectorized_elementwise_kernel",
    ]
    opened.tab.wait_for_selector("#timeline-canvas:not([data-arrows='0'])")
    told = jumped_to(opened, "vectorized").splitlines()
    assert told[1] == "on device 0, stream 7"
    assert (
        "launched with: grid 80 × 1 × 1, block 128 × 1 × 1 (128 threads), 32 registers per thread,"
        " 4,096 B of shared memory per block"
    ) in told
    assert told[-1] == "launched by cudaLaunchKernel, started 1,000 ns after its end"


def test_w_a_s_d_and_the_wheel_work_once_the_timeline_is_clicked(opened: Opened) -> None:
    canvas = opened.tab.locator("#timeline-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    whole = view_of(opened)
    opened.tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + 50)
    opened.tab.keyboard.press("w")
    near = seen_after(opened, whole)
    assert near[1] - near[0] < whole[1] - whole[0]
    opened.tab.keyboard.press("d")
    right = seen_after(opened, near)
    assert right[0] > near[0]
    opened.tab.keyboard.press("a")
    assert seen_after(opened, right)[0] < right[0]
    opened.tab.mouse.wheel(0, -100)
    closer = seen_after(opened, near)
    assert closer[1] - closer[0] < near[1] - near[0]
    opened.tab.keyboard.press("s")
    wider = seen_after(opened, closer)
    assert wider[1] - wider[0] > closer[1] - closer[0]


def test_each_step_of_a_run_can_be_chosen(opened: Opened) -> None:
    assert opened.texts("#timeline-step option") == [
        "step 0, median length",
        "step 1, longest other step",
    ]
    opened.tab.select_option("#timeline-step", index=1)
    opened.tab.wait_for_function(
        "document.querySelector('#timeline-said').textContent.startsWith('Step 1 of fast')"
    )
    opened.tab.select_option("#timeline-run", label="slow")
    opened.tab.wait_for_function(
        "document.querySelector('#timeline-said').textContent.startsWith('Step 0 of slow')"
    )


def test_a_page_of_paper_holds_its_width_and_what_is_folded(opened: Opened) -> None:
    folds = "[...document.querySelectorAll('.verdict .rest')].map(fold => fold.open)"
    assert not any(opened.tab.evaluate(folds))
    opened.tab.set_viewport_size({"width": 718, "height": 1000})  # A4 less margins of 1 cm
    opened.tab.emulate_media(media="print")
    opened.tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert all(opened.tab.evaluate(folds))
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= 718
    beyond = "[...document.querySelectorAll('main table')].filter(t => t.offsetWidth > 718).length"
    assert opened.tab.evaluate(beyond) == 0
    opened.tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not any(opened.tab.evaluate(folds))


def test_a_page_of_paper_holds_the_charts_that_a_wide_screen_drew(opened: Opened) -> None:
    wide = "[...document.querySelectorAll('.chart svg')].filter("
    wide += "svg => svg.getBoundingClientRect().right > document.body.clientWidth).length"
    opened.tab.emulate_media(media="print")
    opened.tab.evaluate("document.documentElement.style.width = '718px'")  # no event tells of it
    assert opened.tab.evaluate(wide) == 0


def test_fifty_thousand_events_are_drawn_within_a_frame_or_two(
    report: Report, browser: Any, tmp_path: Path
) -> None:
    count = 50_000
    first = report.timelines[0]
    many = dataclasses.replace(
        first,
        facts={},
        dur_ns=count * 100,
        columns={
            "track": [0] * count,
            "start_ns": [i * 100 for i in range(count)],
            "dur_ns": [70] * count,
            "name": [0] * count,
            "launch": [-1] * count,
            "part": [i % 9 for i in range(count)],
        },
    )
    out = tmp_path / "many.html"
    page.write(dataclasses.replace(report, timelines=(many,)), out)
    made = Opened(browser, out, 1280, "light")
    assert count_drawn(made) <= 2 * 1280
    milliseconds = made.tab.evaluate(
        "async () => { const canvas = document.querySelector('#timeline-canvas'); const all = [];"
        " for (let i = 0; i < 9; i++) { const began = performance.now();"
        " document.querySelector('[data-zoom=in]').click();"
        " await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);"
        " all.push(performance.now() - began); } return all.sort((a, b) => a - b)[0]; }"
    )
    assert milliseconds < 100
    made.context.close()


def count_drawn(opened: Opened) -> int:
    return int(opened.tab.get_attribute("#timeline-canvas", "data-drawn"))


def test_a_timeline_arrives_as_it_was_sent(report: Report, opened: Opened) -> None:
    unpacked = opened.tab.evaluate(
        "async () => { const text = document.querySelector('.timeline-data').textContent;"
        " const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));"
        " const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));"
        " return await new Response(plain).json(); }"
    )
    sent: Timeline = report.timelines[0]
    assert unpacked["dur_ns_of"] == sent.columns["dur_ns"]
    assert unpacked["names"] == list(sent.names)


@shared_traces.needed
def test_real_profiles_of_gpus_open(browser: Any, tmp_path: Path) -> None:
    names = ("qa-transformer-h100-a.pt.trace", "hm-amp-a100-bs128", "tl-h100-bert-small")
    made = [
        ingest_profile(shared_traces.FOLDER / "kineto" / f"{name}.json.gz", tmp_path)
        for name in names
    ]
    out = tmp_path / "report.html"
    report = report_of([break_down(run, None, TABLES) for run in made])
    page.write(report, out)
    opened = Opened(browser, out, 1280, "light")
    assert opened.complaints == []
    assert len(opened.texts(".verdict .headline")) == len(report.diagnoses) == 3
    assert len(opened.texts("#timeline-run option")) == 3
    for place in range(3):
        opened.tab.select_option("#timeline-run", index=place)
        opened.tab.wait_for_function(
            "run => document.querySelector('#timeline-said').textContent.includes(run)",
            arg=list(dict.fromkeys(drawn.run for drawn in report.timelines))[place],
        )
        assert count_drawn(opened) > 20
    opened.context.close()

"""The pictures of the documentation are those that ``make pictures`` draws, and it draws them."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_picture_that_is_shown_is_drawn_by_the_command() -> None:
    shown = {
        (page.parent / path).resolve()
        for page in PAGES
        for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
    }
    assert shown == {ROOT / "docs" / name for name in PICTURES["PICTURES"]}
    for path in shown:
        assert path.read_bytes().startswith(b"\x89PNG"), path


def test_the_runs_that_are_shown_are_samples() -> None:
    for name in PICTURES["RUNS"]:
        assert (PICTURES["SAMPLES"] / name / "run.json").is_file()


@pytest.mark.skipif(
    not any(map(shutil.which, PICTURES["_BROWSERS"])), reason="there is no chromium here"
)
def test_the_command_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    runs = [PICTURES["SAMPLES"] / name for name in PICTURES["RUNS"][:2]]
    PICTURES["draw"](runs, list(PICTURES["PICTURES"]), tmp_path)
    for name in PICTURES["PICTURES"]:
        head = (tmp_path / name).read_bytes()[:24]
        width, height = (int.from_bytes(head[at : at + 4], "big") for at in (16, 20))
        assert 1_000 < width <= PICTURES["WIDTH"] * PICTURES["SCALE"], name
        assert height > 200, name

"""``--open``: a browser, here a script that notes its words, is given the report of the runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from report import runs


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    runs.three(folder)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class Desk:
    """A place to run ``lstmprof`` in, with a browser of its own."""

    def __init__(self, folder: Path, cache: Path, *, browser_exits: int = 0) -> None:
        self.folder, self.cache, self.opened = folder, cache, folder / "opened"
        script = folder / "browser"
        script.write_text(f'#!/bin/sh\necho "$@" >> "{self.opened}"\nexit {browser_exits}\n')
        script.chmod(0o755)
        own = {"BROWSER": str(script), "LSTMPROF_CACHE": str(self.cache), "PATH": ""}
        self.environment = {**os.environ, **own}

    def lstmprof(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """One command as a user would give it."""
        command = [sys.executable, "-m", "lstmprof", *map(str, arguments)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
            check=False,
        )

    def kept(self) -> set[Path]:
        """The pages in the cache."""
        return {*(self.cache / "reports").iterdir()} if (self.cache / "reports").exists() else set()

    def pages(self) -> list[Path]:
        """The files that the browser was told to open."""
        return [Path(unquote(urlparse(url).path)) for url in self.opened.read_text().split()]


def test_breakdown_opens_the_page_of_its_runs_and_prints_what_it_prints_without(
    traces: Path, cache: Path, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, cache)
    before = desk.kept()
    plain, made = desk.lstmprof("breakdown", traces), desk.lstmprof("breakdown", traces, "--open")
    assert (made.returncode, made.stdout) == (0, plain.stdout), made.stderr
    (page,) = desk.pages()
    assert page.is_relative_to(desk.cache)
    assert f"wrote {page} (" in made.stderr
    assert all(f"<bdi>{name}</bdi>" in page.read_text() for name in ("fast", "slow", "hostile"))
    again = desk.lstmprof("breakdown", traces, "--table", "ops", "--format", "csv", "--open")
    assert (again.returncode, desk.pages()) == (0, [page, page]), again.stderr
    assert again.stdout.startswith("run,")
    assert desk.kept() - before == {page}


def test_diagnose_opens_the_page_of_its_runs(traces: Path, cache: Path, tmp_path: Path) -> None:
    desk = Desk(tmp_path, cache)
    made = desk.lstmprof("diagnose", traces / "fast", traces / "slow", "--open")
    assert made.returncode == 0, made.stderr
    (page,) = desk.pages()
    assert "<bdi>hostile</bdi>" not in page.read_text()


def test_report_opens_the_page_where_it_was_asked_to_be(
    traces: Path, cache: Path, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, cache)
    before = desk.kept()
    made = desk.lstmprof("report", traces / "fast", "-o", "a page.html", "--open")
    assert made.returncode == 0, made.stderr
    assert desk.pages() == [tmp_path / "a page.html"]
    assert desk.kept() == before


def test_no_browser_is_one_line_that_names_the_page(
    traces: Path, cache: Path, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, cache, browser_exits=1)
    made = desk.lstmprof("report", traces / "fast", "-o", "page.html", "--open")
    assert (made.returncode, len(made.stderr.splitlines())) == (1, 1)
    assert "page.html: could not start a browser; set $BROWSER" in made.stderr
    assert (tmp_path / "page.html").exists()


def test_charts_alone_cannot_be_opened(traces: Path, cache: Path, tmp_path: Path) -> None:
    desk = Desk(tmp_path, cache)
    made = desk.lstmprof("report", traces / "fast", "--svg", "charts", "--open")
    assert (made.returncode, len(made.stderr.splitlines())) == (2, 1)
    assert "--open needs a page" in made.stderr
    assert not desk.opened.exists()

"""The site is made of every page of the docs, of the commands and of the API, without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lstmprof
from lstmprof.commands import VERBS

ROOT = Path(lstmprof.__file__).parents[1]
#: What a browser would fetch by itself.
FETCHED = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(http[^"]+)|<link rel="stylesheet"[^>]*href="(http[^"]+)'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    built = subprocess.run(
        [*command, "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(folder)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr  # a link that leads nowhere, a page left out
    return folder


def test_it_has_every_page_and_fetches_nothing(site: Path) -> None:
    files = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    pages = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    written = {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")}
    assert written <= set(pages)
    assert {"index.html", "analyses/index.html", "CHANGELOG.html"} <= set(pages)
    fetched = {name: FETCHED.findall(text) for name, text in pages.items()}
    assert not {name: urls for name, urls in fetched.items() if urls}


def test_it_tells_of_every_command_and_public_name(site: Path) -> None:
    commands = (site / "commands.html").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"Usage: lstmprof {verb} " in commands
    api = (site / "api.html").read_text(encoding="utf-8")
    for name in lstmprof.__all__:
        assert name.startswith("_") or f'id="lstmprof.api.{name}"' in api


def test_a_link_of_the_readme_leads_to_a_page_of_the_site(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="own_code.html"' in first
    assert 'href="analyses/index.html"' in first
    assert 'src="report.png"' in first
    assert (site / "report.png").exists()

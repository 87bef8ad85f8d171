"""What a contributor is told holds: commands, files and the version that is cited."""

from __future__ import annotations

import re
from pathlib import Path

import lstmprof
from lstmprof.commands import VERBS

ROOT = Path(__file__).resolve().parents[2]
TOLD = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))


def test_the_version_is_the_same_wherever_it_stands() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited
    assert cited[1] == lstmprof.__version__


def test_what_contributors_are_told_to_run_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", TOLD)) <= targets
    assert len(TEMPLATES) == 2
    for text in (TOLD, *(path.read_text("utf-8") for path in TEMPLATES)):
        assert set(re.findall(r"`lstmprof ([a-z]+)", text)) <= set(VERBS)


def test_the_files_that_contributors_are_told_of_are_there() -> None:
    for path in re.findall(r"`?((?:lstmprof|tests)/[\w/.]+\w)", TOLD):
        assert (ROOT / path).exists(), path


def test_the_files_and_tables_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    paths = re.findall(r"`([\w/<>]+/[\w/.]*)`", text)
    assert len(paths) > 30
    for path in (path.partition("<")[0] for path in paths):
        assert (ROOT / path).exists() or (ROOT / "lstmprof" / path).exists(), path
    for name, path in re.findall(r"`([A-Z_]{4,})` of `([\w/.]+)`", text):
        file = next(f for f in (ROOT / path, ROOT / "lstmprof" / path) if f.exists())
        assert re.search(rf"^{name}\b", file.read_text("utf-8"), re.MULTILINE), path

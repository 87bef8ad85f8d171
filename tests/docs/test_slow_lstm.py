"""docs/slow_lstm.md: each walk goes through from a clean folder, as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
import walks

PAGE = walks.ROOT / "docs" / "slow_lstm.md"
OWN, PROFILES, FRAMEWORKS = walks.walks(PAGE).values()


def gone(text: str, folder: Path) -> list[tuple[walks.Command, list[str]]]:
    """Each command of a walk, which ended well, with the lines of the page that it lacks."""
    steps = []
    for command in walks.commands(text, folder):
        done = walks.run(command, folder, folder.parent / "tools")
        assert done.returncode == 0, f"{command.text}\n{done.stdout}\n{done.stderr}"
        steps.append((command, walks.lacking(command, done)))
    assert len(steps) > 3
    return steps


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nothing in it."""
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "clean"
    folder.mkdir()
    return folder


def test_a_pile_of_profiles(clean: Path) -> None:
    for command, lacks in gone(PROFILES, clean):
        assert not lacks, f"{command.text}: {lacks}"
    assert (clean / "step2.json.gz").exists()


@pytest.mark.measured
def test_an_lstm_of_ones_own(clean: Path) -> None:
    pytest.importorskip("torch")
    gone(OWN, clean)
    assert {path.name for path in (clean / "traces").iterdir()} == {"train", "faster"}


@pytest.mark.measured
def test_a_comparison_of_frameworks(clean: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    gone(FRAMEWORKS, clean)
    text = (clean / "table.tex").read_text("utf-8")
    assert text.count(r" \\") == 4
    assert (clean / "report.html").stat().st_size > 100_000

"""The real profiles that the suite is checked against where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces"
needed = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no real profiles at {FOLDER}")


def profiles() -> list[Path]:
    """Every file that is there, or none."""
    return sorted(p for p in FOLDER.glob("*/*") if p.is_file())


def name(path: Path) -> str:
    """What a test calls a file."""
    return f"{path.parent.name}/{path.name}"

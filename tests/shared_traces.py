"""The real profiles that the suite is checked against where they lie beside the checkout."""

from __future__ import annotations

import functools
from pathlib import Path

import pyarrow as pa
import pytest

from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.events.annotate import annotated

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces"
needed = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no real profiles at {FOLDER}")


def profiles() -> list[Path]:
    """Every profile that is there, or none."""
    return sorted(p for p in FOLDER.rglob("*") if p.is_file() and p.name != "INDEX.json")


def without_activity() -> list[Path]:
    """The Kineto profiles that have events of the host, but no activity of a device."""
    names = ("hta-cpu-only", "hta-no-rank", "hta-cupti-counters", "cp-a100-zero-kernels")
    names += ("hm-no-kernels", "zoology-a100-launch-no-kernel")
    return [next((FOLDER / "kineto").glob(f"{each}.json*")) for each in names]


def name(path: Path) -> str:
    """What a test calls a file."""
    return path.relative_to(FOLDER).as_posix()


@functools.cache
def events(path: Path) -> pa.Table:
    """The events of a profile, read once a process; skips where lstmprof refuses the file."""
    try:
        return formats.read(path).events
    except ProfileError as refusal:
        pytest.skip(f"refused: {refusal}")


@functools.cache
def annotated_events(path: Path) -> pa.Table:
    """``events`` with what follows from them."""
    return annotated(events(path), captured=False)

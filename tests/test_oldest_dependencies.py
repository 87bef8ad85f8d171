"""With the oldest libraries that pyproject.toml allows, lstmprof prints what it prints today."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ("traces/torch-nn-lstm", "traces/torch-lstmcell-basic", "traces/jax-scan")
#: On a GPU, events and joins appear that the samples of a CPU do not have.
PROFILE = "tests/profiles/kineto-today.pt.trace.json"
COUNT = "select run, kind, count(*) as n, sum(dur_ns) as ns from events group by all order by all"


def oldest() -> list[str]:
    """The pins of the oldest versions, such as ``numpy==1.26``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [line.partition(";")[0].strip() for line in project["dependencies"]]
    assert all(re.fullmatch(r"[a-z0-9-]+>=[0-9.]+", pin) for pin in pins)
    return [pin.replace(">=", "==") for pin in pins]


@functools.cache
def interpreter() -> Path:
    """A Python with the oldest versions, made once per set of pins."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the oldest versions have no wheels for this Python")
    pins = oldest()
    key = hashlib.sha256(" ".join([sys.executable, *pins]).encode()).hexdigest()[:12]
    place = ROOT / "build" / f"oldest-{key}"
    python, stamp = place / "bin" / "python", place / "complete"
    if not stamp.is_file():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*install, *pins], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pip cannot install them: {done.stderr.strip().splitlines()[-1]}")
        stamp.touch()
    return python


def printed(python: Path | str, *arguments: str, cache: Path) -> str:
    """What ``lstmprof`` prints under ``python``."""
    done = subprocess.run(
        [str(python), "-m", "lstmprof", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LSTMPROF_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("diagnose", *SAMPLES[:2]),
        ("breakdown", *SAMPLES, PROFILE),
        ("breakdown", PROFILE, "--table", "launch_gaps", "--table", "launches", "--table", "ops"),
        ("breakdown", SAMPLES[0], "--table", "kernels", "--table", "layers", "--table", "memory"),
        ("check", PROFILE),
        ("query", COUNT, *SAMPLES),
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-1:])[:40],
)
def test_the_oldest_libraries_give_the_same_output(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    then = printed(interpreter(), *arguments, cache=tmp_path / "then")
    assert then == printed(sys.executable, *arguments, cache=tmp_path / "now")


def test_the_oldest_libraries_draw_a_page_and_pictures(tmp_path: Path) -> None:
    page, pictures = tmp_path / "page.html", tmp_path / "pictures"
    printed(interpreter(), "report", *SAMPLES[:2], "--out", str(page), cache=tmp_path / "cache")
    assert "vega" in page.read_text(encoding="utf-8")
    printed(interpreter(), "report", SAMPLES[0], "--png", str(pictures), cache=tmp_path / "cache")
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in pictures.glob("*.png"))
    assert list(pictures.glob("*.png"))

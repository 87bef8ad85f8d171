"""The sdist holds what a clone does, and the wheel that is built of it works by its own files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.interpreters.environments import environment
from lstmprof.runs.directory import cache_folder

pytest.importorskip("hatchling", reason="the build backend hatchling is not installed")

ROOT = Path(__file__).resolve().parents[1]
#: What comes of working in a clone.
MADE = ("__pycache__", ".hypothesis")
SAMPLE, SLOW = "torch-nn-lstm", "torch-lstmcell-basic"


@dataclass(frozen=True)
class Built:
    """Both archives, the sdist unpacked, the wheel installed into a folder of its own."""

    sdist: Path
    wheel: Path
    unpacked: Path
    installed: Path


def _run(*command: str, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """Python with ``path`` in front of what is installed."""
    return subprocess.run(
        [sys.executable, "-P", *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def _build(target: str, source: Path, out: Path) -> Path:
    done = _run("-m", "hatchling", "build", "-t", target, "-d", str(out), cwd=source, path=source)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = out.iterdir()
    return archive


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    sdist = _build("sdist", ROOT, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    wheel = _build("wheel", unpacked, folder / "wheel")
    installed = folder / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    return Built(sdist, wheel, unpacked, installed)


def _files(folder: Path) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not set(MADE) & set(path.parts)
    }


def test_the_sdist_holds_code_tests_docs_and_samples(built: Built) -> None:
    held = {
        path.relative_to(built.unpacked).as_posix()
        for path in built.unpacked.rglob("*")
        if path.is_file()
    }
    for name in ("lstmprof", "analyses", "benchmarks", "docs", "skills", "tests", ".github"):
        assert not _files(ROOT / name) - held, name
    for name in ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile"):
        assert name in held
    assert {"README.md", "mkdocs.yml", "pyproject.toml", "requirements.lock"} <= held
    assert _files(ROOT / "traces" / SAMPLE) <= held
    assert not {name for name in held if set(MADE) & set(Path(name).parts)}
    assert not {name for name in held if name.startswith((".venv", "build/", ".git/"))}


def test_the_tests_of_the_sdist_run_in_it(built: Built) -> None:
    tests = ["tests/docs/test_project_files.py", "tests/docs/test_gate.py"]
    done = _run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests),
        cwd=built.unpacked,
        path=built.unpacked,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_the_package_two_samples_and_pages(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    samples = {name for name in names if name.startswith("lstmprof/samples/")}
    pages = {name for name in names if name.startswith("lstmprof/docs/")}
    assert names - samples - pages == _files(ROOT / "lstmprof")
    assert "lstmprof/docs/agents.md" in pages
    assert {name.removeprefix("lstmprof/") for name in pages} <= _files(ROOT / "docs")
    copied = {f"traces/{name.removeprefix('lstmprof/samples/')}" for name in samples}
    assert copied == _files(ROOT / "traces" / SAMPLE) | _files(ROOT / "traces" / SLOW)
    for name in ("page.html", "page.css", "page.js"):
        assert f"lstmprof/report/page/{name}" in names


@pytest.mark.parametrize(
    ("arguments", "said"), [("--help", "breakdown"), ("list", "torch"), ("--version", "lstmprof")]
)
def test_the_wheel_s_own_files_suffice(
    arguments: str, said: str, built: Built, tmp_path: Path
) -> None:
    done = _run("-m", "lstmprof", arguments, cwd=tmp_path, path=built.installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


def test_the_wheel_draws_a_report(built: Built, tmp_path: Path) -> None:
    where = _run(
        "-c", "import lstmprof; print(lstmprof.__file__)", cwd=tmp_path, path=built.installed
    )
    assert Path(where.stdout.strip()).is_relative_to(built.installed)
    sample = built.unpacked / "traces" / SAMPLE
    done = _run("-m", "lstmprof", "report", str(sample), cwd=tmp_path, path=built.installed)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.html").read_text("utf-8")
    page = built.installed / "lstmprof" / "report" / "page"
    assert (page / "page.css").read_text("utf-8") in text
    assert 'id="timeline-canvas"' in text


def test_the_wheel_and_its_dependencies_alone_answer(built: Built, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [requirement.partition(";")[0].strip() for requirement in project["dependencies"]]
    try:
        python = environment(needed, cache_folder() / "environments").made()
    except CaptureError as fault:
        pytest.skip(str(fault))

    def answer(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), "-P", "-m", "lstmprof", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(built.installed)},
            capture_output=True,
            text=True,
            check=False,
        )

    samples = built.installed / "lstmprof" / "samples"
    before = os.times()
    demo = answer("demo")
    after = os.times()
    assert (demo.returncode, demo.stderr) == (0, "")
    assert after.children_user - before.children_user < 3  # CPU seconds
    assert "a loop runs the cell 20 times per step (baseline: 1 aten::lstm call)" in demo.stdout
    (place,) = re.findall(r"^The two samples are in (.*)\. To look further:$", demo.stdout, re.M)
    assert Path(place) == samples
    alone = answer("diagnose", str(samples / SLOW))
    assert (alone.returncode, alone.stderr) == (0, "")
    assert "torch.nn.LSTM" in alone.stdout

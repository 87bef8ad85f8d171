"""Whatever a profile or a run is called, says of itself or holds: it reaches a terminal as text.

Every text of a run, of a profile and of their paths carries an escape sequence, C1 controls, marks
of direction, and a line that pretends to be lstmprof's own.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report import runs

from lstmprof.base import streams
from lstmprof.base.errors import RunError
from lstmprof.base.names import TABLES
from lstmprof.cli import run as lstmprof
from lstmprof.runs.metadata import decoded

FORGED = "forged: all is well"
STEERS = f"=x\x1b[2J\x1b]0;t\x07\x9b31m\u202e\u2066\u2028\x7f\x85\r\n{FORGED}\n\t"
#: What decides how a run is read: said by another word, it is another run.
DECIDING = {"device", "mode", "precision", "source", "loss", "optimizer", "cell", "framework"}


def with_steering(value: Any, allowed: Callable[[Any], bool], place: str = "") -> Any:
    """``value``, ``STEERS`` at the end of each of its texts that ``allowed`` lets be so."""
    if isinstance(value, dict):
        return {k: with_steering(v, allowed, k) for k, v in value.items()}
    if isinstance(value, list):
        return [with_steering(v, allowed, place) for v in value]
    return value + STEERS if isinstance(value, str) and allowed(place) else value


def damaged(run: Path, allowed: Callable[[Any], bool]) -> None:
    file = run / "run.json"
    content = with_steering(json.loads(file.read_bytes()), allowed)
    file.write_text(json.dumps(content))
    decoded(file.read_bytes(), file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs to be compared and one that says nothing that is known."""
    names = tuple(f"{name}{STEERS}" for name in ("ampere_sgemm", "elementwise", "copy"))
    facts = {
        "notes": [f"a note{STEERS}"],
        "label": STEERS,
        "hardware": {"cpu_model": STEERS},
        "profile_metadata": {STEERS: {STEERS: STEERS}},
        "versions": {f"torch{STEERS}": STEERS, "torch": STEERS},
    }
    for name, kernels in (("fast", 2), ("slow", 9), ("other", 4)):
        walls = runs.walls(10_000 * kernels)
        run = runs.run(
            tmp_path / "runs",
            name,
            implementation=f"{name}{STEERS}",
            kernels=kernels,
            names=names,
            walls_ns=walls,
            facts=facts,
        )
        damaged(run.path, lambda place: place not in DECIDING or place == "x")
        run.path.rename(run.path.with_name(f"{name}{STEERS.replace('/', '')}"))
    (other,) = (tmp_path / "runs").glob("other*")
    for place in sorted(DECIDING - {"loss"}):
        before = (other / "run.json").read_bytes()
        try:
            damaged(other, lambda key, place=place: key == place)
        except RunError:
            (other / "run.json").write_bytes(before)
    return tmp_path / "runs"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0}
    rows = [
        {**event, "cat": cat, "name": f"{name}{STEERS}", "args": {STEERS: STEERS, "device": 0}}
        for cat, name in (
            *(("cpu_op", "aten::mm"), ("kernel", "gemm"), ("user_annotation", "ProfilerStep#1")),
            *((STEERS, "odd"), ("python_function", "a.py(1): f"), ("cuda_runtime", "cudaLaunch")),
        )
    ]
    header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": STEERS}]}
    header |= {"traceName": STEERS, STEERS: STEERS, "distributedInfo": {"backend": STEERS}}
    path = tmp_path / os.fsdecode(b"of\xff" + STEERS.encode()) / f"a{STEERS}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**header, "traceEvents": rows}))
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object, codes: tuple[int, ...]) -> str:
    """What a command prints, all of it without control characters and forged lines."""
    code = lstmprof([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert code in codes, (arguments, printed.err)
    for text in (printed.out, printed.err):
        assert not streams.CONTROL.search(text.replace("\r\n", "\n")), arguments
        # a broken line goes on after four spaces at least, where no line of ours begins
        assert not [line for line in text.splitlines() if re.match("[ ']{0,3}forged", line)]
    if code:
        assert len(printed.err.splitlines()) >= 1
    return printed.out


COMMANDS = [
    ["breakdown", "--format", "table"],
    ["breakdown", "--table", "kernels", "--format", "table"],
    ["diagnose", "--format", "text"],
    ["query", "SELECT * FROM runs", "--format", "json"],
    ["query", f'SELECT name AS "{STEERS}" FROM events', "--format", "table"],
]
MORE = [
    *(["breakdown", "--table", table, "--format", "csv"] for table in TABLES[::2]),
    ["breakdown", "--format", "json"],
    *(["diagnose", "--format", f] for f in ("json", "markdown")),
    *(["query", "SELECT * FROM runs", "--format", f] for f in ("table", "csv")),
    ["query", "SELECT run, name, category FROM events", "--format", "csv"],
    ["recommend", "--plan", "--like"],
]


def test_of_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in [*COMMANDS, *MORE]:
        out = said(capsys, *command, folder, codes=(0, 1, 2))
        if "json" in command:
            assert FORGED in str(json.loads(out))
        if "csv" in command and out:
            for row in csv.reader(io.StringIO(out)):
                assert not [cell for cell in row if cell.startswith(("=", "+", "@", "\t", "\r"))]


def test_of_a_profile(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / f"cache{STEERS}"))
    for command in COMMANDS:
        said(capsys, *command, profile, codes=(0, 1, 2))
    out = tmp_path / f"out{STEERS}"
    assert "events)" in said(capsys, "ingest", profile, "--out", out, codes=(0,))
    said(capsys, "ingest", profile, "--out", out, codes=(1,))
    assert "wrote" in said(capsys, "report", out, "-o", out / f"{STEERS}.html", codes=(0,))
    assert "wrote" in said(capsys, "report", out, "--json", out / f"j{STEERS}", codes=(0,))


def test_of_mistakes(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / f"none{STEERS}"
    profile.write_text(f'{{"traceEvents": {STEERS}')
    for arguments in (
        *(
            [verb, path]
            for verb in ("breakdown", "diagnose", "ingest")
            for path in (nowhere, profile)
        ),
        *(["query", "SELECT 1", nowhere], ["query", f"SELECT '{STEERS}' FROM x{STEERS}", tmp_path]),
        *([STEERS], ["list", STEERS], ["breakdown", f"--{STEERS}"], ["report", nowhere]),
        *(
            ["capture", "--impl", STEERS],
            ["capture", "--impl", "torch-nn-lstm", "--python", STEERS],
        ),
        *(["capture", "--impl", f"{nowhere}.py:build"], ["run", nowhere]),
        *(["breakdown", profile, "--step-range", f"({STEERS}"], ["recommend", "--like", nowhere]),
    ):
        said(capsys, *arguments, codes=(1, 2))


def test_the_page_is_of_text(folder: Path, tmp_path: Path, capsys: Any) -> None:
    for file in folder.glob("*/run.json"):
        text = file.read_text().replace(FORGED, "</script><img src=x onerror=alert(1)>{{7*7}}")
        file.write_text(text)
    page = tmp_path / "page.html"
    said(capsys, "report", folder, "-o", page, "--title", f"</title><script>{STEERS}", codes=(0,))
    html = page.read_text()
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html
    assert "<script>=x" not in html
    assert not streams.CONTROL.search(html.split("<script")[0])

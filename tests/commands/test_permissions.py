"""What a user may not read hides nothing else. Under root, the tests drop root's rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands.written_runs import step, write_run
from kineto_documents import document, op

#: Root without the rights to read and change what belongs to others.
DROPPED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")


def ran(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run lstmprof as a user for whom the permissions of files count."""
    prefix = DROPPED if os.geteuid() == 0 else ()
    if prefix and not shutil.which(prefix[0]):
        pytest.skip("setpriv is not installed")
    return subprocess.run(
        [*prefix, sys.executable, "-m", "lstmprof", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "LSTMPROF_CACHE": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two runs and a locked folder."""
    for name in ("one", "other"):
        write_run(tmp_path, f"runs/{name}", step(("aten::mm", 9)), 10)
    (tmp_path / "runs/locked").mkdir(mode=0)
    return tmp_path


@pytest.mark.parametrize("command", ["breakdown", "diagnose", "report"])
def test_a_locked_folder_hides_no_run_beside_it(command: str, folder: Path) -> None:
    done = ran(folder, command, "runs")
    assert done.returncode == 1
    assert "left out: runs/locked: permission denied; check its permissions" in done.stderr
    text = (folder / "report.html").read_text() if command == "report" else done.stdout
    assert "one" in text
    assert "other" in text


def test_a_locked_folder_hides_no_profile_beside_it(tmp_path: Path) -> None:
    (tmp_path / "profiles/locked").mkdir(parents=True)
    (tmp_path / "profiles/locked").chmod(0)
    for name in ("good", "secret"):
        (tmp_path / f"profiles/{name}.json").write_bytes(document(op(1)))
    (tmp_path / "profiles/secret.json").chmod(0)
    done = ran(tmp_path, "ingest", "profiles", "--out", "runs")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["good"]
    for name in ("locked", "secret.json"):
        assert f"profiles/{name}: permission denied; check its permissions" in done.stderr


def test_a_locked_folder_alone_is_one_line(folder: Path) -> None:
    done = ran(folder, "breakdown", "runs/locked")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "locked" in line
    assert "ermission denied" in line


def test_a_table_that_may_not_be_read_is_not_called_damaged(folder: Path) -> None:
    (folder / "runs/one/events.parquet").chmod(0)
    done = ran(folder, "breakdown", "runs/one")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "runs/one/events.parquet: permission denied; check its permissions\n"
    )


def test_a_cache_of_another_user_is_not_used(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    (folder / "cache").mkdir()
    os.chown(folder / "cache", 65534, 65534)
    (folder / "profile.json").write_bytes(document(op(1)))
    done = ran(folder, "breakdown", "profile.json")
    assert done.returncode == 0
    assert "does not use this cache folder (it belongs to another user)" in done.stderr
    assert not list((folder / "cache").iterdir())


def test_a_cache_that_every_user_can_write_is_not_used(folder: Path) -> None:
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o777)
    (folder / "profile.json").write_bytes(document(op(1)))
    done = ran(folder, "breakdown", "profile.json")
    assert done.returncode == 0
    assert "does not use this cache folder (every user can write to it)" in done.stderr
    assert not list((folder / "cache").iterdir())


@pytest.mark.parametrize("umask", [0o077, 0o022])
def test_what_is_written_has_the_mode_of_the_umask(umask: int, folder: Path) -> None:
    before = os.umask(umask)
    try:
        for command in (["report", "runs/one"], ["export", "runs/one", "--speedscope", "one.json"]):
            assert ran(folder, *command).returncode == 0
    finally:
        os.umask(before)
    for name in ("report.html", "one.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o666 & ~umask

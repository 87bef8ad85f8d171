"""What is swept is what no process can need any more."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lstmprof.base import scratch
from lstmprof.base.errors import RunError

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

MAKE = "from lstmprof.base import scratch; print(scratch.own_prefix({!r}), end='')"


def of_a_dead_process(prefix: str) -> str:
    command = [sys.executable, "-c", MAKE.format(prefix)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout + "x"


def other(name: str, part: int) -> str:
    """``name`` with one digit of its ``part``, counted from the end, changed."""
    parts = name.split("-")
    last = parts[part][-1]
    parts[part] = parts[part][:-1] + ("1" if last == "0" else "0")
    return "-".join(parts)


def test_the_work_of_a_dead_process_is_left_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    dead = tmp_path / of_a_dead_process("p-")
    for path in (dead, tmp_path / f"{scratch.own_prefix('p-')}x", tmp_path / "p-else"):
        path.mkdir()
    assert scratch.left_by_ended_processes(tmp_path, "p-") == [dead]


def test_a_number_that_another_process_has_by_now_is_told_by_its_start(tmp_path: Path) -> None:
    own = f"{scratch.own_prefix('p-')}x"
    (tmp_path / own).mkdir()
    (tmp_path / other(own, -2)).mkdir()
    assert scratch.left_by_ended_processes(tmp_path, "p-") == [tmp_path / other(own, -2)]


@pytest.mark.parametrize("part", [-4, -5], ids=["namespace", "boot"])
def test_another_boot_or_namespace_may_have_living_processes(part: int, tmp_path: Path) -> None:
    (tmp_path / other(of_a_dead_process("p-"), part)).mkdir()
    assert scratch.left_by_ended_processes(tmp_path, "p-") == []


@pytest.mark.parametrize("number", ["²", "9" * 40, "", "-1", "1x"])
def test_what_is_no_number_is_no_process(number: str, tmp_path: Path) -> None:
    place = of_a_dead_process("p-").rsplit("-", 3)[0]
    for name in (f"{place}-{number}-1-x", f"{place}-1-{number}-x", f"{place}-{number}"):
        (tmp_path / name).mkdir(exist_ok=True)
    assert scratch.left_by_ended_processes(tmp_path, "p-") == []


def test_a_number_alone_is_not_swept(tmp_path: Path) -> None:
    number = of_a_dead_process("p-").split("-")[-3]
    (tmp_path / f"p-{os.uname().nodename}-{number}-x").mkdir()
    assert scratch.left_by_ended_processes(tmp_path, "p-") == []


def test_nothing_is_swept_where_proc_shows_the_processes_of_another_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / of_a_dead_process("p-")).mkdir()
    monkeypatch.setattr(os, "getpid", lambda: 1_234_567)
    assert scratch.left_by_ended_processes(tmp_path, "p-") == []


def test_two_namespaces_that_share_a_folder_do_not_sweep_each_other(tmp_path: Path) -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not make a namespace")
    own, dead = f"{scratch.own_prefix('p-')}x", of_a_dead_process("p-")
    for name in (own, dead):
        (tmp_path / name).mkdir()
    code = (
        "from pathlib import Path; from lstmprof.base import scratch;"
        f"folder = Path({str(tmp_path)!r}); (folder / (scratch.own_prefix('p-') + 'x')).mkdir();"
        "print(scratch.left_by_ended_processes(folder, 'p-'))"
    )
    command = [*apart, sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
    assert scratch.left_by_ended_processes(tmp_path, "p-") == [
        tmp_path / dead
    ]  # and not the other one's


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    scratch.write_file(path, b"one")

    def write_half() -> None:
        with scratch.writing(path) as out:
            out.write(b"another")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_half()
    assert [p.read_bytes() for p in path.parent.iterdir()] == [b"one"]


def test_only_a_plain_file_is_written_over(tmp_path: Path) -> None:
    file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    file.write_text("")
    link.symlink_to(file)
    os.mkfifo(pipe)
    scratch.check_file(file, force=True, next_step="")
    with pytest.raises(RunError, match="already exists; give another"):
        scratch.check_file(file, force=False, next_step="give another")
    for force in (False, True):
        with pytest.raises(RunError, match=f"is a link to {file}"):
            scratch.check_file(link, force=force, next_step="")
        with pytest.raises(RunError, match="not a regular file"):
            scratch.check_file(pipe, force=force, next_step="")


def test_a_signal_as_soon_as_a_folder_exists_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Path.mkdir

    def interrupted(path: Path, *mode: int) -> None:
        made(path, *mode)
        assert path.parent == tmp_path
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch.temporary_folder():
        pytest.fail("the folder was used")
    assert list(tmp_path.iterdir()) == []

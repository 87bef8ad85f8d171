"""What a machine does to a command: one line that names file, fault and next step, and no half."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import in_process
import pytest

from lstmprof.base.errors import LstmprofError
from lstmprof.formats import raw_file
from lstmprof.runs.run import runs_in

LSTMPROF = [sys.executable, "-m", "lstmprof"]


def profile(path: Path, events: int = 40, *, names: int = 7) -> Path:
    """A profile of CPU ops; of many ``names`` it packs badly."""
    drawn = random.Random(0)
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{drawn.randrange(names):x}", "pid": 1, "tid": 1}
        | {"ts": 10.0 * number, "dur": 5.0}
        for number in range(events)
    ]
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows}).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def lstmprof(
    *arguments: object, before: str = "", cwd: Path | None = None, **environment: object
) -> subprocess.CompletedProcess[str]:
    """The command, run by a shell that says ``before`` first."""
    command = ["sh", "-c", f'{before or ":"}; exec "$@"', "sh", *LSTMPROF, *map(str, arguments)]
    own = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", cwd=cwd, env=own, check=False
    )


def one_line(ran: subprocess.CompletedProcess[str]) -> str:
    """What it says of the fault."""
    assert ran.returncode in (1, 2), ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("lstmprof: error: ")
    assert "; " in line
    return line


def left(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


@contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of so much room."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_is_one_line_and_the_run_before_is_whole(tmp_path: Path) -> None:
    small, large = profile(tmp_path / "s.json"), profile(tmp_path / "l.json", 40_000, names=2**60)
    with small_disk(tmp_path / "disk", 300) as disk:
        to = ("--out", disk / "out", "--name", "a")
        assert in_process.lstmprof("ingest", small, *to).returncode == 0
        before = left(disk)
        said = one_line(in_process.lstmprof("ingest", large, *to, "--force"))
        assert f"{disk}/out/a: cannot be written" in said
        assert "No space left on device" in said
        assert left(disk) == before
        assert [len(run.events()) for run in runs_in(disk / "out")] == [40]
        ran = lstmprof("breakdown", large, LSTMPROF_CACHE=disk / "cache")  # which warns
        assert (ran.returncode, len(ran.stderr.splitlines())) == (0, 1), ran.stderr
        assert f"{disk}/cache: " in ran.stderr
        assert left(disk) == before
        (disk / "filling").write_bytes(b"x" * 150_000)
        page = ("report", disk / "out", "-o", disk / "r.html")
        assert f"{disk}/r.html: No space left on device" in one_line(in_process.lstmprof(*page))
        assert left(disk) == ["filling", *before]


def test_a_full_folder_for_temporary_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "trace.gz"
    packed.write_bytes(gzip.compress(random.Random(0).randbytes(2**21), 1))
    with small_disk(tmp_path / "disk", 300) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        with pytest.raises(LstmprofError, match=r"cannot hold temporary files \(No space") as fault:
            raw_file.load(packed)
        assert str(disk) in fault.value.fault
        assert "TMPDIR" in fault.value.next_step
        assert left(disk) == []


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    file = profile(tmp_path / "a.json", 20_000, names=2**60)
    ran = lstmprof("ingest", file, "--out", tmp_path / "out", before="ulimit -f 64")
    assert "raise the file size limit (ulimit -f)" in one_line(ran)
    assert left(tmp_path / "out") == []


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    file = profile(tmp_path / "a.json")
    before = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir ../gone"
    for arguments in (["breakdown", file], ["ingest", file]):
        ran = lstmprof(*arguments, before=before, LSTMPROF_CACHE="none")
        assert ran.returncode == 0 or one_line(ran)


def test_names_that_no_file_can_have_are_one_line(tmp_path: Path) -> None:
    file, long = profile(tmp_path / "a.json"), "x" * 300
    for arguments in (
        *(["ingest", file, "--name", long], ["ingest", file, "--out", long], ["breakdown", long]),
        *(["report", file, "-o", f"{long}.html"], ["run", "no.py", "--name", long]),
    ):
        one_line(in_process.lstmprof(*arguments, cwd=tmp_path))
    assert left(tmp_path) == ["a.json"]


def test_names_of_no_encoding_are_read_and_written_or_refused_by_one_line(tmp_path: Path) -> None:
    odd = os.fsdecode(b"b\xff")
    file = profile(tmp_path / f"{odd}.json")
    assert lstmprof("ingest", file, "--out", tmp_path / "out").returncode == 0
    assert lstmprof("breakdown", file, LSTMPROF_CACHE=tmp_path / "cache").returncode == 0
    said = one_line(lstmprof("ingest", file, "--out", tmp_path / odd))
    assert "b\ufffd: cannot be written to (its name is not UTF-8)" in said
    assert not (tmp_path / odd).exists()


@pytest.mark.parametrize("kind", ["device", "link to nothing"])
def test_no_output_goes_over_what_is_no_plain_file(kind: str, tmp_path: Path) -> None:
    file, out = profile(tmp_path / "a.json"), tmp_path / "r.html"
    if kind == "device":
        if subprocess.run(
            ["mknod", out, "c", "1", "3"], capture_output=True, check=False
        ).returncode:
            pytest.skip("may not make a device")
    else:
        out.symlink_to(tmp_path / "none")
    before = out.lstat()
    one_line(in_process.lstmprof("report", file, "-o", out, "--force"))
    one_line(in_process.lstmprof("ingest", file, "--out", tmp_path, "--name", "r.html", "--force"))
    assert os.path.samestat(before, out.lstat())
    assert not (tmp_path / "none").exists()


def test_many_writers_of_one_run_leave_one_that_is_whole(tmp_path: Path) -> None:
    file, out = profile(tmp_path / "a.json"), tmp_path / "out"
    command = [*LSTMPROF, "ingest", str(file), "--out", str(out)]
    for more, welcome in ((["--force"], 2), ([], 0)):
        started = [
            subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        ended = [process.communicate()[1].decode() for process in started]
        assert [p.returncode for p in started].count(0) == welcome, ended
        assert "Traceback" not in "".join(ended)
        assert [len(run.events()) for run in runs_in(out)] == [40]
        assert left(out) == ["a/events.parquet", "a/run.json"]


def test_the_clock_says_nothing_of_what_is_left(tmp_path: Path) -> None:
    file, out = profile(tmp_path / "a.json"), tmp_path / "out"
    code = (
        "import os, pathlib; from lstmprof.base import scratch;"
        f"place = pathlib.Path({str(out)!r}) / (scratch.own_prefix('.partial-') + 'x');"
        "place.mkdir(parents=True); os.utime(place, (2**33, 2**33))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert lstmprof("ingest", file, "--out", out).returncode == 0
    assert [p.name for p in out.iterdir()] == ["a"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_handed_on_to_a_script(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(os.getpid()))\n"
        f"pathlib.Path({str(tmp_path)!r}, 'begun').touch()\n"
        # a signal just before one long sleep would not end it
        "while True:\n"
        "    time.sleep(0.01)\n"
    )
    # a shell ignores some of them in its background
    heeded = "import os, signal, sys; [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)];"
    heeded += "os.execv(sys.executable, sys.argv[1:])"
    run = [*LSTMPROF, "run", str(script), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", heeded, *run],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(how)
    said = process.communicate(timeout=300)[1].decode()
    assert process.returncode == -how, said
    assert ("did not write" in said) == (how == signal.SIGINT)  # the others end Python at once
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)

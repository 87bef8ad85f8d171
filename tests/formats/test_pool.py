"""Processes of one's own: fresh, told from the user's script, and gone when they should be."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lstmprof.base.errors import ForeignFileError
from lstmprof.base.pool import KilledError, Pool, is_worker

#: Against a hang alone.
PATIENCE_S = 60.0


def told(word: str) -> tuple[str, int, bool]:
    print(word, flush=True)  # a worker that is done with is killed
    return word, os.getpid(), is_worker()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def imports_pandas() -> bool:
    pa.array(np.arange(3))  # pyarrow looks for pandas with the first array that it makes
    return "pandas.core" in sys.modules


def threshold() -> int:
    return gc.get_threshold()[0]


def refused() -> None:
    raise ForeignFileError("a.json", "is no profile", "give one")


def unsendable() -> object:
    return lambda: None


def test_work_is_done_elsewhere_and_what_it_prints_is_no_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Pool(2) as pool:
        found = [pool.submit(told, word).result() for word in "abc"]
    assert [(word, there) for word, _, there in found] == [("a", True), ("b", True), ("c", True)]
    assert os.getpid() not in {pid for _, pid, _ in found}
    written = capfd.readouterr()
    assert (written.out, sorted(written.err.split())) == ("", ["a", "b", "c"])
    assert not is_worker()


def test_a_worker_imports_no_pandas() -> None:
    with Pool(1) as pool:
        assert pool.submit(imports_pandas).result() is False


def test_a_worker_looks_for_garbage_more_seldom_than_python_does_by_itself() -> None:
    by_itself = [sys.executable, "-c", "import gc; print(gc.get_threshold()[0])"]
    with Pool(1) as pool:
        mine = pool.submit(threshold).result()
    assert mine > 100 * int(subprocess.run(by_itself, capture_output=True, check=True).stdout)


def test_an_error_comes_back_and_an_answer_that_cannot_costs_no_worker() -> None:
    with Pool(1) as pool:
        with pytest.raises(ForeignFileError, match="is no profile"):
            pool.submit(refused).result()
        with pytest.raises(Exception, match="pickle"):
            pool.submit(unsendable).result()
        assert pool.submit(told, "x").result()[0] == "x"


def test_who_is_killed_costs_its_own_work_and_is_replaced() -> None:
    with Pool(1) as pool:
        lost, after = pool.submit(killed), pool.submit(told, "after")
        with pytest.raises(KilledError):
            lost.result()
        assert after.result()[0] == "after"


def test_what_is_under_way_ends_with_the_block_that_an_error_leaves() -> None:
    def left() -> None:
        with Pool(1) as pool:
            pids.append(pool.submit(told, "x").result()[1])
            pool.submit(time.sleep, 3600)
            raise RuntimeError

    pids: list[int] = []
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        left()
    assert time.monotonic() - began < 600  # not for what the worker still does
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom lstmprof.base.pool import Pool\nprint('once', flush=True)\n"
        "with Pool(2) as pool:\n    pool.submit(os.getpid).result()\n"
    )
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert (done.stdout, done.stderr) == ("once\n", "")


def test_they_end_with_a_process_that_is_killed() -> None:
    code = (
        "import os, time\nfrom lstmprof.base.pool import Pool\n"
        "pool = Pool(1)\nprint(pool.submit(os.getpid).result(), flush=True)\n"
        "pool.submit(time.sleep, 3600)\nos.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL  # and no worker holds the pipes open any more
    assert done.stderr == ""


def test_where_a_worker_cannot_be_started_those_that_were_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, workers = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def started(*given: Any, **how: Any) -> subprocess.Popen[bytes]:
        if workers:
            raise OSError("Resource temporarily unavailable")
        workers.append(start(*given, **how))
        return workers[0]

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(OSError, match="unavailable"):
        Pool(2)
    try:
        assert workers[0].returncode is not None
    finally:
        workers[0].kill()
        workers[0].wait()


def test_a_pool_that_is_broken_off_begins_no_call_that_nobody_would_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(1)
    first, second = pool.submit(time.sleep, 3600), pool.submit(told, "b")
    terminate = subprocess.Popen.terminate
    while not first.running():
        time.sleep(0.01)

    def and_its_thread_goes_on(worker: subprocess.Popen[bytes]) -> None:
        terminate(worker)
        with pytest.raises(KilledError):
            first.result(PATIENCE_S)
        while not (second.running() or second.done()):
            time.sleep(0.01)

    monkeypatch.setattr(subprocess.Popen, "terminate", and_its_thread_goes_on)
    ending = threading.Thread(target=pool.shutdown, args=(False,), daemon=True)
    ending.start()
    ending.join(PATIENCE_S)
    assert not ending.is_alive()
    assert second.cancelled()

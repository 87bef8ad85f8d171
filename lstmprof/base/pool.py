"""Worker processes with fresh interpreters, as a ``concurrent.futures.Executor``.

A worker reads pickled calls from standard input, and writes pickled results to standard output.
``multiprocessing`` would run the user's script again in each worker. Workers of loky would survive
a killed parent process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import IO, Any, ParamSpec, TypeVar

from lstmprof.base import process

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_Worker = subprocess.Popen[bytes]

_SERVE = "from lstmprof.base.pool import serve; serve()"
_MARK = "LSTMPROF_WORKER"
_LENGTH_BYTES = 8
#: Environment of workers: one OpenBLAS thread, because waiting threads use CPU time.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class KilledError(Exception):
    """A worker process ended without a result."""


class Pool(Executor):
    """A pool of worker processes that replaces killed workers."""

    def __init__(self, count: int) -> None:
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._started: list[_Worker] = []
        self._is_open = True
        self._threads = ThreadPoolExecutor(count)
        try:
            for _ in range(count):
                self._idle.put(self._start())
        except OSError:
            self.shutdown(wait=False)
            raise

    def submit(
        self, call: Callable[_Given, _Made], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Future[_Made]:
        return self._threads.submit(self._answer, pickle.dumps((call, args, kwargs), protocol=5))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=error is None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the workers at once; ``wait`` for current tasks first (all, if none is cancelled)."""
        # Shut the threads down first: a task that starts without workers would wait for ever.
        self._threads.shutdown(wait, cancel_futures=cancel_futures or not wait)
        self._is_open = False
        for worker in self._started:
            (worker.kill if wait else worker.terminate)()
        self._threads.shutdown()
        for worker in self._started:
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):  # the worker ended before it had read its input
                    _open(pipe).close()
            worker.wait()

    def _start(self) -> _Worker:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        with _interrupts_blocked():  # the worker inherits the block, so Ctrl-C never reaches it
            worker = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | _ENVIRONMENT | {"PYTHONPATH": path, _MARK: str(os.getpid())},
            )
        self._started.append(worker)
        return worker

    def _answer(self, request: bytes) -> Any:
        worker = self._idle.get()
        try:
            _send(_open(worker.stdin), request)
            is_well, answer = pickle.loads(_received(_open(worker.stdout)))
        except (OSError, EOFError) as fault:
            worker.kill()
            if self._is_open:
                self._idle.put(self._start())
            raise KilledError from fault
        self._idle.put(worker)
        if not is_well:
            raise answer
        return answer


def is_worker() -> bool:
    return _MARK in os.environ or multiprocessing.parent_process() is not None


def serve() -> None:
    """Run tasks from standard input until standard input closes."""
    signal.signal(signal.SIGTERM, _end)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep printed text out of the answer
    process.be_quick()
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        try:
            call, args, kwargs = pickle.loads(request)
            answer = pickle.dumps((True, call(*args, **kwargs)), protocol=5)
        except Exception as error:  # the calling process raises it
            answer = _failure(error)
        _send(answers, answer)


def _failure(error: Exception) -> bytes:
    """Pickle an error with its traceback as text, because a traceback cannot be pickled."""
    error.add_note("In the worker process: " + "".join(traceback.format_exception(error)))
    try:
        return pickle.dumps((False, error), protocol=5)
    except Exception:  # an object in the error cannot be pickled
        described = RuntimeError(f"{type(error).__name__}: {error}")
        described.add_note(error.__notes__[-1])
        return pickle.dumps((False, described), protocol=5)


def _read(requests: SimpleQueue[bytes]) -> None:
    # Do not buffer: Python aborts at exit if this thread holds a buffer's lock.
    pipe = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    with contextlib.suppress(EOFError):
        while True:
            requests.put(_received(pipe))
    os.kill(os.getpid(), signal.SIGTERM)  # the calling process has ended


def _end(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the clean-up
    raise SystemExit(128 + number)


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(len(content).to_bytes(_LENGTH_BYTES, "little") + content)
    pipe.flush()


def _received(pipe: IO[bytes]) -> bytes:
    length = int.from_bytes(_read_exactly(pipe, _LENGTH_BYTES), "little")
    return _read_exactly(pipe, length)


def _read_exactly(pipe: IO[bytes], length: int) -> bytes:
    parts = []
    while length:
        part = pipe.read(length)
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("a worker without pipes")
    return pipe


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block."""
    if sys.platform == "win32":
        yield
        return
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)

"""Processes that read pieces of a Kineto trace, each on a core of its own.

A worker is a fresh interpreter that runs ``serve``: a request is a line of JSON (and the piece's
text after it, where it lies in no plain file), the answer another line. It ends with its input, so
none outlives the process that started it, however that ends. ``multiprocessing`` is not used here:
it would run a user's script again in each worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from lstmprof.errors import ProfileError
from lstmprof.formats.kineto import pieces
from lstmprof.formats.kineto.pieces import Piece

_SERVE = "from lstmprof.formats.kineto.workers import serve; serve()"
_AHEAD = 2  # pieces that wait, for each worker


@dataclass(frozen=True)
class Text:
    """The text of a piece; ``file`` holds it from byte ``start`` on, if it is a plain one."""

    content: bytes
    file: Path | None = None
    start: int = 0


class Workers:
    """``count`` processes that read pieces of the trace at ``label``.

    Raises:
        OSError: they cannot be started.
    """

    def __init__(self, label: Path | str, count: int) -> None:
        self._label = label
        self._stack = ExitStack()
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._count = count
        try:
            for _ in range(count):
                self._idle.put(self._started())
        except OSError:
            self._stack.close()
            raise
        self._threads = self._stack.enter_context(ThreadPoolExecutor(count))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def _started(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        worker = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._stack.callback(_end, worker)
        return worker

    def read(self, texts: Iterable[Text], spool: Path) -> Iterator[tuple[Text, Piece | None]]:
        """Each piece as ``pieces.read`` reads it, in order, its columns in ``spool``.

        Raises:
            ProfileError: a worker was killed, or there is no room.
        """
        asked: list[tuple[Text, Future[Piece | None]]] = []
        for number, text in enumerate(texts):
            spooled = spool / f"piece-{number}"
            asked.append((text, self._threads.submit(self._answer, text, spooled)))
            if len(asked) > _AHEAD * self._count:
                text, answer = asked.pop(0)
                yield text, answer.result()
        for text, answer in asked:
            yield text, answer.result()

    def _answer(self, text: Text, spooled: Path) -> Piece | None:
        worker = self._idle.get()
        try:
            said = _asked(worker, text, spooled)
        finally:
            self._idle.put(worker)
        if said is None:
            fault = "a process that read it was killed, most likely for want of memory"
            raise ProfileError(self._label, fault, "profile fewer steps")
        if "fault" in said:
            raise ProfileError(spooled.parent, said["fault"], said["next_step"])
        return pieces.of_json(said["piece"], spooled)


def _asked(worker: subprocess.Popen[bytes], text: Text, spooled: Path) -> dict[str, Any] | None:
    """The answer of ``worker``, None where it has ended."""
    request = {
        "spooled": str(spooled),
        "file": text.file and str(text.file),
        "start": text.start,
        "length": len(text.content),
    }
    if worker.stdin is None or worker.stdout is None:
        raise ValueError("a worker without pipes")
    try:
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.write(text.content if text.file is None else b"")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except OSError:
        return None
    said: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
    return said


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.communicate()


def serve() -> None:
    """Answer the requests on the standard input until it ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        answers.write(json.dumps(_served(json.loads(line), requests)).encode() + b"\n")
        answers.flush()


def _served(request: dict[str, Any], requests: BinaryIO) -> dict[str, Any]:
    spooled, length = Path(request["spooled"]), request["length"]
    if request["file"] is None:
        text = requests.read(length)
    else:
        with Path(request["file"]).open("rb") as file:
            file.seek(request["start"])
            text = file.read(length)
    try:
        return {"piece": pieces.as_json(pieces.read("piece", text, spooled))}
    except ProfileError as error:
        return {"fault": error.fault, "next_step": error.next_step}

"""Finished rounds of incomplete runs, which an interrupted capture leaves behind.

::

    <out>/.rounds/<run>/<n>/    kept.json  result.json  profile/     round n, from 0, of <run>

A round appears whole or not at all, because the worker's folder is renamed to this place. The next
capture of the same request reuses the rounds if lstmprof's version and the machine are the same.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstmprof.base.errors import LstmprofError, RunError
from lstmprof.base.package import __version__
from lstmprof.capture.harness.supervisor import WORKERS_OWN, result_in
from lstmprof.capture.request import CaptureRequest, CaptureResult
from lstmprof.capture.worker.machine import host
from lstmprof.events.schema import SCHEMA_VERSION

ROUNDS, KEPT_FILE = ".rounds", "kept.json"

#: Conditions under which a round was captured: name -> value. A round is reused only if all
#: conditions are the same now.
Making = dict[str, Any]
#: Why rounds cannot be reused, by the name of the condition that differs.
_CHANGES = {
    "request": "the options have changed",
    "rounds": "the number of rounds has changed",
    "lstmprof": "the version of lstmprof has changed",
    "machine": "these rounds ran on another machine",
}


def making(request: CaptureRequest, rounds: int) -> Making:
    """Return the conditions under which a round of ``request`` would be captured now.

    ``rounds`` is the number of rounds of the run.
    """
    hardware = host.hardware()
    return {
        "request": dataclasses.asdict(request),
        "rounds": rounds,
        "lstmprof": [__version__, SCHEMA_VERSION],
        "machine": [socket.gethostname(), hardware["cpu_model"], hardware["cores"]],
    }


class KeptRounds:
    """The finished rounds of the run ``name`` in the folder ``out``."""

    def __init__(self, out: Path, name: str) -> None:
        self.folder = out / ROUNDS / name

    def __len__(self) -> int:
        return len(self._folders())

    def _folders(self) -> list[Path]:
        return [path.parent for path in self.folder.glob(f"*/{KEPT_FILE}")]

    def change(self, makings: list[Making]) -> str | None:
        """Return why the rounds cannot be reused, or None if they can be reused.

        ``makings`` has the conditions under which each round would be captured now.
        """
        for folder in self._folders():
            try:
                number = int(folder.name)
                making = json.loads(json.dumps(makings[number]))
                then = json.loads((folder / KEPT_FILE).read_text(encoding="utf-8"))["making"]
                result_in(folder)
            except (OSError, ValueError, LookupError, TypeError, LstmprofError):
                return "these rounds are damaged, or from another lstmprof version"
            for name, reason in _CHANGES.items():
                if then.get(name) != making[name]:
                    return reason
        return None

    def result(self, number: int) -> CaptureResult | None:
        """Return the result of round ``number``, or None if it does not exist."""
        folder = self.folder / str(number)
        if not (folder / KEPT_FILE).exists():
            return None
        try:
            pid = json.loads((folder / KEPT_FILE).read_text(encoding="utf-8"))["pid"]
            return dataclasses.replace(result_in(folder), pid=pid)
        except (OSError, ValueError, KeyError) as fault:
            raise RunError(f"{folder}: cannot be read ({fault})", "repeat the capture") from fault

    def keep(self, number: int, scratch: Path, result: CaptureResult, made: Making) -> None:
        """Keep ``scratch``, the worker's folder, as round ``number``.

        ``made`` are the conditions under which the round was captured.
        """
        content = {"making": made, "pid": result.pid}
        try:
            for own in WORKERS_OWN:
                shutil.rmtree(scratch / own, ignore_errors=True)
            (scratch / KEPT_FILE).write_text(json.dumps(content), encoding="utf-8")
            self.folder.mkdir(parents=True, exist_ok=True)
            scratch.rename(self.folder / str(number))
        except OSError as fault:
            raise RunError(
                f"{self.folder / str(number)}: cannot be stored ({fault.strerror})",
                "check whether another capture writes the same run, or give another --out",
            ) from fault

    def discard(self) -> None:
        """Remove the rounds of this run, and the folder ``.rounds`` if it is then empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

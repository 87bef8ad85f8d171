"""Finished rounds that an interrupted capture leaves behind, for the next capture to reuse.

::

    <out>/.rounds/<run>/<n>/    kept.json  result.json  profile/     round n, from 0, of <run>
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

#: Options, version and machine of a round; a kept round is reused only if all are unchanged.
Making = dict[str, Any]
#: Key of ``Making`` -> why a kept round cannot be reused if the key's value has changed.
_CHANGES = {
    "request": "the options have changed",
    "rounds": "the number of rounds has changed",
    "lstmprof": "the version of lstmprof has changed",
    "machine": "these rounds ran on another machine",
}


def making(request: CaptureRequest, rounds: int) -> Making:
    """Return a round's options, version and machine, which a kept round must match."""
    hardware = host.hardware()
    return {
        "request": dataclasses.asdict(request),
        "rounds": rounds,
        "lstmprof": [__version__, SCHEMA_VERSION],
        "machine": [socket.gethostname(), hardware["cpu_model"], hardware["cores"]],
    }


class KeptRounds:
    def __init__(self, out: Path, name: str) -> None:
        self.folder = out / ROUNDS / name

    def __len__(self) -> int:
        return len(self._folders())

    def _folders(self) -> list[Path]:
        return [path.parent for path in self.folder.glob(f"*/{KEPT_FILE}")]

    def change(self, makings: list[Making]) -> str | None:
        """Return the reason why the kept rounds are unusable (None: usable)."""
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
        folder = self.folder / str(number)
        if not (folder / KEPT_FILE).exists():
            return None
        try:
            pid = json.loads((folder / KEPT_FILE).read_text(encoding="utf-8"))["pid"]
            return dataclasses.replace(result_in(folder), pid=pid)
        except (OSError, ValueError, KeyError) as fault:
            raise RunError(f"{folder}: cannot be read ({fault})", "repeat the capture") from fault

    def keep(self, number: int, scratch: Path, result: CaptureResult, made: Making) -> None:
        """Move the worker's folder to the kept rounds."""
        content = {"making": made, "pid": result.pid}
        try:
            for own in WORKERS_OWN:
                shutil.rmtree(scratch / own, ignore_errors=True)
            (scratch / KEPT_FILE).write_text(json.dumps(content), encoding="utf-8")
            self.folder.mkdir(parents=True, exist_ok=True)
            # rename the complete folder, so that a killed capture leaves no half-written round
            scratch.rename(self.folder / str(number))
        except OSError as fault:
            raise RunError(
                f"{self.folder / str(number)}: cannot be stored ({fault.strerror})",
                "stop other captures of the same run, or give another folder with --out",
            ) from fault

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # rounds of other runs are there
            self.folder.parent.rmdir()

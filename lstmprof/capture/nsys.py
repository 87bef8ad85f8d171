"""Record a process with Nsight Systems: start it, control the recording by NVTX, export the report.

The recording begins and ends with the NVTX range ``profile``. Killing nsys does not end the process
that nsys started, because this process has its own session; a ``Lifeline`` ends it. The nsys of
some distributions (Debian) leaves a recording without a report; then ``QdstrmImporter`` is called
directly. Source: docs.nvidia.com/nsight-systems/UserGuide, "CLI Profile Command Switch Options".
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import RESULT
from lstmprof.capture.worker.profilers import NSYS_RANGE
from lstmprof.capture.worker.profiling import DOMAIN, compressed

REPORT = "report"
#: The SQLite export of the report.
DATABASE = "steps.sqlite"
_IMPORTER = "QdstrmImporter"
#: Folders that may contain the importer, relative to the folder of nsys.
_IMPORTER_FOLDERS = (
    *("../host-linux-x64", "../../host-linux-x64"),
    *("../lib/nsight-systems/host-linux-x64", "../../../nsight-systems/host-linux-x64"),  # Debian
)


def nsys_path() -> str:
    """Return the ``nsys`` on the PATH, or raise a CaptureError."""
    path = shutil.which("nsys")
    if path is None:
        raise CaptureError(
            "nsys is not on the PATH",
            "install Nsight Systems, or omit --profiler nsys to use the framework's own profiler",
        )
    return path


def around(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command that runs ``command`` under nsys, which writes a report to ``folder``."""
    return [
        *(nsys_path(), "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"),
        "--wait=primary",  # do not wait for processes that outlive the main process
        *(
            "--capture-range=nvtx",
            f"--nvtx-capture={NSYS_RANGE}@{DOMAIN}",
            "--capture-range-end=stop",
        ),
        # let nsys find the range although its name is not a registered NVTX string
        *("--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "--force-overwrite=true"),
        *(f"--output={folder / REPORT}", *command),
    ]


class Lifeline:
    """A FIFO that this process keeps open; when it closes, the process under nsys ends."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Opened for reading, too, because opening for writing only would wait for a reader. Child
        # processes do not inherit the FIFO.
        self._fifo = os.open(path, os.O_RDWR)

    def close(self) -> None:
        """Close the FIFO, which ends the process that reads it."""
        os.close(self._fifo)


def export(folder: Path, place: str = ".") -> None:
    """Export the nsys report to SQLite; gzip report and export into ``place``.

    Enter both files in the result.json of ``folder``.
    """
    # Imported here, because it needs libraries for reading profiles, which a machine that only
    # captures may lack.
    from lstmprof.formats.cuda.nsys import export_command

    report = folder / f"{REPORT}.nsys-rep"
    stream = folder / f"{REPORT}.qdstrm"
    if not report.exists() and stream.exists():
        _run([_importer(), "-i", str(stream)])
    if not report.exists():
        raise CaptureError(
            "nsys recorded nothing, because it received no NVTX range from the steps",
            "install another version of the Python package nvtx; this nsys does not support it",
        )
    database = folder / place / DATABASE
    _run(export_command(nsys_path(), report, database))
    stream.unlink(missing_ok=True)
    files = {database: database.name, report: database.with_suffix(report.suffix).name}
    places = [
        compressed(str(path), str(folder / place / f"{name}.gz")) for path, name in files.items()
    ]
    result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    result["profiles"] = [os.path.relpath(path, folder) for path in places]
    (folder / RESULT).write_text(json.dumps(result), encoding="utf-8")


def _importer() -> str:
    """Return the path of the program that converts a recording of nsys to a report."""
    place = Path(os.path.realpath(nsys_path())).parent
    for folder in _IMPORTER_FOLDERS:
        path = place / folder / _IMPORTER
        if path.is_file():
            return str(path.resolve())
    raise CaptureError(
        f"nsys has no {_IMPORTER}, which it needs to read its recording",
        "install Nsight Systems with its host tools",
    )


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise CaptureError(
            f"{Path(command[0]).name} failed: {lines[-1] if lines else 'no message'}"
        )

"""Record a process with Nsight Systems, and export the recording.

Source: docs.nvidia.com/nsight-systems/UserGuide, "CLI Profile Command Switch Options".
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
DATABASE = "steps.sqlite"
_IMPORTER = "QdstrmImporter"
#: Folders that may contain Nsight Systems' importer, relative to nsys.
_IMPORTER_FOLDERS = (
    *("../host-linux-x64", "../../host-linux-x64"),
    *("../lib/nsight-systems/host-linux-x64", "../../../nsight-systems/host-linux-x64"),  # Debian
)


def nsys_path() -> str:
    path = shutil.which("nsys")
    if path is None:
        raise CaptureError(
            "nsys is not on the PATH",
            "install Nsight Systems, or omit --profiler nsys to use the framework's own profiler",
        )
    return path


def around(command: Sequence[str], folder: Path) -> list[str]:
    """Return a command line that records ``command`` by nsys."""
    return [
        *(nsys_path(), "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"),
        "--wait=primary",  # processes may outlive the main one
        *(
            "--capture-range=nvtx",
            f"--nvtx-capture={NSYS_RANGE}@{DOMAIN}",
            "--capture-range-end=stop",
        ),
        # let nsys find the capture range, although its name is no registered NVTX string
        *("--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "--force-overwrite=true"),
        *(f"--output={folder / REPORT}", *command),
    ]


class Lifeline:
    """A FIFO; the recorded process ends when lstmprof closes the FIFO or dies.

    Killing nsys would not end the recorded process.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open the FIFO for reading, too: a FIFO that is opened only for writing waits for a reader.
        self._fifo = os.open(path, os.O_RDWR)

    def close(self) -> None:
        os.close(self._fifo)


def export(folder: Path, place: str = ".") -> None:
    """Export the nsys report to SQLite, and gzip both files as the run's profiles."""
    # import late, because a machine that only captures may lack libraries for reading profiles
    from lstmprof.formats.cuda.nsys import export_command

    report = folder / f"{REPORT}.nsys-rep"
    stream = folder / f"{REPORT}.qdstrm"
    # convert the raw recording, because the nsys of some distributions (Debian) writes no report
    if not report.exists() and stream.exists():
        _run([_importer(), "-i", str(stream)])
    if not report.exists():
        raise CaptureError(
            "nsys recorded no step, because it received no NVTX range from the Python package nvtx",
            "install a version of the Python package nvtx that this version of nsys supports",
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

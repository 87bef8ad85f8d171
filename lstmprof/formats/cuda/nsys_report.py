"""Nsight Systems' own reports (``.nsys-rep``, ``.qdrep``), exported by an installed ``nsys``.

Their format is NVIDIA's alone; ``nsys export`` writes the SQLite that ``nsys`` reads here. A report
is known by its name. Source: docs.nvidia.com/nsight-systems/UserGuide, "CLI Export Command Switch
Options".
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lstmprof.errors import ForeignFileError, ProfileError
from lstmprof.events import Profile
from lstmprof.formats.cuda import nsys
from lstmprof.formats.raw_file import OpenFile, RawFile
from lstmprof.host.scratch import temporary_folder

NAMES = (".nsys-rep", ".qdrep")
_BY_HAND = "run nsys export --type sqlite on a machine that has nsys, and give the .sqlite file"
_NEWER = "run nsys export --type sqlite with the nsys version that recorded it, or a newer one"


def recognises(raw: RawFile) -> bool:
    """Return whether ``raw`` is named like a report and is no text."""
    return str(raw.path).removesuffix(".gz").endswith(NAMES) and not raw.looks_like_json


def read(raw: RawFile) -> Profile:
    """The profile in a report, exported into a temporary folder.

    Raises:
        ForeignFileError: nsys is not on the PATH.
        ProfileError: nsys cannot export it, or the export holds nothing.
    """
    tool = shutil.which("nsys")
    if tool is None:
        what = "is an Nsight Systems report, and nsys, which must export it, is not on the PATH"
        raise ForeignFileError(raw.path, what, _BY_HAND)
    with raw.on_disk() as given, temporary_folder() as folder:
        report, database = folder / "report.nsys-rep", folder / "report.sqlite"
        report.symlink_to(given.resolve())  # nsys goes by the ending
        done = subprocess.run(
            export_command(tool, report, database),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode or not database.is_file():
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
            why = f" ({said[-1]})" if said else ""
            raise ProfileError(raw.path, f"nsys could not export the report{why}", _NEWER)
        return nsys.read(RawFile(raw.path, OpenFile(database)))


def export_command(tool: str, report: Path, database: Path) -> list[str]:
    """Return the command that exports ``report`` to the SQLite file ``database``."""
    switches = ["--type=sqlite", "--force-overwrite=true", f"--output={database}"]
    return [tool, "export", *switches, str(report)]

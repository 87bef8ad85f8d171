"""Read the kernels in the CSV of AMD's rocprofv3 (``*_kernel_trace.csv``).

Before ROCm 7, rocprofv3 writes CSV by default. Each kind of record has its own file;
this is the one of kernels, so the profile has no launches and no copies. Times are nanoseconds
since the machine started. ``Grid_Size`` counts threads. The first versions have no ``Stream_Id``
and name an agent by a number, later ones by ``Agent 1``.

Source: source/docs/how-to/using-rocprofv3.rst of ROCm/rocprofiler-sdk.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping

from lstmprof.errors import ProfileError
from lstmprof.events import Profile, launch_config
from lstmprof.formats import rows
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rocprofv3 import NEXT_STEP
from lstmprof.formats.rows import Row

#: How the file begins, and the columns without which a row is no kernel.
_BEGINS = re.compile(rb'"?Kind"?,"?Agent_Id"?,"?Queue_Id"?,')
_COLUMNS = ("Agent_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp")


def recognises(raw: RawFile) -> bool:
    """Return whether ``raw`` begins with the header of rocprofv3's kernels."""
    return _BEGINS.match(raw.head.content) is not None


def read(raw: RawFile) -> Profile:
    """Return the profile in rocprofv3's CSV of kernels.

    Raises:
        ProfileError: the file has no kernel.
    """
    reader = csv.DictReader(io.StringIO(raw.content.decode("utf-8", "replace"), newline=""))
    try:
        records = [record for record in reader if all(record.get(c) for c in _COLUMNS)]
    except csv.Error as error:
        raise ProfileError(raw.path, f"is damaged ({error})", NEXT_STEP) from error
    in_order = sorted({record["Agent_Id"] for record in records}, key=lambda a: (len(a), a))
    agents = {agent: number for number, agent in enumerate(in_order)}
    found = [_row(record, agents) for record in records]
    events = [row for row in found if row is not None]
    if not events:
        raise ProfileError(raw.path, "has no kernel", NEXT_STEP)
    return Profile(
        format="rocprofv3",
        base_ns=None,
        events=rows.table(events, min(event.start_ns for event in events)),
        notes=(rows.NO_DATE,),
    )


def _row(record: Mapping[str, str], agents: Mapping[str, int]) -> Row | None:
    start_ns, end_ns = (_number(record[f"{of}_Timestamp"]) for of in ("Start", "End"))
    name = rows.clean(record["Kernel_Name"]).removesuffix(".kd")
    if start_ns is None or end_ns is None or not start_ns <= end_ns <= rows.MAX_NS or not name:
        return None
    block = [_number(record.get(f"Workgroup_Size_{axis}")) or 1 for axis in "XYZ"]
    threads = [_number(record.get(f"Grid_Size_{axis}")) or 1 for axis in "XYZ"]
    grid = [-(-of_grid // of_block) for of_grid, of_block in zip(threads, block, strict=True)]
    return Row(
        "kernel",
        name,
        start_ns,
        end_ns - start_ns,
        device=agents[record["Agent_Id"]],
        stream=_number(record.get("Stream_Id") or record.get("Queue_Id")),
        correlation_id=_number(record.get("Correlation_Id")),
        launch_config=launch_config.text({"grid": grid, "block": block}),
    )


def _number(text: str | None) -> int | None:
    return rows.natural(int(text)) if text and text.isdecimal() and len(text) <= 19 else None

"""The description of a table's columns, and the columns of the events table.

Readers (``formats``) fill the columns that a profile records; ``events.annotate`` fills the derived
columns. Everything else reads only this table. Unknown values are null, never 0 or −1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 7
#: Columns of timings.parquet since version 4.
_OF_ITERATIONS = (
    "turn",
    "after_profile",
    "cpu_ns",
    "voluntary_switches",
    "preemptions",
    "minor_faults",
    "major_faults",
)
#: Columns of timings.parquet since version 5.
_OF_WAITING = ("thread_cpu_ns", "waited_ns", "others_waited_ns", "children_waited_ns")
#: Of counters.parquet since version 6.
_OF_MEMORY = ("allocator",)
#: Of events.parquet since version 7.
_OF_LAUNCHES = ("launch_config",)
#: The versions that are read, and the columns that each did not have: they are null.
LACKING: Mapping[int, tuple[str, ...]] = {
    2: ("rule", *_OF_ITERATIONS, *_OF_WAITING, *_OF_MEMORY, *_OF_LAUNCHES),
    3: (*_OF_ITERATIONS, *_OF_WAITING, *_OF_MEMORY, *_OF_LAUNCHES),
    4: (*_OF_WAITING, *_OF_MEMORY, *_OF_LAUNCHES),
    5: (*_OF_MEMORY, *_OF_LAUNCHES),
    6: _OF_LAUNCHES,
    7: (),
}
VERSION_KEY = b"lstmprof.events_schema"

#: What an event is. ``step`` … ``overhead`` run on a host thread, the others on a device. A
#: device's derived copy of a host range (Kineto's gpu_user_annotation, XPlane's derived lines) is a
#: ``range`` with ``device`` set: no activity.
KINDS = (
    "step",
    "range",
    "op",
    "python",
    "runtime",
    "kernel",
    "memcpy",
    "memset",
    "device_sync",
    "overhead",
)
#: The kinds that occupy a device: the activities.
ACTIVITY_KINDS = ("kernel", "memcpy", "memset")
#: The phases of a step, in order.
PHASES = ("input", "forward", "loss", "backward", "optimizer")
#: The call of a compiled step, in lstmprof's own captures.
PROGRAM = "program"


@dataclass(frozen=True)
class Column:
    """One column of a table: name, type, unit, meaning, and when a value is null.

    ``null_when`` is empty if the column is never null. ``derived`` is True for a column of the
    events table that is computed from other columns.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    null_when: str = ""
    derived: bool = False


def schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of ``columns``."""
    return pa.schema([pa.field(c.name, c.type, bool(c.null_when)) for c in columns])


#: When a column about a device is null, in several result tables.
NO_ACTIVITIES = "the rank has no device activities"
#: Columns that many result tables have.
RANK = Column("rank", pa.int64(), "", "rank of the distributed job", "the profile names no rank")
DEVICE = Column("device", pa.int64(), "", "number of the device", "the work ran on the host (CPU)")
STEP = Column("step", pa.int64(), "", "number of the step", "the profile has no step markers")
PER_STEP = Column(
    "per_step",
    pa.float64(),
    "",
    "mean number per step, counting only what ran in a step or was launched in one",
    "the profile has no step markers",
)

_INT, _TEXT = pa.int64(), pa.dictionary(pa.int32(), pa.string())
_ABSENT = "it does not apply, or the profile does not record it"


def _derived(name: str, type_: pa.DataType, meaning: str) -> Column:
    return Column(name, type_, "", meaning, _ABSENT, derived=True)


#: The columns of the events table.
COLUMNS = (
    Column("event_id", _INT, "", "row number, unique in the run"),
    Column("kind", _TEXT, "", "kind of event: " + ", ".join(KINDS)),
    Column("name", _TEXT, "", "name, as the profiler wrote it"),
    Column("start_ns", _INT, "ns", "start, in ns since base_ns of run.json"),
    Column("dur_ns", _INT, "ns", "duration, 0 or more"),
    Column("rank", _INT, "", "rank of the distributed job", _ABSENT),
    Column("pid", _INT, "", "id of the host process", _ABSENT),
    Column("tid", _INT, "", "id of the host thread; null for activities of a device", _ABSENT),
    Column("device", _INT, "", "number of the device; null for events of the host", _ABSENT),
    Column("stream", _INT, "", "number of the device's stream", _ABSENT),
    Column(
        "correlation_id", _INT, "", "number that a runtime call and its activities share", _ABSENT
    ),
    Column("external_id", _INT, "", "the profiler's number of the op, as written", _ABSENT),
    Column("graph_node_id", _INT, "", "node of the CUDA graph that replayed the activity", _ABSENT),
    Column(
        "op_name",
        _TEXT,
        "",
        "name of the framework op that an activity records (XPlane: tf_op)",
        _ABSENT,
    ),
    Column("shapes", _TEXT, "", "shapes of the op's inputs, JSON", _ABSENT),
    Column("dtypes", _TEXT, "", "element types of the op's inputs, JSON", _ABSENT),
    Column("bytes", _INT, "bytes", "size of the copy", _ABSENT),
    Column(
        "launch_config",
        _TEXT,
        "",
        "launch of a kernel, JSON: grid (blocks) and block (threads) by x, y, z; "
        "registers per thread; shared_bytes per block, dynamic_shared_bytes of "
        "these; estimated_occupancy, theoretical_occupancy (shares)",
        f"{_ABSENT}, or an older lstmprof wrote the run: ingest the profile again",
    ),
    Column(
        "sequence_number",
        _INT,
        "",
        "number of the autograd node that the op creates (forward) or runs (backward)",
        _ABSENT,
    ),
    Column(
        "forward_thread",
        _INT,
        "",
        "for a backward op, the profiler's number of the thread of its forward op",
        _ABSENT,
    ),
    _derived(
        "parent_id",
        _INT,
        "event_id of the innermost event of the same thread that contains this event",
    ),
    _derived("launch_id", _INT, "for an activity, event_id of the runtime call that enqueued it"),
    _derived("op_id", _INT, "for an activity or runtime call, event_id of the op that issued it"),
    _derived(
        "forward_id", _INT, "for a backward op, event_id of the op whose gradient it computes"
    ),
    _derived("step", _INT, "number of the profiled step"),
    _derived("phase", _TEXT, "phase of the step: " + ", ".join(PHASES)),
    _derived("category", _TEXT, "category of work, such as gemm or pointwise"),
    _derived("family", _TEXT, "kind of work within category rnn: gemm, pointwise or persistent"),
    _derived("rule", _TEXT, "name of the rule that decided category"),
)

SCHEMA = schema(COLUMNS).with_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode()})

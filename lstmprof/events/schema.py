"""Describe columns of any table (``Column``), and define the columns of the events table.

The readers in ``formats`` fill the columns that a profile records. ``events.annotate`` computes
other columns, such as ``step``. All other code reads only this table. An unknown value is null,
never 0 or −1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 7
#: Schema version → columns that this version added to the tables.
_ADDED: Mapping[int, tuple[str, ...]] = {
    3: ("rule",),
    4: (
        *("turn", "after_profile", "cpu_ns", "voluntary_switches"),
        *("preemptions", "minor_faults", "major_faults"),
    ),
    5: ("thread_cpu_ns", "waited_ns", "others_waited_ns", "children_waited_ns"),
    6: ("allocator",),
    7: ("launch_config",),
}
#: Schema version → columns that runs of this version lack, so that lstmprof reads nulls.
LACKING: Mapping[int, tuple[str, ...]] = {
    version: tuple(name for added, names in _ADDED.items() if added > version for name in names)
    for version in range(2, SCHEMA_VERSION + 1)
}
VERSION_KEY = b"lstmprof.events_schema"

#: Kinds of events. Devices have kernel, memcpy, memset, device_sync, and copies of host ranges.
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
#: Kinds of events in which a device works; lstmprof calls such events activities.
ACTIVITY_KINDS = ("kernel", "memcpy", "memset")
PHASES = ("input", "forward", "loss", "backward", "optimizer")
#: Name of the range around the call of a compiled step in lstmprof's captures.
PROGRAM = "program"
#: Beginning of the names of ranges that ``lstmprof run`` records around Keras layers.
KERAS_LAYER = "keras.layers."


#: Ending of a column's name → unit of the column.
_UNITS = {
    "bytes_per_s": "bytes/s",
    **dict.fromkeys(("per_s", "per_second"), "1/s"),
    **{unit: unit for unit in ("ns", "bytes", "share")},
    **{"j": "J", "mhz": "MHz", "temperature_c": "°C"},
}


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    null_when: str = ""  # empty: never null
    derived: bool = False  # computed from other columns

    @classmethod
    def of_type(
        cls, type_: pa.DataType, name: str, meaning: str, null_when: str = "", derived: bool = False
    ) -> Column:
        """Make a column, and read the unit from its name: ``dur_ns`` -> ns."""
        endings = (unit for end, unit in _UNITS.items() if f"_{name}".endswith(f"_{end}"))
        return cls(name, type_, next(endings, ""), meaning, null_when, derived)

    @classmethod
    def integer(cls, name: str, meaning: str, null_when: str = "") -> Column:
        return cls.of_type(pa.int64(), name, meaning, null_when)

    @classmethod
    def real(cls, name: str, meaning: str, null_when: str = "") -> Column:
        return cls.of_type(pa.float64(), name, meaning, null_when)

    @classmethod
    def text(cls, name: str, meaning: str, null_when: str = "") -> Column:
        return cls.of_type(pa.string(), name, meaning, null_when)

    @classmethod
    def flag(cls, name: str, meaning: str, null_when: str = "") -> Column:
        return cls.of_type(pa.bool_(), name, meaning, null_when)


def schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, bool(c.null_when)) for c in columns])


#: Text that says when columns about a device are null.
NO_ACTIVITIES = "the profile has no activities"
#: Columns that are in many result tables.
RANK = Column.integer("rank", "rank of the distributed job", "the profile names no rank")
DEVICE = Column.integer("device", "number of the device", "the work ran on the host (CPU)")
STEP = Column.integer("step", "number of the step", "the profile has no step markers")
PER_STEP = Column.real(
    "per_step",
    "mean count per step",
    "the profile has no step markers",
)

_INT, _TEXT = pa.int64(), pa.dictionary(pa.int32(), pa.string())
_ABSENT = "the profile does not record it"
_UNDERIVED = "the event has no such value, or the profile does not show it"


def _always(name: str, type_: pa.DataType, meaning: str) -> Column:
    return Column.of_type(type_, name, meaning)


def _recorded(name: str, type_: pa.DataType, meaning: str, absent: str = _ABSENT) -> Column:
    return Column.of_type(type_, name, meaning, absent)


def _derived(name: str, type_: pa.DataType, meaning: str) -> Column:
    return Column.of_type(type_, name, meaning, _UNDERIVED, derived=True)


#: The columns of the events table.
COLUMNS = (
    _always("event_id", _INT, "row number, unique in the run"),
    _always("kind", _TEXT, "kind of event: " + ", ".join(KINDS)),
    _always("name", _TEXT, "name, as the profiler wrote it"),
    _always("start_ns", _INT, "start, in ns since base_ns of run.json"),
    _always("dur_ns", _INT, "duration, 0 or more"),
    _recorded("rank", _INT, "rank of the distributed job"),
    _recorded("pid", _INT, "id of the host process"),
    _recorded("tid", _INT, "id of the host thread; null for activities of a device"),
    _recorded("device", _INT, "number of the device; null for events of the host"),
    _recorded("stream", _INT, "number of the device's stream"),
    _recorded("correlation_id", _INT, "number that a runtime call and its activities share"),
    _recorded("external_id", _INT, "number that the profiler gave the op"),
    _recorded(
        "graph_node_id",
        _INT,
        "node of the CUDA graph to which the activity or call belongs (Nsight Systems)",
    ),
    _recorded(
        "op_name",
        _TEXT,
        "name of the framework op that caused the activity (XPlane: tf_op)",
    ),
    _recorded("shapes", _TEXT, "shapes of the op's inputs, as JSON"),
    _recorded("dtypes", _TEXT, "element types of the op's inputs, as JSON"),
    _recorded("bytes", _INT, "size of the copy"),
    _recorded(
        "launch_config",
        _TEXT,
        "launch configuration of a kernel (JSON): grid, block, registers per thread, "
        "shared memory, occupancy",
        _ABSENT,
    ),
    _recorded(
        "sequence_number",
        _INT,
        "number of the autograd node that the op creates or runs",
    ),
    _recorded(
        "forward_thread",
        _INT,
        "for a backward op, number of the thread of its forward op",
    ),
    _derived(
        "parent_id",
        _INT,
        "event_id of the innermost event that contains this event",
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

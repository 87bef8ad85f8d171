"""The events table: every column's name, type, unit and meaning, stated once.

Readers (``formats``) fill the columns that a profile holds; ``events.annotate`` fills the derived
ones; everything after reads only this table. What is unknown is null, never 0 or −1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 3
#: The versions that are read, and the columns that each did not have: they are null.
LACKING: Mapping[int, tuple[str, ...]] = {2: ("rule",), 3: ()}
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

_TEXT = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Column:
    """One column of the events table."""

    name: str
    type: pa.DataType
    unit: str
    nullable: bool
    derived: bool
    meaning: str


COLUMNS = (
    Column("event_id", pa.int64(), "", False, False, "row number, unique in the run"),
    Column("kind", _TEXT, "", False, False, "one of " + ", ".join(KINDS)),
    Column("name", _TEXT, "", False, False, "as the profiler wrote it"),
    Column("start_ns", pa.int64(), "ns", False, False, "start, since base_ns of run.json"),
    Column("dur_ns", pa.int64(), "ns", False, False, "length of the half-open interval, 0 or more"),
    Column("rank", pa.int64(), "", True, False, "rank of a distributed job"),
    Column("pid", pa.int64(), "", True, False, "host process"),
    Column("tid", pa.int64(), "", True, False, "host thread; null for what ran on a device"),
    Column("device", pa.int64(), "", True, False, "device number; null for what ran on the host"),
    Column("stream", pa.int64(), "", True, False, "stream of the device"),
    Column(
        "correlation_id", pa.int64(), "", True, False, "joins a runtime call and its activities"
    ),
    Column("external_id", pa.int64(), "", True, False, "the profiler's id of the op, as written"),
    Column(
        "graph_node_id",
        pa.int64(),
        "",
        True,
        False,
        "node of the CUDA graph that replayed the activity",
    ),
    Column(
        "op_name",
        _TEXT,
        "",
        True,
        False,
        "framework op named by the activity itself (XPlane tf_op, annotation)",
    ),
    Column("shapes", _TEXT, "", True, False, "shapes of the op's inputs, JSON"),
    Column("dtypes", _TEXT, "", True, False, "element types of the op's inputs, JSON"),
    Column("bytes", pa.int64(), "bytes", True, False, "size of a copy"),
    Column(
        "sequence_number",
        pa.int64(),
        "",
        True,
        False,
        "autograd's number of the node that an op made (forward) or runs (backward)",
    ),
    Column(
        "forward_thread",
        pa.int64(),
        "",
        True,
        False,
        "of a backward op: the profiler's number of the thread of its forward op",
    ),
    Column(
        "parent_id",
        pa.int64(),
        "",
        True,
        True,
        "event_id of the innermost enclosing event of the same thread",
    ),
    Column(
        "launch_id",
        pa.int64(),
        "",
        True,
        True,
        "of an activity: event_id of the runtime call that enqueued it",
    ),
    Column(
        "op_id",
        pa.int64(),
        "",
        True,
        True,
        "of an activity or runtime call: event_id of the op that issued it",
    ),
    Column(
        "forward_id",
        pa.int64(),
        "",
        True,
        True,
        "of a backward op: event_id of the op whose gradient it computes",
    ),
    Column("step", pa.int64(), "", True, True, "number of the profiled step"),
    Column("phase", _TEXT, "", True, True, "one of " + ", ".join(PHASES)),
    Column("category", _TEXT, "", True, True, "what the time is for: events/annotate/categories"),
    Column("family", _TEXT, "", True, True, "within category rnn: gemm, pointwise or persistent"),
    Column("rule", _TEXT, "", True, True, "the rule of annotate/rules that decided category"),
)

SCHEMA = pa.schema(
    [pa.field(c.name, c.type, c.nullable) for c in COLUMNS],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)

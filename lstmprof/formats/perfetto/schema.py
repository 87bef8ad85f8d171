"""The messages of a Perfetto trace that are read, by the field numbers of Perfetto's own
(``protos/perfetto/trace``: trace_packet.proto, track_event/*.proto, interned_data.proto,
clock_snapshot.proto), built at run time as those of an XPlane; texts are bytes here, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lstmprof.formats.xplane.schema import Messages, message_class

_CLOCKS: Messages = {
    "Clocks": (("clocks", 1, "*Clock"),),
    "Clock": (
        ("clock_id", 1, "uint32"),
        ("timestamp", 2, "uint64"),
        ("is_incremental", 3, "bool"),
        ("unit_multiplier_ns", 4, "uint64"),
    ),
}
#: What is read of a packet before any event: where tracks lie, which clocks there are.
_OUTLINE: Messages = {
    "Packet": (
        ("sequence", 10, "uint32"),
        ("clocks", 6, "Clocks"),
        ("process_descriptor", 43, "Process"),
        ("thread_descriptor", 44, "Thread"),
        ("compressed_packets", 50, "bytes"),
        ("track_descriptor", 60, "Track"),
        ("zstd_compressed_packets", 133, "bytes"),
    ),
    **_CLOCKS,
    "Track": (
        ("uuid", 1, "uint64"),
        ("name", 2, "bytes"),
        ("process", 3, "Process"),
        ("thread", 4, "Thread"),
        ("parent_uuid", 5, "uint64"),
        ("static_name", 10, "bytes"),
        ("description", 14, "bytes"),
    ),
    "Process": (("pid", 1, "int32"), ("process_name", 6, "bytes")),
    "Thread": (("pid", 1, "int32"), ("tid", 2, "int64"), ("thread_name", 5, "bytes")),
}
_PACKET: Messages = {
    "Packet": (
        ("clocks", 6, "Clocks"),
        ("timestamp", 8, "uint64"),
        ("sequence", 10, "uint32"),
        ("event", 11, "Event"),
        ("interned", 12, "Interned"),
        ("flags", 13, "uint32"),
        ("state_cleared", 41, "bool"),
        ("previous_dropped", 42, "bool"),
        ("compressed_packets", 50, "bytes"),
        ("clock_id", 58, "uint32"),
        ("defaults", 59, "Defaults"),
    ),
    **_CLOCKS,
    "Defaults": (("event", 11, "EventDefaults"), ("clock_id", 58, "uint32")),
    "EventDefaults": (("track_uuid", 11, "uint64"),),
    "Interned": (
        ("categories", 1, "*Text"),
        ("names", 2, "*Text"),
        ("keys", 3, "*Text"),
        ("values", 29, "*Text"),
    ),
    "Text": (("iid", 1, "uint64"), ("text", 2, "bytes")),
    "Event": (
        ("category_iids", 3, "*uint64"),
        ("annotations", 4, "*Annotation"),
        ("type", 9, "int32"),
        ("name_iid", 10, "uint64"),
        ("track_uuid", 11, "uint64"),
        ("categories", 22, "*bytes"),
        ("name", 23, "bytes"),
        ("counter_value", 30, "int64"),
        ("double_counter_value", 44, "double"),
        ("old_flow_ids", 36, "*uint64"),
        ("old_terminating_flow_ids", 42, "*uint64"),
        ("flow_ids", 47, "*fixed64"),
        ("terminating_flow_ids", 48, "*fixed64"),
    ),
    "Annotation": (
        ("name_iid", 1, "uint64"),
        ("name", 10, "bytes"),
        ("bool_value", 2, "|bool"),
        ("uint_value", 3, "|uint64"),
        ("int_value", 4, "|int64"),
        ("double_value", 5, "|double"),
        ("string_value", 6, "|bytes"),
        ("pointer_value", 7, "|uint64"),
        ("legacy_json_value", 9, "|bytes"),
        ("string_value_iid", 17, "|uint64"),
        ("dict_entries", 11, "*Annotation"),
        ("array_values", 12, "*Annotation"),
    ),
}


@cache
def outline() -> Any:
    """The message class of a packet as it is read for tracks and clocks."""
    return message_class("perfetto_outline", _OUTLINE, "Packet")


@cache
def packet() -> Any:
    """The message class of a packet as it is read for events."""
    return message_class("perfetto", _PACKET, "Packet")

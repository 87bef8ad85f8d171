"""How lstmprof says in a Perfetto trace what its run has: what is written is read again from here.

A slice that is an event says its kind and its columns as arguments. A thread's track says its rank,
process and number in its description, as JSON, and a stream's its rank. What the profile says as a
whole stands in the description of a track without slices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lstmprof.errors import ProfileError, one_line
from lstmprof.events import DeviceFacts, launch_config
from lstmprof.events.schema import KINDS
from lstmprof.formats import rows
from lstmprof.formats.perfetto.slices import Slice
from lstmprof.formats.perfetto.tracks import Track
from lstmprof.formats.rows import Row

#: The track that says what the profile says as a whole.
FACTS_TRACK = "lstmprof"
#: What is derived has tracks of these names; the ledger's go on with their device.
STEPS, PHASES, LEDGER = "steps", "phases", "ledger: "
DERIVED = (STEPS, PHASES)
KIND = "kind"
LAUNCH_CONFIG = "launch_config"
#: Columns of the events table that are arguments, and what each is called.
NUMBERS = {
    "correlation_id": "correlation",
    "external_id": "external id",
    "graph_node_id": "graph node",
    "bytes": "bytes",
    "sequence_number": "sequence number",
    "forward_thread": "forward thread",
    "device": "device",
    "stream": "stream",
    "step": "step",
}
TEXTS = ("shapes", "dtypes", "op_name", LAUNCH_CONFIG, "phase", "family", "rule")
#: Of what runs on no thread: its process.
PID = "process"
#: Columns where a number below 0 is none.
_NATURAL = ("bytes", "sequence_number", "device", "stream")
#: (column, argument, what a value of it means) of what is read again; the step is derived anew.
_READ = tuple(
    (column, name, rows.natural if column in _NATURAL else rows.int64)
    for column, name in NUMBERS.items()
    if column != "step"
)
_READ_TEXTS = ("op_name", "shapes", "dtypes")
#: A job has no more ranks.
_LAST_RANK = 2**31 - 1
_FORMAT = re.compile(r"[a-z0-9_.]{1,40}")
_NUMBER_LISTS = ("group_sizes",)
_DEEPEST = 4
_SPANS = "profiler_spans_ns"


class Where(msgspec.Struct, omit_defaults=True):
    """Whose a track is; ``thread`` is one of the host's, ``counter`` what the profile calls it."""

    rank: int | None = None
    pid: int | None = None
    tid: int | None = None
    thread: bool = False
    device: int | None = None
    counter: str | None = None
    unit: str | None = None
    allocator: str | None = None


class Facts(msgspec.Struct, omit_defaults=True):
    """What a profile says as a whole; its times count from ``origin_ns`` before the trace's 0."""

    format: str
    origin_ns: int = 0
    device_names: dict[str, str] = {}
    device_facts: dict[str, DeviceFacts] = {}
    accelerators: list[str] = []
    gpu_complaint: str | None = None
    notes: list[str] = []
    metadata: dict[str, Any] = {}


def facts(path: object, description: str) -> Facts:
    """The facts in the description of their track.

    Raises:
        ProfileError: they are damaged.
    """
    try:
        said = msgspec.json.decode(description, type=Facts)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        fault = f"its track '{FACTS_TRACK}' is damaged"
        raise ProfileError(path, fault, "export the run again") from error
    if not _FORMAT.fullmatch(said.format) or abs(said.origin_ns) > rows.MAX_NS:
        raise ProfileError(path, f"its track '{FACTS_TRACK}' is damaged", "export the run again")
    return said


def device_numbers(by_text: Mapping[str, Any]) -> dict[int, Any]:
    """What is said of each device, by its number."""
    numbers = {rows.natural(key): value for key, value in by_text.items()}
    return {number: value for number, value in numbers.items() if number is not None}


def where(description: str) -> Where:
    """Whose a track is, by its description; of a damaged one nothing is known."""
    try:
        said = msgspec.json.decode(description or "{}", type=Where)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Where()
    known = said.rank is None or 0 <= said.rank <= _LAST_RANK
    return Where(
        said.rank if known else None,
        rows.int64(said.pid),
        rows.int64(said.tid),
        said.thread,
        rows.natural(said.device),
        *(
            None if text is None else rows.clean(text)
            for text in (said.counter, said.unit, said.allocator)
        ),
    )


def is_drawn(track: Track) -> bool:
    """Whether ``track`` shows what is derived: the ledger, the steps or the phases."""
    return track.tid is None and (track.name.startswith(LEDGER) or track.name in DERIVED)


def row(slice_: Slice, place: Where) -> Row | None:
    """The row of a slice on a track of ``place``; None where it does not say its kind."""
    said = slice_.arguments
    kind = said.get(KIND)
    if kind not in KINDS:
        return None
    known: dict[str, Any] = {c: meaning(said[name]) for c, name, meaning in _READ if name in said}
    for name in _READ_TEXTS:
        if isinstance(said.get(name), str):
            known[name] = said[name]
    launched_with = said.get(LAUNCH_CONFIG)
    config = launch_config.read(launched_with) if isinstance(launched_with, str) else None
    if config and kind == "kernel":
        known[LAUNCH_CONFIG] = launch_config.encoded(config)
    pid = place.pid if place.thread else rows.int64(said.get(PID))
    return Row(kind, slice_.name, slice_.start_ns, slice_.dur_ns, pid, place.tid, **known)


def metadata(said: Mapping[str, Any], moved_ns: int, depth: int = 0) -> dict[str, Any]:
    """Of a profile's metadata what is of the kinds that profiles have, spans ``moved_ns`` later."""
    known: dict[str, Any] = {}
    for key, value in said.items():
        if key == _SPANS:
            spans = (pair for pair in value if _is_span(pair)) if isinstance(value, list) else ()
            known[key] = [[start + moved_ns, end + moved_ns] for start, end in spans]
        elif key in _NUMBER_LISTS:
            listed = value if isinstance(value, list) else []
            known[key] = [number for number in listed if rows.positive(number)]
        elif isinstance(value, dict):
            if depth < _DEEPEST:
                known[key] = metadata(value, 0, depth + 1)
        elif isinstance(value, list):
            known[key] = [_clean(each) for each in value if _is_plain(each)]
        elif _is_plain(value):
            known[key] = _clean(value)
    return known


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _clean(value: Any) -> Any:
    return one_line(rows.clean(value)) if isinstance(value, str) else value


def _is_span(value: Any) -> bool:
    pair: Sequence[Any] = value if isinstance(value, list) else ()
    return len(pair) == 2 and all(
        isinstance(n, int) and not isinstance(n, bool) and abs(n) <= rows.MAX_NS for n in pair
    )

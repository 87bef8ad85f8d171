"""Read the JSON that MXNet's profiler writes (``mx.profiler``).

An operator is a pair of events ``B`` (begin) and ``E`` (end). A call from Python, of category
``MXNET_C_API``, is a pair ``b`` and ``e``. Other pairs ``b`` and ``e`` are the user's own ranges.
Source: src/profiler/profiler.cc and profiler.h of apache/mxnet 1.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import rows
from lstmprof.formats.foreign import json_events
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row

_OPERATOR, _API = "operator", "MXNET_C_API"
_BEGINS = ("B", "b")
#: Phase (``ph``) of an end event -> phase of its begin event.
_ENDS = {"E": "B", "e": "b"}
_STEP = "step"


def recognises(raw: RawFile) -> bool:
    kinds = ((event.get("cat"), event.get("ph")) for event in json_events(raw))
    return any(
        category == _API or (category, phase) == (_OPERATOR, "B") for category, phase in kinds
    )


def read(raw: RawFile) -> Profile:
    events = list(json_events(raw))
    intervals, unpaired = _paired(events)
    if not intervals:
        raise ProfileError(
            raw.path,
            "the trace has no complete operator; nothing was recorded",
            "call mx.nd.waitall() before mx.profiler.set_state('stop')",
        )
    origin_ns = min(row.start_ns for row in intervals)
    return Profile(
        format="mxnet",
        base_ns=rows.date_ns(origin_ns),
        events=rows.table(intervals, origin_ns),
        notes=tuple(_notes(events, unpaired)),
    )


def _paired(events: Iterable[dict[str, Any]]) -> tuple[list[Row], int]:
    """Join begin and end events to rows; count the events without a partner."""
    intervals: list[Row] = []
    begun: dict[tuple[str, ...], list[int]] = {}
    threads: dict[str, int] = {}
    lonely = 0
    for event in events:
        phase, at_ns = str(event.get("ph")), _ns(event.get("ts"))
        category, name, tid = (str(event.get(key)) for key in ("cat", "name", "tid"))
        # skip ``b`` and ``e`` of an operator, which repeat ``B`` and ``E``
        is_twin = phase in ("b", "e") and category == _OPERATOR
        if phase not in (*_BEGINS, *_ENDS) or is_twin or at_ns is None:
            continue
        # number the threads, because a ``tid`` is a 64-bit hash, too large for int64
        thread = threads.setdefault(tid, len(threads) + 1)
        place = (str(event.get(key)) for key in ("pid", "id"))
        key = (_ENDS.get(phase, phase), category, name, tid, *place)
        if phase in _BEGINS:
            begun.setdefault(key, []).append(at_ns)
        elif begun.get(key) and (start_ns := begun[key].pop()) <= at_ns:
            intervals.append(_row(category, name, start_ns, at_ns, thread))
        else:
            lonely += 1
    return intervals, lonely + sum(len(starts) for starts in begun.values())


def _ns(microseconds: object) -> int | None:
    """Convert whole microseconds since 1970 to ns; return None if the number is invalid."""
    number = rows.int64(microseconds)
    return None if number is None or abs(number) > rows.MAX_NS // 1000 else 1000 * number


def _row(category: str, name: str, start_ns: int, end_ns: int, thread: int) -> Row:
    name = rows.clean(name)
    # make ops of both: calls enqueue operators, which the engine's own threads run
    if category in (_OPERATOR, _API):
        return Row("op", "mxnet::" + name, start_ns, end_ns - start_ns, tid=thread)
    kind = "step" if name == _STEP else "range"
    return Row(kind, name, start_ns, end_ns - start_ns, tid=thread)


def _notes(events: Sequence[dict[str, Any]], unpaired: int) -> Iterator[str]:
    if unpaired:
        yield f"{unpaired} events were left out because their begin or their end is missing"
    # only the first file of a process names the devices
    names = {
        str(event.get("pid")): str(event["args"].get("name"))
        for event in events
        if event.get("name") == "process_name" and isinstance(event.get("args"), dict)
    }
    # find the devices of operators: the ``pid`` of an operator is the number of a device
    used = {str(event.get("pid")) for event in events if event.get("cat") == _OPERATOR}
    devices = sorted(names[pid] for pid in used if names.get(pid, "").startswith("gpu/"))
    for device in devices:
        yield f"operator times on {rows.clean(device)} were measured in the engine's threads"

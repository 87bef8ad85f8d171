"""Read the JSON that ONNX Runtime writes for a session with ``enable_profiling``.

Event ``model_run`` is one call of ``session.run``: a step. Event ``<node>_kernel_time`` is a node:
an op. Times are whole microseconds since the session began to record.
Source: onnxruntime/core/common/profiler_common.h and core/framework/sequential_executor.cc.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import rows
from lstmprof.formats.foreign import json_events
from lstmprof.formats.kineto.event_fields import timed_events
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row

_NODE, _SESSION, _KERNEL = "Node", "Session", "Kernel"
_ON_HOST = "CPUExecutionProvider"
_SUFFIX = "_kernel_time"
#: Name of a call of ``session.run``; end of the name of its inner event, which runs the nodes.
_STEP, _EXECUTES = "model_run", "Executor::Execute"
#: Largest time in ns by which rounding makes an event end after the enclosing event.
_MOST_NS = 2000


def recognises(raw: RawFile) -> bool:
    return any(_is_node(event) or _is_step(event) for event in json_events(raw))


def _is_node(event: dict[str, Any]) -> bool:
    if event.get("cat") != _NODE:
        return False
    args = event.get("args")
    return isinstance(args, dict) and isinstance(args.get("op_name"), str) and "provider" in args


def _is_step(event: dict[str, Any]) -> bool:
    return (event.get("cat"), event.get("name")) == (_SESSION, _STEP)


def read(raw: RawFile) -> Profile:
    intervals = list(_rows(json_events(raw)))
    if not intervals:
        raise ProfileError(
            raw.path, "no session run was recorded", "run the session while profiling is on"
        )
    origin_ns = min(row.start_ns for row in intervals)
    return Profile(
        format="onnxruntime",
        base_ns=None,
        events=rows.table(_nested(intervals), origin_ns),
        notes=tuple(_notes(list(json_events(raw)))),
    )


def _notes(events: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield rows.NO_DATE
    providers = {str(event["args"]["provider"]) for event in events if _is_node(event)}
    for provider in sorted(providers - {_ON_HOST}):
        yield f"times of {rows.clean(provider)} nodes are host times of enqueuing, not device times"
    # count the kernels, which exist only if ONNX Runtime was built with CUPTI
    kernels = sum(event.get("cat") == _KERNEL for event in events)
    if kernels:
        yield f"{kernels} GPU kernels were left out: lstmprof does not read them yet"


def _rows(events: Iterable[Any]) -> Iterator[Row]:
    for event, times in timed_events(events, Counter(), lambda event: True):
        row = _row(event, times)
        if row is not None:
            yield row
        # add an op, because no Python runs during the step
        if row is not None and row.kind == "step":
            yield row._replace(kind="op", name="onnxruntime::" + _STEP)


def _row(event: dict[str, Any], timed: tuple[int, int]) -> Row | None:
    place = rows.int64(event.get("pid")), rows.int64(event.get("tid"))
    name = rows.clean(str(event.get("name", "")))
    if _is_step(event):
        return Row("step", name, *timed, *place)
    if event.get("cat") == _SESSION and name.endswith(_EXECUTES):
        return Row("op", "onnxruntime::Execute", *timed, *place)
    # make a range of ``session_initialization``, which precedes the first ``model_run``
    if event.get("cat") == _SESSION:
        return Row("range", name, *timed, *place)
    # skip ``…_fence_before`` and ``…_fence_after``, which files until 2022 contain
    if not _is_node(event) or not name.endswith(_SUFFIX):
        return None
    args = event["args"]
    shapes, dtypes = _inputs(args.get("input_type_shape"))
    return Row(
        "op",
        "onnxruntime::" + rows.clean(args["op_name"]),
        *timed,
        *place,
        op_name=name.removesuffix(_SUFFIX),
        shapes=shapes,
        dtypes=dtypes,
    )


def _inputs(described: Any) -> tuple[str | None, str | None]:
    """Return (shapes, types) of a node's inputs as JSON lists."""
    if not isinstance(described, list):
        return None, None
    inputs = [item for entry in described if isinstance(entry, dict) for item in entry.items()]
    return json.dumps([shape for _, shape in inputs]), json.dumps([dtype for dtype, _ in inputs])


def _nested(intervals: list[Row]) -> list[Row]:
    """Sort rows by start; shorten inner rows that rounding made end after outer rows."""
    nested: list[Row] = []
    holders: dict[tuple[int | None, int | None], list[Row]] = {}
    for row in sorted(intervals, key=lambda row: (row.start_ns, -row.dur_ns)):
        open_rows = holders.setdefault((row.pid, row.tid), [])
        while open_rows and open_rows[-1].start_ns + open_rows[-1].dur_ns <= row.start_ns:
            open_rows.pop()
        if open_rows:
            over_ns = row.start_ns + row.dur_ns - open_rows[-1].start_ns - open_rows[-1].dur_ns
            if 0 < over_ns <= _MOST_NS:
                row = row._replace(dur_ns=row.dur_ns - over_ns)
        open_rows.append(row)
        nested.append(row)
    return nested

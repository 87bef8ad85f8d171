"""Read the events that ``torch.autograd.profiler`` exports, the predecessor of ``torch.profiler``.

Process ``CPU functions`` contains ops, autograd nodes and ranges. Process ``CUDA functions``
contains no kernels, but spans: the time of an op between two CUDA events, on device ``tid``.
Source: ``export_chrome_trace`` of torch/autograd/profiler.py, and files of PyTorch 1.0, 1.4, 1.8.1.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.events.schema import PHASES, PROGRAM
from lstmprof.formats import rows
from lstmprof.formats.foreign import consumed, json_events, trace_events
from lstmprof.formats.kineto.event_fields import left_out, timed_events
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rows import Row

_HOST, _DEVICE = "CPU functions", "CUDA functions"
_ATEN = "aten::"
#: Wrong name of the op ``t``: in the Itanium C++ ABI, ``t`` encodes ``unsigned short``.
#: PyTorch 1.0 and 1.4 pass the names of ops through a C++ demangler.
_DEMANGLED_T = "unsigned short"
_STEP = re.compile(r"ProfilerStep#\d+|step")
#: Pattern of names of ops (``aten::mm``) and of autograd nodes (``AddmmBackward0``).
_OP = re.compile(r"[a-z_]\w*::\S+|\w+Backward\d*")
_BARE_OP = re.compile(r"[a-z_][a-z0-9_]*")
_RANGES = frozenset((*PHASES, PROGRAM))
_WHOLE_OPS = (
    "GPU times are for whole ops, from CUDA events around each op; idle gaps between the "
    "kernels of "
    "an op count as busy"
)


def recognises(raw: RawFile) -> bool:
    """Return whether a trace has the process names of ``torch.autograd.profiler``."""
    return any(event.get("ph") == "X" and _is_recorded(event) for event in json_events(raw))


def _is_recorded(event: dict[str, Any]) -> bool:
    return event.get("pid") in (_HOST, _DEVICE)


def read(raw: RawFile) -> Profile:
    dropped: Counter[str] = Counter()
    events = trace_events(raw.json) or []
    timed = timed_events(events, Counter(), _is_recorded)
    prefixed = any(str(event.get("name")).startswith(_ATEN) for event, _ in timed)
    host: list[Row] = []
    spans: list[Row] = []
    for event, times in timed_events(consumed(events), dropped, _is_recorded):
        if event["pid"] == _HOST:
            host.append(_host_row(event, times, prefixed=prefixed))
        else:
            spans.append(_device_row(event, times))
    if not host and not spans:
        raise ProfileError(raw.path, "no event has a readable time", "record the profile again")
    device = _computing([span for span in spans if span.device is not None])
    if not host and not device:
        raise ProfileError(raw.path, "no event names a device", "record the profile again")
    found = host + device
    notes = [rows.NO_DATE, *([_WHOLE_OPS] if device else []), *left_out(dropped)]
    return Profile(
        format="autograd",
        base_ns=None,  # times count from the session's start
        events=rows.table(found, min(row.start_ns for row in found)),
        accelerators=tuple(f"GPU {n}" for n in sorted({row.device or 0 for row in device})),
        notes=tuple(notes),
    )


def _host_row(event: dict[str, Any], times: tuple[int, int], *, prefixed: bool) -> Row:
    name = rows.clean(str(event.get("name", "")))
    # keep the profiler's own thread number, which differs between forward and backward pass
    tid = rows.int64(event.get("tid"))
    if name in _RANGES or _STEP.fullmatch(name):
        return Row("step" if _STEP.fullmatch(name) else "range", name, *times, tid=tid)
    # treat any lower-case word as an op, because PyTorch 1.0 and 1.4 write no ``aten::``
    if not prefixed and (name == _DEMANGLED_T or _BARE_OP.fullmatch(name)):
        return Row("op", _aten(name), *times, tid=tid)
    return Row("op" if _OP.fullmatch(name) else "range", name, *times, tid=tid)


def _aten(name: str) -> str:
    return _ATEN + ("t" if name == _DEMANGLED_T else name)


def _device_row(event: dict[str, Any], times: tuple[int, int]) -> Row:
    name = rows.clean(str(event.get("name", "")))
    named = name if "::" in name or not _BARE_OP.fullmatch(name) else _aten(name)
    named = _aten(name) if name == _DEMANGLED_T else named
    return Row("kernel", named, *times, device=rows.natural(event.get("tid")), op_name=named)


def _computing(spans: list[Row]) -> list[Row]:
    """Drop ops that mostly call other ops; cut the rest to their longest own interval."""
    around: list[tuple[Row, list[Row]]] = []
    nested: list[tuple[Row, list[Row]]] = []
    for span in sorted(spans, key=lambda row: (row.device or 0, row.start_ns, -row.dur_ns)):
        while around and not _contains(around[-1][0], span):
            around.pop()
        if around:
            around[-1][1].append(span)
        around.append((span, []))
        nested.append(around[-1])
    rows = []
    for span, inner in nested:
        starts = [span.start_ns, *map(_end_ns, inner)]
        ends = [*(row.start_ns for row in inner), _end_ns(span)]
        free = [(end - start, start) for start, end in zip(starts, ends, strict=True)]
        if not inner or 2 * sum(ns for ns, _ in free) > span.dur_ns:
            dur_ns, start_ns = max(free)
            rows.append(span._replace(start_ns=start_ns, dur_ns=dur_ns))
    return rows


def _contains(outer: Row, inner: Row) -> bool:
    within = inner.start_ns < _end_ns(outer) and _end_ns(inner) <= _end_ns(outer)
    return within and outer.device == inner.device


def _end_ns(row: Row) -> int:
    return row.start_ns + row.dur_ns

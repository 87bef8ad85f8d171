"""Kineto traces written in tests, and what the plain reader says of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import kineto, raw_file


def as_a_whole(content: bytes) -> dict[str, Any] | None:
    """What the plain reader says; None where it refuses the file or does not know it."""
    try:
        raw = raw_file.raw_of_bytes("trace.json", content)
        return facts(kineto.read(raw)) if kineto.recognises(raw) else None
    except ProfileError:
        return None


def facts(profile: Profile) -> dict[str, Any]:
    profile.events.validate(full=True)
    fields = {f.name: getattr(profile, f.name) for f in dataclasses.fields(profile)}
    counters = profile.counters.table()
    counters.validate(full=True)
    return {**fields, "events": profile.events.to_pylist(), "counters": counters.to_pylist()}


def document(*events: Any, **header: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events, **header}, indent=2).encode()


def op(number: int, **more: Any) -> dict[str, Any]:
    ends = {"ts": 10.5 * number, "dur": 3.125, "pid": 1, "tid": 2}
    return {"ph": "X", "cat": "cpu_op", "name": f"aten::op{number % 3}", **ends, **more}

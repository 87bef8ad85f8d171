"""Data for the page's scripts: tables, timelines, call stacks."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lstmprof.numbers import shown_name
from lstmprof.report.drawing import shown
from lstmprof.report.model import Icicle, Report, Rows, Timeline

#: Pixels of a box of call stacks, as in icicle.js.
_BOX = 22
#: Pixels of a counter, as in timeline.js.
_LANE = 36


def table(rows: Rows, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return ``rows`` for the scripts, which read them by column name."""
    safe = shown(rows, columns)
    names = list(safe[0]) if safe else []
    return {"columns": names, "rows": [[row[name] for name in names] for row in safe]}


def script_json(value: Any) -> str:
    """Return ``value`` as JSON in which ``</script>`` cannot occur."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline for the page: columns of differences, deflated, in base64."""
    columns = dict(timeline.columns)
    columns["start_ns"] = _differences(columns["start_ns"])
    columns["dur_ns_of"] = columns.pop("dur_ns")
    content = {
        "run": shown_name(timeline.run),
        "step": timeline.step,
        "dur_ns": timeline.dur_ns,
        "tracks": table([asdict(track) for track in timeline.tracks]),
        "names": list(timeline.names),
        "parts": list(timeline.parts),
        "left_out": timeline.left_out,
        "facts": {
            name: {"texts": texts, "places": places}
            for name, (texts, places) in timeline.facts.items()
        },
        "lanes": [
            {**asdict(lane), "at_ns": _differences(list(lane.at_ns))} for lane in timeline.lanes
        ],
        **columns,
    }
    packed = base64.b64encode(zlib.compress(script_json(content).encode(), 9)).decode()
    return {"run": timeline.run, "which": _which(timeline), "packed": packed}


def _which(timeline: Timeline) -> str:
    """Return ``rank 1, step 3, median length``: the name of a timeline within its run."""
    rank = None if timeline.rank is None else f"rank {timeline.rank}"
    step = "the whole profile" if timeline.step is None else f"step {timeline.step}"
    why = timeline.which if timeline.step is not None else None
    return ", ".join(text for text in (rank, step, why) if text)


def stacks(icicle: Icicle) -> dict[str, Any]:
    """Return call stacks for the page."""
    names = list(icicle.columns)
    rows = [list(row) for row in zip(*icicle.columns.values(), strict=True)]
    return {
        "run": shown_name(icicle.run),
        "what": icicle.what,
        "total_ns": icicle.total_ns,
        "names": list(icicle.names),
        "parts": list(icicle.parts),
        "boxes": {"columns": names, "rows": rows},
    }


def timeline_height(report: Report) -> int:
    """Return the height of the first timeline, as timeline.js lays it out."""
    first = report.timelines[0] if report.timelines else None
    tracks, lanes = (first.tracks, first.lanes) if first else ((), ())
    heights = {"account": 26, "stream": 18, "host": 13}
    tracked = sum(heights[t.kind] + (19 if t.label else 0) for t in tracks)
    return 26 + tracked + len(lanes) * (_LANE + 19)


def stacks_height(report: Report) -> int:
    """Return the height of the first call stacks, as icicle.js lays them out."""
    depth: list[int] = []
    for above in report.icicles[0].columns["above"] if report.icicles else ():
        depth.append(depth[above] + 1 if above >= 0 else 1)
    return _BOX * max(depth, default=0)


def _differences(values: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]

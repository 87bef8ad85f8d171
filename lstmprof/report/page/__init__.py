"""Make the page of a report: one HTML file that contains all charts, tables and scripts.

::

    cards, figures, rows ─ page.html, page.css, page.js, timeline.js … ─▶ one file

Jinja2 escapes every text. Data are JSON in which ``</script>`` cannot occur. The content security
policy of the page prevents every request of the browser.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.metadata
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstmprof.base.errors import RunError
from lstmprof.base.numbers import listed, milliseconds, shown_name
from lstmprof.base.scratch import check_file, write_file
from lstmprof.breakdown.mean_step import WAITS_FOR_HOST, lane_words
from lstmprof.diagnose.findings import causes
from lstmprof.report.charts import figures, waterfall
from lstmprof.report.drawing import shown
from lstmprof.report.model import Figure, Icicle, Report, Rows, Timeline
from lstmprof.report.page.cards import blocks
from lstmprof.report.palette import FAMILIES, PARTS, UNKNOWN, families_of, label_of, order_of
from lstmprof.runs.directory import cache_folder

if TYPE_CHECKING:
    from jinja2 import Template

#: Sections of the page in order, as (id, heading); a figure's key begins with the section's id.
SECTIONS = (
    ("ledger", "Where the time goes"),
    ("waterfall", "Difference between two runs"),
    ("layers", "Recurrent layers"),
    ("critical_path", "Critical path"),
    ("timeline", "Timeline of one step"),
    ("stacks", "Call stacks"),
    ("ranks", "Ranks"),
    ("launch-gaps", "Kernels and launch gaps"),
    ("casts", "Casts"),
    ("versions", "Framework versions"),
    ("sweep", "Sizes"),
    ("roofline", "Roofline"),
    ("stability", "Stability over iterations"),
    ("kernels", "Longest kernels and ops"),
)
#: CSS classes per chart. They reserve space, so that nothing moves when the chart is drawn.
_RESERVED = {
    "times": "tall",
    "ledger": "tall",
    "waterfall": "tall",
    "ranks-parts": "tall",
    "ranks-late": "tall scale",
    "ranks-work": "tall scale",
    "casts": "tall",
    "roofline": "tall",
    "stability": "tall scale",
    "versions": "tall",
    "sweep": "taller",
}
_TABLES = ("layers", "critical_path", "ranks", "kernels")
KERNELS = ("run", "rank", "device", "name", "category", "count", "total_ns", "p50_ns", "share")
#: Largest number of verdicts on an unfolded page. With more verdicts, only the first block of cards
#: is unfolded.
MOST_VERDICTS = 8
_HERE = Path(__file__).parent


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True)
    environment.filters["shown"] = shown_name
    environment.filters["milliseconds"] = milliseconds
    return environment.get_template("page.html")


def page(report: Report) -> str:
    drawn = figures(report)
    return _template().render(
        report=report,
        sections=list(_sections(report, drawn)),
        blocks=list(blocks(report, drawn)),
        when=_when(report),
        families=FAMILIES,
        families_of=families_of,
        kinds=_kinds(),
        timeline_parts=_parts_of(report.timelines),
        undrawn=list(_undrawn(report)),
        stacks_parts=_parts_of(report.icicles),
        stacks_height=stacks_height(report),
        stacks_hint=_HINT,
        room=_RESERVED,
        places=[c for c in ("rank", "device") if len({row[c] for row in report.kernels}) > 1],
        folded=len(report.diagnoses) > MOST_VERDICTS,
        timeline_height=timeline_height(report),
        waits=listed([PARTS[name].shown for name in WAITS_FOR_HOST]),
        lane_words=lane_words,
        label_of=label_of,
        part_of=lambda name: PARTS.get(name, UNKNOWN),
        data=script_json(_data(report, drawn)),
        timelines=[packed(timeline) for timeline in report.timelines],
        vega=vega(),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        scripts=[(_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS],
    )


_HINT = (
    "To zoom in, click a box or press Enter; to zoom out, click the box again or press Escape. "
    "The arrow keys move to the caller, the callees and the neighbours."
)
_SCRIPTS = ("timeline.js", "icicle.js", "tables.js", "page.js")


def write(report: Report, path: Path, *, force: bool = False) -> int:
    """Write the page, whole or not at all; return its size in bytes."""
    refuse(path, force=force)
    return save(page(report), path)


def save(html: str, path: Path) -> int:
    """Write HTML, whole or not at all; return its size in bytes."""
    content = html.encode()
    try:
        write_file(path, content)
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "choose a writable -o") from fault
    return len(content)


def refuse(path: Path, *, force: bool) -> None:
    """Raise an error if ``path`` exists, unless ``force`` is set."""
    check_file(path, force=force, next_step="add --force to overwrite it, or choose another -o")


def vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as JavaScript, escaped for a ``<script>``."""
    # cache the scripts, because vl-convert takes seconds to bundle them
    bundle_file = cache_folder() / f"vega-{importlib.metadata.version('vl-convert-python')}.js"
    try:
        bundle = bundle_file.read_bytes().decode()
    except OSError:
        bundle = _bundled_vega()
        with contextlib.suppress(OSError):  # the cache may be read-only
            write_file(bundle_file, bundle.encode())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _bundled_vega() -> str:
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _sections(report: Report, drawn: list[Figure]) -> Iterator[dict[str, Any]]:
    extra = {name: bool(getattr(report, name)) for name in _TABLES}
    extra |= {"timeline": bool(report.timelines), "stacks": bool(report.icicles)}
    for key, heading in SECTIONS:
        members = [figure for figure in drawn if figure.key.startswith(key)]
        if members or extra.get(key):
            yield {"key": key, "heading": heading, "figures": members}


def _when(report: Report) -> str:
    """Return the devices and dates of the runs."""
    devices = dict.fromkeys(facts.device for facts in report.runs if facts.device)
    days = sorted({facts.date[:10] for facts in report.runs if facts.date})
    ends = dict.fromkeys([days[0], days[-1]]) if days else {}
    return " · ".join(text for text in (", ".join(devices), " … ".join(ends)) if text)


#: Additions to the meanings of kinds of time in ``causes.KINDS``.
_INCLUDED = {
    causes.GEMM: "also convolutions, attention and recurrent layer ops",
    causes.MEMORY: "also the loss, the optimizer and random numbers",
    causes.LAUNCH: "launch calls and launch latency",
    causes.DISPATCH: "also ops too short to compute anything",
    causes.SYNC: "also reading values one by one",
    causes.CAST: "also the dispatch of casts",
    causes.COPY: "also the dispatch of copies",
    causes.INPUT: "whatever runs while the input is prepared",
}


def _kinds() -> list[tuple[str, str]]:
    """Return the name and the meaning of each kind of time, such as dispatch."""
    meanings = ((kind, words, _INCLUDED.get(kind)) for kind, words in causes.KINDS.items())
    return [
        (causes.shown(kind), f"{words}; {more}" if more else words)
        for kind, words, more in meanings
    ]


def _data(report: Report, drawn: list[Figure]) -> dict[str, Any]:
    """Return the data for the page's scripts: specifications of charts, and rows of tables."""
    return {
        "figures": {figure.key: figure.spec for figure in drawn},
        "parts": table(
            [
                {"name": p.name, "words": p.shown, "light": p.colour, "dark": p.dark}
                for p in PARTS.values()
            ]
        ),
        "pairs": [
            {
                "fast": shown_name(pair.fast.name),
                "slow": shown_name(pair.slow.name),
                "said": shown_name(waterfall.sentence(pair), 2000),
                "caption": waterfall.caption(pair),
                "bars": table(waterfall.bars(pair.rows, pair.fast.name, pair.slow.name)),
            }
            for pair in report.pairs
        ],
        "kernels": table(report.kernels, KERNELS),
        "stacks": [stacks(icicle) for icicle in report.icicles],
        "runs": [shown_name(facts.run) for facts in report.runs],
    }


def _undrawn(report: Report) -> Iterator[str]:
    for facts in report.runs:
        drawn = {timeline.rank for timeline in report.timelines if timeline.run == facts.run}
        if len(drawn) < facts.ranks:
            yield f"{facts.run}: the timelines show {len(drawn)} of {facts.ranks} ranks."


def _parts_of(drawn: Sequence[Timeline | Icicle]) -> list[str]:
    """Return the parts of the breakdown that occur in these pictures, busy before idle."""
    codes = {(d.parts, code) for d in drawn for code in set(d.columns["part"]) if code >= 0}
    return sorted({parts[code] for parts, code in codes}, key=order_of)


#: Height of a box in a picture of call stacks in pixels, as in icicle.js.
_BOX = 22
#: Height of a counter in a timeline in pixels, as in timeline.js.
_LANE = 36


def table(rows: Rows, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return rows for the page's scripts, as names of columns and lists of values."""
    safe = shown(rows, columns)
    names = list(safe[0]) if safe else []
    return {"columns": names, "rows": [[row[name] for name in names] for row in safe]}


def script_json(value: Any) -> str:
    """Return JSON in which ``</script>`` cannot occur."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline for the page's scripts: compressed JSON in base64."""
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
    """Return the name of a timeline within its run: ``rank 1, step 3, median length``."""
    rank = None if timeline.rank is None else f"rank {timeline.rank}"
    step = "the whole profile" if timeline.step is None else f"step {timeline.step}"
    why = timeline.which if timeline.step is not None else None
    return ", ".join(text for text in (rank, step, why) if text)


def stacks(icicle: Icicle) -> dict[str, Any]:
    """Return a picture of call stacks for the page's scripts."""
    names = list(icicle.columns)
    rows = [list(row) for row in zip(*icicle.columns.values(), strict=True)]
    return {
        "run": shown_name(icicle.run),
        "what": icicle.what,
        "said": shown_name(icicle.sentence, 2000),
        "fast": shown_name(icicle.fast),
        "slow": shown_name(icicle.slow),
        "total_ns": icicle.total_ns,
        "names": list(icicle.names),
        "parts": list(icicle.parts),
        "boxes": {"columns": names, "rows": rows},
    }


def timeline_height(report: Report) -> int:
    """Return the height in pixels that timeline.js gives to the first timeline."""
    first = report.timelines[0] if report.timelines else None
    tracks, lanes = (first.tracks, first.lanes) if first else ((), ())
    heights = {"account": 26, "stream": 18, "host": 13}
    tracked = sum(heights[t.kind] + (19 if t.label else 0) for t in tracks)
    return 26 + tracked + len(lanes) * (_LANE + 19)


def stacks_height(report: Report) -> int:
    """Return the height in pixels that icicle.js gives to the first icicle."""
    depth: list[int] = []
    for above in report.icicles[0].columns["above"] if report.icicles else ():
        depth.append(depth[above] + 1 if above >= 0 else 1)
    return _BOX * max(depth, default=0)


def _differences(values: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]

"""The page: one HTML file with its charts, tables and scripts inside, and nothing outside.

::

    figures, rows ─ page.html, page.css, page.js, timeline.js ─▶ one file

Jinja2 escapes every text; data are JSON in which no ``</script>`` can occur; the policy in the head
forbids the browser any request. Vega comes from vl-convert, which takes seconds to bundle it: the
bundle is kept in the cache, for each version of vl-convert.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.metadata
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lstmprof.breakdown.mean_step import WAITS_FOR_HOST
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.errors import RunError
from lstmprof.numbers import listed, milliseconds, shown_name, with_short_names
from lstmprof.report.charts import figures, waterfall
from lstmprof.report.drawing import shown
from lstmprof.report.model import Figure, Report, Rows, Timeline
from lstmprof.report.palette import BUSY, COMPARED, IDLE, PARTS
from lstmprof.runs.directory import cache_folder
from lstmprof.scratch import check_file, write_file

#: Sections in reading order: (id, heading); a figure is in the section that its key begins with,
#: but those of the times, which stand beside the verdicts.
SECTIONS = (
    ("ledger", "Where the step goes"),
    ("waterfall", "From one run to another"),
    ("layers", "Recurrent layers"),
    ("timeline", "One step in time"),
    ("launch-gaps", "Kernels and launches"),
    ("casts", "Casts"),
    ("versions", "By version"),
    ("sweep", "The sweep"),
    ("roofline", "Share of the roofline"),
    ("stability", "Stability of the timings"),
    ("kernels", "What takes the time"),
)
#: Classes of page.css for the room that a section's charts need besides their height, so that
#: nothing moves when they are drawn: higher rows on a phone, and what stands beneath a chart.
_ROOM = {
    "times": "tall",
    "ledger": "tall choice",
    "waterfall": "tall",
    "casts": "tall",
    "roofline": "tall",
    "stability": "tall scale",
    "versions": "tall",
    "sweep": "taller",
}
#: Columns of the table of what takes the time.
KERNELS = ("run", "rank", "device", "name", "category", "count", "total_ns", "p50_ns", "share")
#: With more of them only those of the largest group are unfolded.
MOST_VERDICTS = 8
_HERE = Path(__file__).parent


def page(report: Report) -> str:
    """The HTML of ``report``."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True)
    environment.filters["shown"] = shown_name
    environment.filters["milliseconds"] = milliseconds
    drawn = figures(report)
    return environment.get_template("page.html").render(
        report=report,
        sections=list(_sections(report, drawn)),
        verdicts=_verdicts(report, drawn),
        when=_when(report),
        parts=PARTS,
        room=_ROOM,
        places=[c for c in ("rank", "device") if len({row[c] for row in report.kernels}) > 1],
        folded=len(report.diagnoses) > MOST_VERDICTS,
        timeline_height=_timeline_height(report),
        glossary=(("Busy", BUSY), ("Idle", IDLE), ("Elsewhere", COMPARED)),
        waits=listed(list(WAITS_FOR_HOST)),
        data=script_json(_data(report, drawn)),
        timelines=[_packed(timeline) for timeline in report.timelines],
        vega=vega(),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        scripts=[(_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS],
    )


_SCRIPTS = ("timeline.js", "tables.js", "page.js")


def write(report: Report, path: Path, *, force: bool = False) -> int:
    """Write the page to ``path``, whole or not at all; its size in bytes.

    Raises:
        RunError: ``path`` is there already and ``force`` is not given, or cannot be written.
    """
    refuse(path, force=force)
    return save(page(report), path)


def save(html: str, path: Path) -> int:
    """Write ``html`` to ``path``, whole or not at all; its size in bytes.

    Raises:
        RunError: ``path`` cannot be written.
    """
    content = html.encode()
    try:
        write_file(path, content)
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "give an -o that can be written") from fault
    return len(content)


def refuse(path: Path, *, force: bool) -> None:
    """Nothing where the page may be written to ``path``.

    Raises:
        RunError: it is there already and ``force`` is not given, or it is no plain file.
    """
    check_file(path, force=force, next_step="give --force to replace it, or another -o")


def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed for the browser, as vl-convert has them, safe in a script."""
    kept = cache_folder() / f"vega-{importlib.metadata.version('vl-convert-python')}.js"
    try:
        bundle = kept.read_bytes().decode()
    except OSError:
        bundle = _bundled_vega()
        with contextlib.suppress(OSError):  # a cache that cannot be written
            write_file(kept, bundle.encode())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _bundled_vega() -> str:
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _sections(report: Report, drawn: list[Figure]) -> Iterator[dict[str, Any]]:
    extra = {name: bool(getattr(report, name)) for name in ("layers", "kernels")}
    extra["timeline"] = bool(report.timelines)
    for key, heading in SECTIONS:
        members = [figure for figure in drawn if figure.key.startswith(key)]
        if members or extra.get(key):
            yield {"key": key, "heading": heading, "figures": members}


def _when(report: Report) -> str:
    """On what the runs ran, and when: where they say so."""
    devices = dict.fromkeys(facts.device for facts in report.runs if facts.device)
    days = sorted({facts.date[:10] for facts in report.runs if facts.date})
    ends = dict.fromkeys([days[0], days[-1]]) if days else {}
    return " · ".join(text for text in (", ".join(devices), " … ".join(ends)) if text)


def _verdicts(report: Report, drawn: list[Figure]) -> list[dict[str, Any]]:
    """The diagnoses of each group under its conditions, the figure of its times beside them.

    What makes the times of a run doubtful is said once a group, not in each of its diagnoses.
    """
    times = {figure.key: figure for figure in drawn}
    groups = []
    for group in report.groups:
        diagnoses = [d for d in report.diagnoses if d.slow.name in group.runs]
        doubts = [text for diagnosis in diagnoses for text in _doubts(diagnosis)]
        groups.append(
            {
                "conditions": group.conditions,
                "verdicts": [_verdict(diagnosis) for diagnosis in diagnoses],
                "doubts": list(dict.fromkeys(doubts)),
                "times": times.get(f"times-{group.number}"),
            }
        )
    return groups


def _doubts(diagnosis: Diagnosis) -> list[str]:
    """Its warnings, each behind what its run is called."""
    if diagnosis.fast is None:
        return [f"{diagnosis.slow.label}: {text}" for text in diagnosis.warnings]
    return list(diagnosis.warnings)


def _verdict(diagnosis: Diagnosis) -> dict[str, Any]:
    """What is said in a diagnosis, long names of kernels shortened."""
    profiles = [profile for profile in (diagnosis.fast, diagnosis.slow) if profile]
    names = [row["name"] for profile in profiles for row in profile.rows("kernels")]
    return {
        "short": diagnosis.verdict,
        "certainty": diagnosis.certainty,
        "lacks": diagnosis.lacking,
        "sentence": with_short_names(diagnosis.sentence, names),
        "causes": [
            {
                "kind": cause.finding.kind,
                "sentence": with_short_names(cause.sentence, names),
                "remedies": [
                    {"sentence": with_short_names(a.text, names), "source": a.source}
                    for a in cause.remedies
                ],
            }
            for cause in diagnosis.shown
        ],
        "notes": diagnosis.notes,
    }


def _data(report: Report, drawn: list[Figure]) -> dict[str, Any]:
    """What the scripts draw from."""
    return {
        "figures": {figure.key: figure.spec for figure in drawn},
        "parts": _table(
            [{"name": p.name, "light": p.colour, "dark": p.dark} for p in PARTS.values()]
        ),
        "pairs": [
            {
                "fast": shown_name(pair.fast.name),
                "slow": shown_name(pair.slow.name),
                "said": shown_name(waterfall.sentence(pair), 2000),
                "caption": waterfall.caption(pair, report),
                "bars": _table(waterfall.bars(pair.rows)),
            }
            for pair in report.pairs
        ],
        "kernels": _table(report.kernels, KERNELS),
        "runs": [shown_name(facts.run) for facts in report.runs],
    }


def _table(rows: Rows, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """``rows`` for the scripts, which read them by the names of their columns."""
    safe = shown(rows, columns)
    names = list(safe[0]) if safe else []
    return {"columns": names, "rows": [[row[name] for name in names] for row in safe]}


def script_json(value: Any) -> str:
    """``value`` as JSON that no HTML parser can leave early: ``</script>`` cannot occur in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _packed(timeline: Timeline) -> dict[str, Any]:
    """A timeline for the page: columns of differences, deflated, in base64."""
    columns = dict(timeline.columns)
    columns["start_ns"] = _differences(columns["start_ns"])
    columns["dur_ns_of"] = columns.pop("dur_ns")
    content = {
        "run": shown_name(timeline.run),
        "step": timeline.step,
        "dur_ns": timeline.dur_ns,
        "tracks": _table([asdict(track) for track in timeline.tracks]),
        "names": list(timeline.names),
        "parts": list(timeline.parts),
        "left_out": timeline.left_out,
        "facts": {
            name: {"texts": texts, "places": places}
            for name, (texts, places) in timeline.facts.items()
        },
        **columns,
    }
    packed = base64.b64encode(zlib.compress(script_json(content).encode(), 9)).decode()
    return {"run": timeline.run, "which": _which(timeline), "packed": packed}


def _which(timeline: Timeline) -> str:
    """``rank 1, step 3, of median length``: what tells a timeline from others of its run."""
    rank = None if timeline.rank is None else f"rank {timeline.rank}"
    step = "the whole profile" if timeline.step is None else f"step {timeline.step}"
    why = timeline.which if timeline.step is not None else None
    return ", ".join(text for text in (rank, step, why) if text)


def _timeline_height(report: Report) -> int:
    """Pixels of the first timeline, as timeline.js lays it out, so that the page does not jump."""
    tracks = report.timelines[0].tracks if report.timelines else ()
    heights = {"account": 26, "stream": 18, "host": 13}
    return 26 + sum(heights[t.kind] + (19 if t.label else 0) for t in tracks)


def _differences(values: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *values], values, strict=False)]

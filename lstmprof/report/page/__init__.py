"""The page: one HTML file with its charts, tables and scripts inside, and nothing outside.

::

    figures, rows ─ page.html, page.css, page.js, timeline.js … ─▶ one file

Jinja2 escapes every text; data are JSON in which no ``</script>`` can occur; the policy in the head
forbids the browser any request. Vega comes from vl-convert, which takes seconds to bundle it: the
bundle is kept in the cache, for each version of vl-convert.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lstmprof.breakdown.mean_step import WAITS_FOR_HOST, lane_words
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.errors import RunError
from lstmprof.numbers import listed, milliseconds, shown_name, with_short_names
from lstmprof.report.charts import figures, waterfall
from lstmprof.report.model import Figure, Icicle, Report, Timeline
from lstmprof.report.page.sent import (
    packed,
    script_json,
    stacks,
    stacks_height,
    table,
    timeline_height,
)
from lstmprof.report.palette import FAMILIES, PARTS, families_of, order_of
from lstmprof.runs.directory import cache_folder
from lstmprof.scratch import check_file, write_file

#: Sections in reading order: (id, heading); a figure is in the section that its key begins with,
#: but those of the times, which stand beside the verdicts.
SECTIONS = (
    ("ledger", "Where the step goes"),
    ("waterfall", "From one run to another"),
    ("layers", "Recurrent layers"),
    ("timeline", "One step in time"),
    ("stacks", "Who called whom"),
    ("ranks", "Ranks"),
    ("launch-gaps", "Kernels and launches"),
    ("casts", "Casts"),
    ("versions", "By version"),
    ("sweep", "The sweep"),
    ("roofline", "Share of the roofline"),
    ("stability", "Stability of the timings"),
    ("kernels", "What takes the time"),
)
#: Classes of page.css for the room that charts of a section or kind need besides their height: so
#: nothing moves when they are drawn. Higher rows on a phone, and what stands beneath a chart.
_ROOM = {
    "times": "tall",
    "ledger": "tall choice",
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
        families=FAMILIES,
        families_of=families_of,
        timeline_parts=_parts_of(report.timelines),
        undrawn=list(_undrawn(report)),
        stacks_parts=_parts_of(report.icicles),
        stacks_height=stacks_height(report),
        stacks_hint=_HINT,
        room=_ROOM,
        places=[c for c in ("rank", "device") if len({row[c] for row in report.kernels}) > 1],
        folded=len(report.diagnoses) > MOST_VERDICTS,
        timeline_height=timeline_height(report),
        waits=listed(list(WAITS_FOR_HOST)),
        lane_words=lane_words,
        data=script_json(_data(report, drawn)),
        timelines=[packed(timeline) for timeline in report.timelines],
        vega=vega(),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        scripts=[(_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS],
    )


_HINT = (
    "A click, or Enter, makes a box as wide as the picture, a second one shows the whole again, as "
    "Escape does. The arrows lead to what is around, inside and beside a box."
)
_SCRIPTS = ("timeline.js", "icicle.js", "tables.js", "page.js")


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
        raise RunError(f"{path}: {fault.strerror}", "choose a writable -o") from fault
    return len(content)


def refuse(path: Path, *, force: bool) -> None:
    """Nothing where the page may be written to ``path``.

    Raises:
        RunError: it is there already and ``force`` is not given, or it is no plain file.
    """
    check_file(path, force=force, next_step="add --force to overwrite it, or choose another -o")


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
    extra = {name: bool(getattr(report, name)) for name in ("layers", "ranks", "kernels")}
    extra |= {"timeline": bool(report.timelines), "stacks": bool(report.icicles)}
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
    """Return a card: the verdict, its fixes, the findings; long kernel names shortened."""
    profiles = [profile for profile in (diagnosis.fast, diagnosis.slow) if profile]
    names = [row["name"] for profile in profiles for row in profile.rows("kernels")]
    verdict = diagnosis.verdict
    return {
        "short": with_short_names(verdict.head, names),
        "certainty": verdict.certainty,
        "lacks": diagnosis.lacking,
        "sentences": [with_short_names(diagnosis.sentence, names)],
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
        "parts": table(
            [{"name": p.name, "light": p.colour, "dark": p.dark} for p in PARTS.values()]
        ),
        "pairs": [
            {
                "fast": shown_name(pair.fast.name),
                "slow": shown_name(pair.slow.name),
                "said": shown_name(waterfall.sentence(pair), 2000),
                "caption": waterfall.caption(pair, report),
                "bars": table(waterfall.bars(pair.rows)),
            }
            for pair in report.pairs
        ],
        "kernels": table(report.kernels, KERNELS),
        "stacks": [stacks(icicle) for icicle in report.icicles],
        "runs": [shown_name(facts.run) for facts in report.runs],
    }


def _undrawn(report: Report) -> Iterator[str]:
    """A sentence for each run of which not every rank has a timeline."""
    for facts in report.runs:
        drawn = {timeline.rank for timeline in report.timelines if timeline.run == facts.run}
        if len(drawn) < facts.ranks:
            yield f"Of the {facts.ranks} ranks of {facts.run} {len(drawn)} are drawn."


def _parts_of(drawn: Sequence[Timeline | Icicle]) -> list[str]:
    """The parts that anything in these has."""
    codes = {(d.parts, code) for d in drawn for code in set(d.columns["part"]) if code >= 0}
    return sorted({parts[code] for parts, code in codes}, key=order_of)

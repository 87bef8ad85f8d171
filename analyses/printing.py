"""Answer one question on the command line: print its table and claims, write its chart."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

import lstmprof as lp
from analyses import title
from analyses.claims import Claim, Measured, number
from lstmprof.base.errors import LstmprofError
from lstmprof.runs.run import is_run, run_folders_in

UNKNOWN = "–"


def main(analysis: ModuleType, arguments: Sequence[str] | None = None) -> None:
    """Answer the question of ``analysis`` with the runs on the command line."""
    parser = argparse.ArgumentParser(description=title(analysis))
    parser.add_argument("runs", nargs="+", help="a run, or a folder of runs, or of such folders")
    parser.add_argument("--chart", type=Path, help="the chart's file: .html, .svg, .png or .json")
    given = parser.parse_args(arguments)
    name = Path(str(analysis.__file__)).stem
    path = given.chart or Path(f"{name}.svg")
    try:
        runs = runs_of(given.runs)
        rows = analysis.table(runs)
        print(answer(analysis, rows))
        if not len(rows):
            return
        write_chart(analysis.chart, rows, path)
    except (LstmprofError, OSError) as fault:
        sys.exit(f"analyses: error: {fault}")
    print(f"wrote {path}", file=sys.stderr)


def runs_of(named: Sequence[str]) -> list[lp.Run]:
    """Read the runs at the paths ``named``; a path may be a folder of runs."""
    folders = [inner for name in named for inner in (Path(name), *_folders_of_runs(Path(name)))]
    return lp.read_all(folders)


def _folders_of_runs(folder: Path) -> list[Path]:
    if not folder.is_dir() or is_run(folder):
        return []
    inner = [place for place in sorted(folder.iterdir()) if place.is_dir() and not is_run(place)]
    return [place for place in inner if not place.name.startswith(".") and run_folders_in(place)]


#: Free pixels at the left of a chart, for browsers with wider fonts.
_LEFT = 40


def write_chart(chart: Callable[[pd.DataFrame], Any], rows: pd.DataFrame, path: Path) -> None:
    """Write the chart of ``rows`` to a file; an HTML file needs no internet."""
    drawn = chart(rows).properties(padding={"left": _LEFT, "top": 5, "right": 20, "bottom": 5})
    drawn.save(str(path), **({"inline": True} if path.suffix == ".html" else {}))


def answer(analysis: ModuleType, rows: pd.DataFrame) -> str:
    """Return a question's table, claims and conclusion, as text."""
    claims: list[Claim] = analysis.claims(rows)
    parts = [title(analysis), plain(rows)]
    if claims:
        parts.append(plain(pd.DataFrame([_cells(claim) for claim in claims])))
    parts += reasons(claims)
    if not len(rows) or not any(claim.our_number for claim in claims):
        parts.append(f"Capture what is compared: {analysis.COMMAND}")
    if commands := settling(claims):
        parts.append("\n".join(["To settle the rest:", *commands]))
    parts.append(f"{analysis.conclusion(rows)}.")
    return "\n\n".join(parts) + "\n"


def settling(claims: Sequence[Claim]) -> list[str]:
    """Return the commands that measure the claims that need a GPU."""
    return [*dict.fromkeys(claim.command for claim in claims if claim.kind == "needs a GPU")]


def reasons(claims: Sequence[Claim]) -> list[str]:
    """Return why our numbers differ from the studies'."""
    differ = [claim for claim in claims if claim.kind == "differs here" and claim.why]
    return [f"Why: {why}." for why in dict.fromkeys(claim.why for claim in differ)]


def _cells(claim: Claim) -> dict[str, str]:
    return {
        "claim": claim.says,
        "study": " = ".join(filter(None, (claim.raw, claim.their_number))),
        "here": claim.our_number,
        "of": claim.here,
        "verdict": claim.verdict,
    }


def shown(value: object) -> str:
    if isinstance(value, Measured):
        return value.text()
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return UNKNOWN
    return number(value) if isinstance(value, float) else str(value)


def plain(rows: pd.DataFrame) -> str:
    return rows.map(shown).to_string(index=False) if len(rows) else "No run here answers it."

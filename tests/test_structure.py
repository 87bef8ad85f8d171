"""The way of the data is one way: no folder imports its sibling, tables list what is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lstmprof
from lstmprof.commands import VERBS
from lstmprof.report import CHARTS

PACKAGE = Path(lstmprof.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
#: What any folder may import of the package, besides itself.
SHARED = {
    *("errors", "events", "narrow_columns", "store", "stored_events"),
    *("workloads", "named_workloads"),
    "implementations",
}
#: The files and the folder that join the stages.
JOINING = {
    *(
        "account_rows",
        "api",
        "cases",
        "diagnoses",
        "limits",
        "reporting",
        "what_ifs",
        "ingest",
        "ingest_jobs",
        "ingested_run",
        "sweep",
    ),
    *("cli", "commands", "__main__"),
}


def imported(path: Path) -> set[str]:
    """First names under ``lstmprof`` that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "lstmprof":
                names |= {f"lstmprof.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("lstmprof.")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_folder_imports_its_sibling(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own in JOINING:
        return
    allowed = SHARED if own not in SHARED else SHARED - {"implementations"}
    assert imported(path) <= allowed | {own, "__version__"}


def test_every_command_file_is_a_verb_or_serves_one() -> None:
    verbs = {name.rsplit(".", 1)[1] for name in VERBS.values()}
    files = {p.stem for p in (PACKAGE / "commands").glob("*.py")} - {"__init__"}
    assert verbs <= files
    assert all(any(f.startswith(verb + "_") for verb in verbs) for f in files - verbs)


def test_every_chart_is_in_the_table_and_in_a_file() -> None:
    files = {p.stem for p in (PACKAGE / "report" / "charts").glob("*.py")} - {"__init__"}
    assert files == set(CHARTS)

"""The way of the data is one way: a stage imports only stages to its left; tables list files."""

from __future__ import annotations

import ast
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import lstmprof
from lstmprof.commands import VERBS
from lstmprof.report.charts import CHARTS

PACKAGE = Path(lstmprof.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
STAGES = (  # noqa: SIM905 - the order, as one reads it
    "base workloads implementations events formats runs capture "
    "breakdown export diagnose report api commands cli"
).split()


def imported(path: Path) -> set[str]:
    """The stages that a file imports."""
    return parts_after("lstmprof", path) & {*STAGES, "__main__"}


def parts_after(package: str, path: Path) -> set[str]:
    """First names under ``package`` that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    within = package + "."
    return {n.removeprefix(within).split(".")[0] for n in names if n.startswith(within)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_stage_imports_only_stages_to_its_left(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own not in ("__init__", "__main__"):
        assert imported(path) <= {*STAGES[: STAGES.index(own) + 1]}


@pytest.mark.parametrize(
    "stage", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
)
def test_no_two_rooms_of_a_stage_import_each_other(stage: str) -> None:
    rooms: dict[str, set[str]] = {}
    for path in (PACKAGE / stage).rglob("*.py"):
        own = path.relative_to(PACKAGE / stage).parts[0].removesuffix(".py")
        if own != "__init__":
            rooms.setdefault(own, set()).update(parts_after(f"lstmprof.{stage}", path) - {own})
    list(TopologicalSorter(rooms).static_order())  # raises CycleError


def test_every_command_file_is_a_verb_or_serves_one() -> None:
    commands = PACKAGE / "commands"
    rooms = {room for room, _ in VERBS.values()}
    files = {(p.parent.name, p.stem) for room in rooms for p in (commands / room).glob("*.py")}
    files = {(room, name) for room, name in files if name != "__init__"}
    assert files == {(room, verb) for verb, (room, _) in VERBS.items()}
    assert {p.stem for p in commands.glob("*.py")} == {"__init__", "completion", "options"}


def test_every_chart_is_in_the_table_and_in_a_file() -> None:
    files = {p.stem for p in (PACKAGE / "report" / "charts").glob("*.py")} - {"__init__"}
    assert files == set(CHARTS)


#: What is brought by an extra: frameworks, and what ``to_polars`` and the cluster need.
OF_EXTRAS = {
    *("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "equinox", "haiku", "pytensor"),
    *("onnx", "onnxruntime", "openvino", "polars"),
    *("theano", "lasagne", "chainer", "mxnet", "caffe2"),  # of other interpreters
    *("dask", "distributed", "lightning", "pytorch_lightning", "transformers", "mcp"),
}


def test_what_is_imported_is_installed_with_it() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {name.split(">")[0].lower() for name in project["dependencies"]}
    roots = {root for path in FILES for root in roots_of(path)} - sys.stdlib_module_names
    brought = {root for name in declared for root in brought_by(name)}
    assert not roots - OF_EXTRAS - {"lstmprof", "google"} - brought


def brought_by(name: str) -> set[str]:
    """What the distribution of this name can be imported as: to look at every other takes seconds.

    Of one that this system does without, its own name.
    """
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return {name}
    return {file.parts[0].partition(".")[0] for file in files}


def roots_of(path: Path) -> set[str]:
    """First parts of all names that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}

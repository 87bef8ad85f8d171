"""Every name of torch and of JAX that a worker uses is there, on the paths of a GPU too.

A branch that only a GPU takes would tell of a wrong name there and nowhere else.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lstmprof

PACKAGE = Path(lstmprof.__file__).parent
FILES = [
    *sorted((PACKAGE / "capture" / "worker").rglob("*.py")),
    *sorted((PACKAGE / "implementations").rglob("*.py")),
]
ROOTS = ("torch", "jax")


def dotted(node: ast.expr) -> str | None:
    """``torch.cuda.Event`` of an expression that is nothing but names."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else None
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else None


def names_in(path: Path, root: str) -> set[str]:
    """The names under ``root`` that a file uses, however long."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name for name in found if name and name.startswith(f"{root}.")}


def used() -> Iterator[tuple[str, str, str]]:
    for path in FILES:
        for root in ROOTS:
            for name in sorted(names_in(path, root)):
                yield path.stem, root, name


def test_the_names_that_only_a_gpu_needs_are_among_them() -> None:
    names = {name for _, _, name in used()}
    assert {"torch.cuda.Event", "torch.cuda.CUDAGraph", "torch.cuda.graph"} <= names
    assert {"jax.devices", "jax.profiler.start_trace"} <= names


@pytest.mark.parametrize("root", ROOTS)
def test_every_name_is_there(root: str) -> None:
    framework = pytest.importorskip(root)
    unknown = [
        (file, name) for file, of, name in used() if of == root and not there(framework, name)
    ]
    assert unknown == []


def there(framework: Any, name: str) -> bool:
    """Whether ``name`` is an attribute, or a module, of what it says."""
    found = framework
    parts = name.split(".")
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ImportError:
                return False
        found = getattr(found, part)
    return True

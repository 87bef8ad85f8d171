"""Read the user's file that builds a network: ``--impl mymodel.py:build``.

This module only parses the file. The worker executes the file (``worker.users_file``).
"""

from __future__ import annotations

# use only Python 3.7 and no packages, because workers import this module
import ast
import dataclasses
import hashlib
import os
import re
from typing import Iterator, Optional, Set, Tuple

from lstmprof import implementations
from lstmprof.base.errors import UsageError, unknown_name
from lstmprof.implementations import UNUSUAL, Implementation

#: Frameworks that can train a user's network. Keras runs on one of these frameworks.
FRAMEWORKS = ("torch", "tensorflow", "jax")
#: Imported package -> framework; a file that imports only Keras runs on TensorFlow.
_FRAMEWORK_OF_IMPORT = {name: name for name in FRAMEWORKS}
_FRAMEWORK_OF_IMPORT.update(
    {"flax": "jax", "equinox": "jax", "haiku": "jax", "keras": "tensorflow"}
)
BUILD = "build"
#: Frameworks for which lstmprof has an example file that users can start from.
TEMPLATES = ("torch", "tensorflow", "keras", "jax")
_TEMPLATE = "`lstmprof list --template torch` prints a template"


@dataclasses.dataclass(frozen=True)
class ImplementationFile:
    """A user's file, and its function that builds the network."""

    path: str
    function: str
    framework: str  # one of FRAMEWORKS
    sha256: str  # hash of the file at the time of the request

    @property
    def file_name(self) -> str:
        return os.path.basename(self.path)

    @property
    def name(self) -> str:
        """Return the name for runs: ``mymodel.py:small`` -> ``mymodel-small``."""
        stem = os.path.splitext(self.file_name)[0]
        name = stem if self.function == BUILD else "{}-{}".format(stem, self.function)
        name = re.sub(r"[^\w.=+-]+", "-", name).lstrip(".") or BUILD
        return "own-" + name if name in implementations.ROWS else name

    @property
    def row(self) -> Implementation:
        """Return the file as an implementation that supports every workload."""
        summary = "{} of {}".format(self.function, self.file_name)
        return Implementation(
            self.name, "", "", summary, knows=tuple(UNUSUAL), runs_on=self.framework
        )


def is_file(text: str) -> bool:
    return bool(re.search(r"\.py(:[^/\\:]*)?\Z", text))


def implementation_file(text: str) -> ImplementationFile:
    """Parse ``path.py`` or ``path.py:function``, and check the file."""
    path, function = _parts(text)
    name = os.path.basename(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError("{}: is not a regular file".format(path), _TEMPLATE)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as fault:
        raise UsageError("{}: {}".format(path, fault.strerror), _TEMPLATE) from fault
    try:
        tree = ast.parse(content, name)
    except (SyntaxError, ValueError) as fault:
        line = getattr(fault, "lineno", None)
        place = "{}:{}".format(name, line) if line else name
        reason = getattr(fault, "msg", None) or str(fault)
        raise UsageError(
            "{}: is not valid Python: {}".format(place, reason), "correct the file"
        ) from None
    names = set(_names(tree))
    if function not in names and "*" not in names:
        near = (
            "; its functions are " + ", ".join(sorted(_functions(tree))[:8])
            if _functions(tree)
            else ""
        )
        raise UsageError(
            "{}: has no function {}(workload){}".format(name, function, near),
            "add it, or name another function: {}:function; {}".format(name, _TEMPLATE),
        )
    digest = hashlib.sha256(content).hexdigest()
    return ImplementationFile(os.path.abspath(path), function, _framework(tree, name), digest)


def _parts(text: str) -> Tuple[str, str]:
    path, colon, function = text.rpartition(":")
    return (path, function or BUILD) if colon and path.endswith(".py") else (text, BUILD)


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file defines or imports; ``*`` for ``from x import *``."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]


def _functions(tree: ast.Module) -> Set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _framework(tree: ast.Module, name: str) -> str:
    """Return the framework that a file states (``FRAMEWORK``) or imports."""
    stated = _stated_framework(tree)
    if stated is not None:
        if stated not in FRAMEWORKS:
            raise unknown_name("FRAMEWORK of {}".format(name), stated, FRAMEWORKS)
        return stated
    roots = list(_imported(tree))
    # look for Keras last, because a file that uses Keras on JAX or PyTorch imports both
    for root in [root for root in roots if root != "keras"] + roots:
        if root in _FRAMEWORK_OF_IMPORT:
            return _FRAMEWORK_OF_IMPORT[root]
    raise UsageError(
        "{}: imports none of {}, keras and flax".format(name, ", ".join(FRAMEWORKS)),
        'add FRAMEWORK = "torch" (or another of these) to the file',
    )


def _stated_framework(tree: ast.Module) -> Optional[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and "FRAMEWORK" in map(_name, node.targets):
            try:
                return str(ast.literal_eval(node.value))
            except ValueError:
                return None
    return None


def _name(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def template_text(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "templates", name + ".py")
    with open(path, encoding="utf-8") as file:
        return file.read()

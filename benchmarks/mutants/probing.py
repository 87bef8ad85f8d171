"""Insert probes into a module: calls that report that a test has executed a mutant's code.

A test can notice a fault within a function if it executes the faulty statement. It can notice a
fault outside of functions if it calls a function that reads the name bound there; for a public
name, this is any function of the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

Position = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Name of the builtin function that probes call with the mutant's number.
REACHED = "lstmprof_mutant_is_reached"


def is_within_function(source: str, position: Position) -> bool:
    """Return whether ``position`` is in a function's body, whose code can be replaced in memory."""
    return _function_at(ast.parse(source), position) is not None


def has_functions(source: str) -> bool:
    """Return whether the module has functions, so that probes can see whether a test uses it."""
    return any(_functions(ast.parse(source)))


def probed(source: str, positions: Mapping[int, Position]) -> ast.Module:
    """Return the module with a probe before the statement of each mutant.

    ``positions`` maps a mutant's number to its (line, column).
    """
    module = ast.parse(source)
    places: list[tuple[list[ast.stmt], ast.stmt, int]] = []
    for number, position in positions.items():
        function = _function_at(module, position)
        if function is not None:
            places.append((*_innermost(function, position), number))
            continue
        for reader in _readers(module, position):
            places.append((reader.body, _first(reader), number))
    for body, statement, number in places:
        call = ast.parse(f"{REACHED}({number})").body[0]
        for node in ast.walk(call):
            ast.copy_location(node, statement)
        body.insert(body.index(statement), call)
    return module


def _functions(node: ast.AST) -> Iterator[Function]:
    """Yield the functions in ``node`` that are not inside another function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from _functions(child)


def _function_at(module: ast.Module, position: Position) -> Function | None:
    return next(
        (
            function
            for function in _functions(module)
            if _begin(function.body[0]) <= position < _end(function)
        ),
        None,
    )


def _innermost(function: Function, position: Position) -> tuple[list[ast.stmt], ast.stmt]:
    """Return (list of statements that contains it, innermost statement at ``position``)."""
    around = [
        (body, statement)
        for node in ast.walk(function)
        for body in _bodies(node)
        for statement in body
        if _begin(statement) <= position < _end(statement)
    ]
    return max(around, key=lambda place: _begin(place[1]))


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def _first(function: Function) -> ast.stmt:
    """Return the first statement after the docstring; the docstring if there is no other."""
    has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[1 if has_docstring else 0]


def _readers(module: ast.Module, position: Position) -> list[Function]:
    """Return the functions that the code at ``position`` can affect; it is outside of functions."""
    functions = [*_functions(module)]
    heads = [f for f in functions if _head(f) <= position < _begin(f.body[0])]
    if heads:
        return heads
    names = _bound(next(s for s in module.body if _head(s) <= position < _end(s)))
    while all(name.startswith("_") for name in names):
        more = {n for s in module.body if _loads(s) & names for n in _bound(s)} - names
        if not more:
            return [f for f in functions if _loads(f) & names] or functions
        names |= more
    return functions


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names of variables and classes that a module-level statement binds."""
    if isinstance(statement, Function):
        return set()
    if isinstance(statement, ast.ClassDef):
        return {statement.name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _begin(node: ast.stmt) -> Position:
    return node.lineno, node.col_offset


def _head(node: ast.stmt) -> Position:
    """Return the position where ``node`` begins, including its decorators."""
    decorators = getattr(node, "decorator_list", [])
    return min((d.lineno, 0) for d in decorators) if decorators else _begin(node)


def _end(node: ast.stmt) -> Position:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset

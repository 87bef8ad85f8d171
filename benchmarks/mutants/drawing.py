"""The mutants of an area, drawn from a seed: first a place in the code, then what is done to it.

What cosmic-ray's operators can do at most places is much of the same (eleven other operators for
each ``+``), so that a draw of mutants would be one of ``+`` signs: places are drawn instead.
Left out is what mypy checks and no run: annotations, and whether a class is frozen.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

#: The faults that people make, as cosmic-ray names them; ``==`` turned to ``>>`` is none.
OPERATORS = tuple(
    f"core/{name}"
    for name in (
        *("NumberReplacer", "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
        *("ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceUnaryOperator_Delete_Not"),
        *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop"),
        *("ExceptionReplacer", "ReplaceUnaryOperator_Delete_USub"),
        *("ReplaceUnaryOperator_Delete_Invert",),
        *(
            f"ReplaceComparisonOperator_{pair}"
            for pair in (
                *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
                *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
            )
        ),
        *(
            f"ReplaceBinaryOperator_{pair}"
            for pair in (
                *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul"),
                *("BitOr_BitAnd", "BitAnd_BitOr", "LShift_RShift", "RShift_LShift"),
            )
        ),
    )
)

#: The kinds of nodes, as parso names them, that operators of a name look at; others look at all.
NODES = {
    "NumberReplacer": {"number"},
    "ReplaceComparisonOperator": {"comparison"},
    "ReplaceBinaryOperator": {"operator"},
    "ReplaceUnaryOperator": {"factor", "not_test"},
    "AddNot": {"if_stmt", "while_stmt", "assert_stmt", "test"},
}

Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """One fault: the ``occurrence``-th that ``operator`` can make in the file ``path``."""

    path: str
    operator: str
    occurrence: int
    start: Position
    end: Position

    @property
    def line(self) -> int:
        """Where it is, from 1."""
        return self.start[0]

    def code(self, source: str) -> str:
        """The file's text with the fault in it."""
        mutated = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert isinstance(mutated, str)
        return mutated


def drawn(tree: Path, folders: tuple[str, ...], number: int, seed: int) -> list[Mutant]:
    """``number`` mutants of the modules in ``folders``, no two at one place."""
    places: dict[tuple[str, Position, Position], list[Mutant]] = {}
    for folder in folders:
        for path in sorted((tree / folder).rglob("*.py")):
            for mutant in mutants(path.relative_to(tree).as_posix(), path.read_text("utf-8")):
                places.setdefault((mutant.path, mutant.start, mutant.end), []).append(mutant)
    lot = random.Random(f"{seed} {' '.join(folders)}")
    order = sorted(places)
    lot.shuffle(order)
    return [lot.choice(places[place]) for place in order[:number]]


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of one module."""
    nodes = list(ast_nodes(get_ast(source)))
    module = ast.parse(source)
    unread, sums = list(_unread(module)), list(_sums(module))
    for name in OPERATORS:
        operator = get_operator(name)()
        kinds = NODES.get(name.removeprefix("core/").partition("_")[0])
        own = nodes if kinds is None else [node for node in nodes if node.type in kinds]
        spans = (span for node in own for span in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(spans):
            if "ExceptionReplacer" in name and not _is_name(source, start, end):
                continue
            if "BinaryOperator" in name and not _is_in(start, sums):  # the star of parameters
                continue
            if not _is_in(start, unread):
                yield Mutant(path, name, occurrence, start, end)


def _is_in(position: Position, spans: list[tuple[Position, Position]]) -> bool:
    return any(first <= position < last for first, last in spans)


def _sums(module: ast.Module) -> Iterator[tuple[Position, Position]]:
    """The spans of what has an operator of two sides, types apart (``int | None``)."""
    for node in ast.walk(module):
        if isinstance(node, ast.BinOp) and not _is_none(node.right):
            yield _span(node)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _unread(module: ast.Module) -> Iterator[tuple[Position, Position]]:
    """The spans of annotations and of what ``@dataclass`` and a class's head are given."""
    for node in ast.walk(module):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.ClassDef):
            parts = [d for d in node.decorator_list if "dataclass" in ast.unparse(d)]
            parts += [keyword.value for keyword in node.keywords]
        for part in parts:
            if part is not None:
                yield _span(part)


def _is_name(source: str, start: Position, end: Position) -> bool:
    """Whether a name stands there: cosmic-ray replaces the dot of a dotted one."""
    return source.splitlines()[start[0] - 1][start[1] : end[1]].isidentifier()


def _span(node: ast.expr) -> tuple[Position, Position]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)

"""Draw random mutants of an area: first a position in the code, then one of the faults for it.

Positions are drawn, not mutants, because cosmic-ray's operators offer many faults for some
positions (eleven for each ``+``), which would dominate a draw of mutants. Annotations and arguments
of ``@dataclass`` are left out, because mypy checks them and no test can.
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

#: Names of those of cosmic-ray's operators that make faults which people make, too.
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

#: Beginning of an operator's name -> the types of parso nodes at which it can make a fault. Other
#: operators are tried at all nodes.
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
    """One fault: the ``occurrence``-th that ``operator`` can make in the file ``path``.

    ``start`` and ``end`` are the (line, column) of the changed code.
    """

    path: str
    operator: str
    occurrence: int
    start: Position
    end: Position

    @property
    def line(self) -> int:
        """Return the line number of the fault, from 1."""
        return self.start[0]

    def code(self, source: str) -> str:
        """Return ``source``, the text of the file, with the fault."""
        mutated = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert isinstance(mutated, str)
        return mutated


def drawn(tree: Path, folders: tuple[str, ...], number: int, seed: int) -> list[Mutant]:
    """Draw ``number`` mutants of the modules in ``folders``, at different positions."""
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
    """Yield every mutant of the module at ``path``, whose text is ``source``."""
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
            if "BinaryOperator" in name and not _is_in(start, sums):  # the * in a parameter list
                continue
            if not _is_in(start, unread):
                yield Mutant(path, name, occurrence, start, end)


def _is_in(position: Position, spans: list[tuple[Position, Position]]) -> bool:
    return any(first <= position < last for first, last in spans)


def _sums(module: ast.Module) -> Iterator[tuple[Position, Position]]:
    """Yield (start, end) of each expression with a binary operator, except ``… | None``."""
    for node in ast.walk(module):
        if isinstance(node, ast.BinOp) and not _is_none(node.right):
            yield _span(node)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _unread(module: ast.Module) -> Iterator[tuple[Position, Position]]:
    """Yield (start, end) of annotations, and of arguments of ``@dataclass`` and class headers."""
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
    """Return whether the code from ``start`` to ``end`` is a name.

    In a dotted name, cosmic-ray would replace the dot.
    """
    return source.splitlines()[start[0] - 1][start[1] : end[1]].isidentifier()


def _span(node: ast.expr) -> tuple[Position, Position]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)

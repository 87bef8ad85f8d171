"""Shapes and element types as a profile records them of an op's inputs."""

from __future__ import annotations

from typing import Any

from lstmprof.breakdown.recurrent.network import Shape
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.table import NONE, EventTable


class Inputs:
    """The inputs of any op of a table: each a shape, a list of them, or None where not recorded."""

    def __init__(self, events: EventTable) -> None:
        self._shapes = events.texts("shapes")
        self._dtypes = events.texts("dtypes")

    def shapes(self, row: int) -> list[Any]:
        """One entry an input: a shape, a list of shapes, or None; empty where none is recorded."""
        return [_shape(entry) for entry in _listed(*self._shapes, row)]

    def dtypes(self, row: int) -> list[str]:
        """The element type of each input as recorded; empty where none is."""
        return [str(entry) for entry in _listed(*self._dtypes, row)]


def _listed(codes: Any, texts: list[str], row: int) -> list[Any]:
    if codes[row] == NONE:
        return []
    return recorded_inputs(texts[codes[row]])


def _shape(entry: Any) -> Any:
    """``(9, 6, 10)``, of a list of tensors a list of such, of a scalar or of nothing None."""
    if not isinstance(entry, list) or not entry:
        return None
    if all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in entry):
        return tuple(entry)
    return [_shape(part) for part in entry]


def shape_at(shapes: list[Any], place: int, dimensions: int) -> Shape | None:
    """The shape of the input at ``place``, if it has so many dimensions."""
    shape = shapes[place] if place < len(shapes) else None
    return shape if isinstance(shape, tuple) and len(shape) == dimensions else None


def shapes_at(shapes: list[Any], place: int) -> list[Shape]:
    """The shapes of the list of tensors at ``place``; empty where that is none."""
    listed = shapes[place] if place < len(shapes) else None
    if not isinstance(listed, list):
        return []
    return [shape for shape in listed if isinstance(shape, tuple)]

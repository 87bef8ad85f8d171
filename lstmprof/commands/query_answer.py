"""What a query found, for a terminal and for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

UNKNOWN = "–"
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMERIC", "NUMBER")


@dataclass(frozen=True)
class Answer:
    """Columns, their DuckDB types, and rows."""

    names: Sequence[str]
    types: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def columns(self) -> list[str]:
        """The names; one that came before gets a number."""
        found: list[str] = []
        for name in self.names:
            number, own = 1, name
            while own in found:
                number += 1
                own = f"{name}_{number}"
            found.append(own)
        return found

    def records(self) -> list[dict[str, Any]]:
        """The rows for JSON and CSV."""
        columns = self.columns
        return [dict(zip(columns, map(_plain, row), strict=True)) for row in self.rows]

    def headings(self) -> list[str]:
        """The columns for a terminal; numbers are aligned to the right."""
        return [(">" if self._is_number(i) else "") + name for i, name in enumerate(self.columns)]

    def texts(self) -> list[list[str]]:
        """The rows for a terminal."""
        return [[_text(value) for value in row] for row in self.rows]

    def long(self) -> list[str]:
        """The columns that may be cut where a line is too long."""
        return [name for i, name in enumerate(self.columns) if not self._is_number(i)]

    def _is_number(self, at: int) -> bool:
        type_ = self.types[at]
        return any(part in type_ for part in _NUMBERS) and not type_.endswith("]")


def _plain(value: Any) -> Any:
    """``value`` as JSON has it: no NaN, no infinity, no type of Python's own."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value)


def _text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"
    return str(value)

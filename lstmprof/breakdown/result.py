"""Tables for Python and notebooks, the base of JSON records, and the texts of their fields."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lstmprof.base.errors import LstmprofError, one_line
from lstmprof.events.schema import Column

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 20
UNKNOWN = "–"


class Documented(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the records in JSON output; every field is always present."""


def doc(meaning: str) -> msgspec.Meta:
    """Describe a field of a JSON document."""
    return msgspec.Meta(description=meaning)


@dataclass(frozen=True)
class Table:
    """A table with documented columns; ``lp.sql`` and ``Run.table`` return it.

    Times are whole nanoseconds. Unknown values are null. ``arrow`` has the data. ``kinds``
    describes the columns; it is empty for the answer to an SQL query.
    """

    name: str
    arrow: pa.Table
    kinds: tuple[Column, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(self.arrow.column_names)

    @property
    def columns_doc(self) -> dict[str, str]:
        """Return {column: unit, meaning, and when it is null}; empty for the answer to SQL."""
        return {kind.name: _documented(kind) for kind in self.kinds if kind.name in self.columns}

    def to_arrow(self) -> pa.Table:
        """Return the table as a ``pyarrow.Table``."""
        return self.arrow

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame; integers have ``Int64``, which allows null."""
        import pandas

        exact = {pa.int64(): pandas.Int64Dtype()}
        return self.arrow.to_pandas(types_mapper=exact.get)

    def to_polars(self) -> polars.DataFrame:
        """Return the table as a polars DataFrame.

        Raises:
            LstmprofError: polars is not installed.
        """
        try:
            import polars
        except ImportError as fault:
            raise LstmprofError("polars is not installed", "pip install polars") from fault
        frame = polars.from_arrow(self.arrow)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries; unknown values are None."""
        return list(self.arrow.to_pylist())

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self):,} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """Return the first rows in HTML; tooltips explain the columns."""
        documented = self.columns_doc
        heads = [(name, documented.get(name, "")) for name in self.columns]
        cells = [list(row.values()) for row in self.arrow.slice(0, SHOWN_ROWS).to_pylist()]
        hidden = len(self) - len(cells)
        more = f"<p>{hidden:,} more rows</p>" if hidden else ""
        return f"<p>{_safe(self.name)}</p>{html_table(heads, cells)}{more}"


def html_table(heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> str:
    """Return an HTML table with heads of (name, tooltip)."""
    head = "".join(f'<th title="{_safe(title)}">{_safe(name)}</th>' for name, title in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{_safe(UNKNOWN if value is None else value)}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return f'<td style="text-align: right">{text}</td>'


def _safe(text: Any) -> str:
    return html.escape(one_line(str(text)))


def _documented(kind: Column) -> str:
    unit = f"{kind.unit}: " if kind.unit else ""
    return unit + kind.meaning + (f"; null: {kind.null_when}" if kind.null_when else "")

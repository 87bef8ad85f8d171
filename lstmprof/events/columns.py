"""What a column of a result table says: name, type, unit, meaning and when it is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """One column; ``null_when`` is empty where it never is null."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    null_when: str = ""


def schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of ``columns``."""
    return pa.schema([pa.field(c.name, c.type, bool(c.null_when)) for c in columns])


RANK = Column("rank", pa.int64(), "", "rank of a distributed job", "the profile names no rank")
DEVICE = Column("device", pa.int64(), "", "device number", "the work ran on host threads")
STEP = Column("step", pa.int64(), "", "number of the step", "the profile has no step markers")
PER_STEP = Column(
    "per_step",
    pa.float64(),
    "",
    "those that a step holds or launched, divided by the number of steps",
    "the profile has no step markers",
)

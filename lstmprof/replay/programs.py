"""The step that is replayed, as its tables say it: ``breakdown.program`` makes one of a profile."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Window(Protocol):
    """[start_ns, end_ns) of the step; ``thread`` is the number of the one that ran it."""

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def thread(self) -> int | None: ...


class Program(Protocol):
    """One step: ``breakdown.program.SEGMENTS``, ``ACTIVITIES`` and ``SYNCS``."""

    @property
    def window(self) -> Window: ...
    @property
    def segments(self) -> pa.Table: ...
    @property
    def activities(self) -> pa.Table: ...
    @property
    def syncs(self) -> pa.Table: ...

"""What loops share whose framework computes on a CPU alone, where NumPy's rates are the peaks.

Its threads are told before it is imported, by the environment, or with each session or model.
"""

from __future__ import annotations

from lstmprof.capture.worker.peaks import numpy_copy, numpy_product

product, copy = numpy_product, numpy_copy


def device_of(requested: str) -> str:
    """``cpu``, the only device; ``cuda`` is refused before."""
    return "cpu"


def set_threads(threads: int) -> None:
    """Nothing: the environment was set, or a session is told."""

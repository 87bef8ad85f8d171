"""The ranges of a step: NVTX in both passes, the framework's own profiler in the profile pass.

``step`` encloses ``input``, then ``forward`` and ``loss``, then ``backward`` and ``optimizer``,
and the synchronisation at its end. Without a tool attached, a range of an NVTX domain costs about
0.1 µs (measured; NVTX loads a tool at its first call only).
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, Optional

NAMES = ("step", "input", "forward", "loss", "backward", "optimizer")
DOMAIN = "lstmprof"

Ranges = Callable[[str], ContextManager[Any]]


class NvtxRange:
    """One named range, entered again and again."""

    __slots__ = ("_attributes", "_pop", "_push")

    def __init__(self, domain: Any, name: str) -> None:
        self._push, self._pop = domain.push_range, domain.pop_range
        self._attributes = domain.get_event_attributes(message=name)

    def __enter__(self) -> None:
        self._push(self._attributes)

    def __exit__(self, *_: object) -> None:
        self._pop()


def nvtx_ranges() -> Optional[Ranges]:
    """The ranges of both passes; None where nvtx is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    domain = nvtx.get_domain(DOMAIN)
    ranges: Dict[str, NvtxRange] = {name: NvtxRange(domain, name) for name in NAMES}
    return ranges.__getitem__


def no_ranges(name: str) -> ContextManager[Any]:
    """Ranges that nobody records."""
    return contextlib.nullcontext()


def both(outer: Ranges, inner: Ranges) -> Ranges:
    """Ranges that enter ``outer`` and in it ``inner``."""

    @contextlib.contextmanager
    def entered(name: str) -> Any:
        with outer(name), inner(name):
            yield

    return entered

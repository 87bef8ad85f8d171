"""The ranges of a step, the session to throw away, and the profiler's file.

Ranges are NVTX in both passes, the framework's own profiler in the profile pass: ``step`` encloses
``input``, then ``forward`` and ``loss``, then ``backward`` and ``optimizer``, and the
synchronisation at its end; where a step is one call of a compiled function, ``input``, then
``program``, which is that call until its result is there. Without a tool attached, a range of an
NVTX domain costs about 0.1 µs (measured; NVTX loads a tool at its first call only).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import mmap
import os
import shutil
import sys
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

NAMES = ("step", "input", "program", "forward", "loss", "backward", "optimizer")
DOMAIN = "lstmprof"
#: Set where a tool is to be told of ranges (nvtx3/nvtxDetail/nvtxInit.h).
TOOL = "NVTX_INJECTION64_PATH"
#: The folder of the profile, beside the result.
PROFILE = "profile"

Ranges = Callable[[str], ContextManager[Any]]


class DomainRange:
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
    """The ranges of both passes, by the package nvtx or by torch; None where there is neither."""
    return domain_ranges() or _torch_ranges()


def domain_ranges() -> Optional[Ranges]:
    """Ranges of ``DOMAIN``; None where nvtx is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    if not hasattr(nvtx, "get_domain"):  # 0.2.10 and older
        return functools.partial(nvtx.annotate, domain=DOMAIN)
    return _NvtxRanges(_domain(nvtx)).__getitem__


@functools.lru_cache(maxsize=None)
def _domain(nvtx: Any) -> Any:
    """The domain, even where nsys says to nvtx 0.2.13 and later that it does not want it.

    nvtx then gives a dummy, whose ranges reach nobody: nsys 2022.4 answers so and records them all
    the same (seen with 0.2.17). Source: ``Domain.__new__`` of nvtx/_lib/lib.pyx.
    """
    domain = nvtx.get_domain(DOMAIN)
    if type(domain).__name__ != "DummyDomain" or TOOL not in os.environ:
        return domain
    lib = sys.modules[type(domain).__module__]
    try:
        wanted = object.__new__(lib.Domain)
        wanted.handle = lib.DomainHandle(DOMAIN)
        wanted.__init__(DOMAIN)
    except (AttributeError, TypeError):  # another version is made otherwise
        return domain
    return wanted


def _torch_ranges() -> Optional[Ranges]:
    """Torch's own, which are of no domain; None where it is not loaded, or built without NVTX."""
    nvtx = getattr(getattr(sys.modules.get("torch"), "cuda", None), "nvtx", None)
    library = getattr(nvtx, "_nvtx", None)
    if library is None or hasattr(library, "_fail"):  # torch's stand-in, which only raises
        return None
    return functools.partial(_TorchRange, nvtx)


class _TorchRange:
    """A range by torch's functions."""

    def __init__(self, nvtx: Any, name: str) -> None:
        self._nvtx, self._name = nvtx, name

    def __enter__(self) -> None:
        self._nvtx.range_push(self._name)

    def __exit__(self, *_: object) -> None:
        self._nvtx.range_pop()


class _NvtxRanges(Dict[str, DomainRange]):
    """The ranges of one domain by name: those of a step, and any other once it was asked for."""

    def __init__(self, domain: Any) -> None:
        super().__init__({name: DomainRange(domain, name) for name in NAMES})
        self._domain = domain

    def __missing__(self, name: str) -> DomainRange:
        self[name] = made = DomainRange(self._domain, name)
        return made


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


def first_found(path: str, needles: Sequence[Tuple[str, str]]) -> Optional[str]:
    """The words of the first (needle, words) whose needle is in the file; None where none is."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for needle, words in needles:
            if content.find(needle.encode()) >= 0:
                return words
    return None


def compressed(path: str, place: str) -> str:
    """Move the file at ``path``, gzipped, to ``place``, which is returned."""
    with open(path, "rb") as plain, gzip.open(place, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    os.remove(path)
    return place


#: A profiler's first session slows what runs in it, and for some tenths of a second after its start
#: every session does (seen on CPUs with torch 2.13 and TensorFlow 2.21): one is thrown away.
THROWAWAY_NS = 500_000_000
THROWAWAY_STEPS = 100


def throwaway_steps(steps: int, clock: Callable[[], int]) -> Iterator[int]:
    """Numbers of the steps of the session to throw away: ``steps`` or more, for THROWAWAY_NS.

    No more than THROWAWAY_STEPS beyond ``steps``: short ones are warm by then.
    """
    start_ns = clock()
    for number in range(steps + THROWAWAY_STEPS):
        if number >= steps and clock() - start_ns >= THROWAWAY_NS:
            return
        yield number


@dataclasses.dataclass(frozen=True)
class Profiled:
    """The outcome of a profile pass."""

    walls_ns: List[int]
    losses: List[float]
    files: List[str]
    kernels: Optional[str]  # which kernels really ran, in words; None where no operator told
    recording: Optional[Dict[str, Any]] = None  # what recording an event costs (``calibration``)
    shapes: Optional[str] = None  # JSON: the inputs of the ops of one step, in order

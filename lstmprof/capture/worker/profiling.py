"""The ranges of a step, the discarded first session, and the profiler's file.

Timed and profiled steps have NVTX ranges. Profiled steps also have ranges of the profiler. An NVTX
range costs about 0.1 µs if no tool is attached (measured). The range ``program`` lasts from the
call of a compiled function until its result is available.
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
#: Environment variable that a tool sets to receive NVTX ranges (nvtx3/nvtxDetail/nvtxInit.h).
TOOL = "NVTX_INJECTION64_PATH"
PROFILE = "profile"

Ranges = Callable[[str], ContextManager[Any]]


class DomainRange:
    """An NVTX range that can be entered many times."""

    __slots__ = ("_attributes", "_pop", "_push")

    def __init__(self, domain: Any, name: str) -> None:
        self._push, self._pop = domain.push_range, domain.pop_range
        self._attributes = domain.get_event_attributes(message=name)

    def __enter__(self) -> None:
        self._push(self._attributes)

    def __exit__(self, *_: object) -> None:
        self._pop()


def nvtx_ranges() -> Optional[Ranges]:
    """Return a function that opens NVTX ranges with the package nvtx or torch."""
    return domain_ranges() or _torch_ranges()


def domain_ranges() -> Optional[Ranges]:
    """Return a function that opens NVTX ranges in lstmprof's domain."""
    try:
        import nvtx
    except ImportError:
        return None
    if not hasattr(nvtx, "get_domain"):  # nvtx 0.2.10 and older
        return functools.partial(nvtx.annotate, domain=DOMAIN)
    return _NvtxRanges(_domain(nvtx)).__getitem__


@functools.lru_cache(maxsize=None)
def _domain(nvtx: Any) -> Any:
    """Return lstmprof's NVTX domain, not the dummy domain that nvtx may return."""
    # nvtx 0.2.13+ returns a dummy domain under nsys 2022.4, although nsys records real domains
    domain = nvtx.get_domain(DOMAIN)
    if type(domain).__name__ != "DummyDomain" or TOOL not in os.environ:
        return domain
    # create a real domain, as ``Domain.__new__`` in nvtx/_lib/lib.pyx does
    lib = sys.modules[type(domain).__module__]
    try:
        wanted = object.__new__(lib.Domain)
        wanted.handle = lib.DomainHandle(DOMAIN)
        wanted.__init__(DOMAIN)
    except (AttributeError, TypeError):  # another version of nvtx creates domains differently
        return domain
    return wanted


def _torch_ranges() -> Optional[Ranges]:
    """Return a function that opens torch's NVTX ranges, which have no domain."""
    nvtx = getattr(getattr(sys.modules.get("torch"), "cuda", None), "nvtx", None)
    library = getattr(nvtx, "_nvtx", None)
    # return None if torch is built without CUDA: its NVTX functions only raise errors
    if library is None or hasattr(library, "_fail"):
        return None
    return functools.partial(_TorchRange, nvtx)


class _TorchRange:
    def __init__(self, nvtx: Any, name: str) -> None:
        self._nvtx, self._name = nvtx, name

    def __enter__(self) -> None:
        self._nvtx.range_push(self._name)

    def __exit__(self, *_: object) -> None:
        self._nvtx.range_pop()


class _NvtxRanges(Dict[str, DomainRange]):
    """Name -> NVTX range; the ranges in ``NAMES`` exist from the beginning."""

    def __init__(self, domain: Any) -> None:
        super().__init__({name: DomainRange(domain, name) for name in NAMES})
        self._domain = domain

    def __missing__(self, name: str) -> DomainRange:
        self[name] = made = DomainRange(self._domain, name)
        return made


def no_ranges(name: str) -> ContextManager[Any]:
    return contextlib.nullcontext()


def both(outer: Ranges, inner: Ranges) -> Ranges:
    """Return a function that opens a range of ``inner`` inside a range of ``outer``."""

    @contextlib.contextmanager
    def entered(name: str) -> Any:
        with outer(name), inner(name):
            yield

    return entered


def first_found(path: str, needles: Sequence[Tuple[str, str]]) -> Optional[str]:
    """Return the words paired with the first needle that the file contains."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for needle, words in needles:
            if content.find(needle.encode()) >= 0:
                return words
    return None


def compressed(path: str, place: str) -> str:
    """Compress a file, and remove the original."""
    with open(path, "rb") as plain, gzip.open(place, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    os.remove(path)
    return place


#: Time in ns of the first profiler session, which is discarded because its steps are slow
#: (torch 2.13, TF 2.21).
THROWAWAY_NS = 500_000_000
THROWAWAY_STEPS = 100


def throwaway_steps(steps: int, clock: Callable[[], int]) -> Iterator[int]:
    """Yield the numbers of discarded steps: ``steps``, and up to 100 more in 0.5 s."""
    start_ns = clock()
    for number in range(steps + THROWAWAY_STEPS):
        if number >= steps and clock() - start_ns >= THROWAWAY_NS:
            return
        yield number


@dataclasses.dataclass(frozen=True)
class Profiled:
    """The outcome of a profile pass, with the wall time and loss of each step."""

    walls_ns: List[int]
    losses: List[float]
    files: List[str]
    kernels: Optional[str]  # which kernels ran, in words
    recording: Optional[Dict[str, Any]] = None  # cost of recording an event
    shapes: Optional[str] = None  # JSON file with the inputs of one step's ops

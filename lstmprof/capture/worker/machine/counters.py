"""Hardware counters of the CPU: instructions, cycles, cache misses, microcode assists.

Linux's perf_event_open(2) counts this process in user mode, without privileges if
perf_event_paranoid is 2 or less. Many virtual machines have no counters, and ``reason`` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from lstmprof.capture.worker.machine import host

#: System call number of perf_event_open (unistd.h) for each CPU architecture.
SYSCALLS = {"x86_64": 298, "aarch64": 241}
#: Constants of Linux's perf_event.h.
HARDWARE, RAW = 0, 4
GENERIC = {"cycles": 0, "instructions": 1, "cache_misses": 3}
ENABLED_AND_RUNNING = 1 | 2
INHERIT, EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6
ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr as of PERF_ATTR_SIZE_VER0, 64 bytes
READING = struct.Struct("=QQQ")
PARANOID = "/proc/sys/kernel/perf_event_paranoid"

#: Codes of Intel's event for floating-point assists: (models of family 6, code). Source: Linux,
#: tools/perf/pmu-events/arch/x86 (mapfile.csv, floating-point.json of each model).
FP_ASSISTS: Tuple[Tuple[Tuple[int, ...], int], ...] = (
    # the event ASSISTS.FP, since Ice Lake
    ((0x6A, 0x6C, 0x7D, 0x7E, 0xA7, 0x8C, 0x8D, 0x8F, 0xCF), 0x02 << 8 | 0xC1),
    # FP_ASSIST.ANY
    (
        (0x3C, 0x3F, 0x45, 0x46, 0x3D, 0x47, 0x4F, 0x56, 0x4E, 0x5E, 0x55, 0x8E, 0x9E, 0xA5, 0xA6),
        1 << 24 | 0x1E << 8 | 0xCA,
    ),
)


class CpuEvent(NamedTuple):
    """An event that the CPU can count, as in perf_event_attr."""

    name: str
    type: int
    config: int


class CpuCounters:
    """Counters of the calling thread, and of threads that this thread starts later."""

    def __init__(self, events: Optional[List[CpuEvent]] = None) -> None:
        self.descriptors: Dict[str, int] = {}
        self.counted: Dict[str, Optional[int]] = {}
        self.reason: Optional[str] = None
        for event in usual_events() if events is None else events:
            try:
                self.descriptors[event.name] = _opened(event)
                self.counted[event.name] = 0
            except OSError as fault:
                self.reason = self.reason or _explained(fault)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Count events inside the ``with`` block, and add the counts of earlier blocks."""
        began = self._counts()
        yield
        for name, counts in self._counts().items():
            more, so_far = since(began[name], counts), self.counted[name]
            self.counted[name] = None if more is None or so_far is None else so_far + more

    def _counts(self) -> Dict[str, Tuple[int, int, int]]:
        """Return event name -> (count, ns enabled, ns in which the CPU counted)."""
        return {
            name: READING.unpack(os.read(descriptor, READING.size))
            for name, descriptor in self.descriptors.items()
        }

    def facts(self) -> Dict[str, Any]:
        facts: Dict[str, Any] = dict(self.counted)
        return facts if self.reason is None else dict(facts, reason=self.reason)


def since(began: Tuple[int, int, int], ended: Tuple[int, int, int]) -> Optional[int]:
    """Return how many events happened between two readings."""
    count, enabled, running = (end - begin for begin, end in zip(began, ended))
    # scale the count up to the enabled time, because events take turns on the CPU's counters
    return round(count * enabled / running) if running > 0 else None


def usual_events() -> List[CpuEvent]:
    events = [CpuEvent(name, HARDWARE, number) for name, number in GENERIC.items()]
    raw = fp_assists(*_processor())
    return events if raw is None else [*events, CpuEvent("fp_assists", RAW, raw)]


def fp_assists(vendor: str, family: int, model: int) -> Optional[int]:
    """Return the code of Intel's event for floating-point assists."""
    if (vendor, family) != ("GenuineIntel", 6):
        return None
    return next((raw for models, raw in FP_ASSISTS if model in models), None)


def _processor() -> Tuple[str, int, int]:
    """Return (vendor, family, model) of the first CPU: ``("GenuineIntel", 6, 85)``."""
    fields: Dict[str, str] = {}
    for name, value in host.fields_of("/proc/cpuinfo"):
        fields.setdefault(name, value)
    return (
        fields.get("vendor_id", ""),
        int(fields.get("cpu family", 0)),
        int(fields.get("model", 0)),
    )


def _opened(event: CpuEvent) -> int:
    flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV
    return opened(
        ATTRIBUTES.pack(
            event.type, ATTRIBUTES.size, event.config, 0, 0, ENABLED_AND_RUNNING, flags, 0, 0, 0
        ),
        thread=0,
    )


def opened(attributes: bytes, thread: int) -> int:
    """Call perf_event_open(2) for a thread; 0 is the calling thread."""
    number = SYSCALLS.get(platform.machine())
    if number is None or not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_char_p(attributes),
        ctypes.c_int(thread),
        ctypes.c_int(-1),
        ctypes.c_int(-1),
        ctypes.c_ulong(8),  # PERF_FLAG_FD_CLOEXEC
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "")
    return descriptor


def _explained(fault: OSError) -> str:
    if fault.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "the CPU has no such counters here, as in most virtual machines"
    if fault.errno in (errno.EACCES, errno.EPERM):
        paranoid = (host.text_of(PARANOID) or "unknown").strip()
        return "the kernel forbids it (perf_event_paranoid is {})".format(paranoid)
    if fault.errno == errno.ENOSYS:
        return "this system has no perf_event_open"
    return "perf_event_open failed: {}".format(os.strerror(fault.errno or 0))

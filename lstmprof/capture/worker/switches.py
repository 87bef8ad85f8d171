"""When each thread of this process was taken off its CPU although it was not done.

Linux tells every context switch of a process to that process itself, whatever perf_event_paranoid
says (perf_event_open(2), ``context_switch``; that a switch was no thread's own will since Linux
4.17). A container may forbid the call: then nothing is known. Of a thread that woke up and found no
CPU free the waiting is not told, as that begins while it sleeps; schedstat has its sum
(``threads``).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from typing import Dict, List, Optional, Tuple

from lstmprof.capture.worker.counters import EXCLUDE_HV, EXCLUDE_KERNEL, opened
from lstmprof.capture.worker.threads import TASKS

#: perf_event.h: a software event that counts nothing, its records stamped with CLOCK_MONOTONIC,
#: which is that of ``time.perf_counter_ns``
SOFTWARE, DUMMY, SAMPLE_TIME, MONOTONIC = 1, 9, 1 << 2, 1
SAMPLE_ID_ALL, USE_CLOCK, CONTEXT_SWITCH = 1 << 18, 1 << 25, 1 << 26
ATTRIBUTES = struct.Struct("=IIQQQQQIIQQQQIi")  # perf_event_attr as of VER3, 96 bytes
FLAGS = EXCLUDE_KERNEL | EXCLUDE_HV | SAMPLE_ID_ALL | USE_CLOCK | CONTEXT_SWITCH
#: of the page before the records
HEAD, TAIL = 1024, 1032
HEADER, TIME = struct.Struct("=IHH"), struct.Struct("=Q")
LOST, SWITCH = 2, 14
OUT, PREEMPTED = 1 << 13, 1 << 14
#: Pages of records of the thread that runs the steps: 4096 switches, a step of several seconds
#: beside many processes; and of each other one. A user may lock some 500 KiB in all.
OWN_PAGES, OTHER_PAGES = 16, 2

Stretch = Tuple[int, int]  # [begin, end) by time.perf_counter_ns


class _Thread:
    """The switches of one thread, read piece by piece."""

    def __init__(self, thread: int, pages: int) -> None:
        self.descriptor = _opened(thread)
        self.size = pages * mmap.PAGESIZE
        self.out_ns: Optional[int] = None
        try:
            self.records = mmap.mmap(self.descriptor, mmap.PAGESIZE + self.size)
        except (OSError, ValueError):
            os.close(self.descriptor)
            raise

    def taken(self) -> Optional[List[Stretch]]:
        """When it had no CPU since it was last asked; None where records were lost."""
        (head,) = TIME.unpack_from(self.records, HEAD)
        (tail,) = TIME.unpack_from(self.records, TAIL)
        ring, at = self.records[mmap.PAGESIZE :], tail % self.size
        content = (ring[at:] + ring[:at])[: head - tail]
        TIME.pack_into(self.records, TAIL, head)
        place, lost = 0, False
        stretches: List[Stretch] = []
        while place < len(content):
            sort, flags, length = HEADER.unpack_from(content, place)
            if sort == SWITCH:
                (time_ns,) = TIME.unpack_from(content, place + HEADER.size)
                if flags & OUT:
                    self.out_ns = time_ns if flags & PREEMPTED else None
                elif self.out_ns is not None:
                    stretches.append((self.out_ns, time_ns))
                    self.out_ns = None
            lost = lost or sort == LOST
            place += length
        return None if lost else stretches

    def close(self) -> None:
        self.records.close()
        os.close(self.descriptor)


class Switches:
    """Of all threads that there are when it is made; ``own`` is the one that runs the steps."""

    def __init__(self, own: int) -> None:
        self.own = own
        self._threads: Dict[int, _Thread] = {}
        with contextlib.suppress(OSError, ValueError):
            self._threads[own] = _Thread(own, OWN_PAGES)
            for thread in sorted(int(name) for name in os.listdir(TASKS)):
                if thread != own:
                    self._threads[thread] = _Thread(thread, OTHER_PAGES)

    def taken(self) -> Tuple[Optional[List[Stretch]], List[Stretch]]:
        """When the own thread was off its CPU since this was last asked, and when any other was.

        None of the own where that is unknown; of the others what is known.
        """
        all_taken = {number: thread.taken() for number, thread in self._threads.items()}
        own = all_taken.pop(self.own, None)
        return own, merged([stretch for some in all_taken.values() for stretch in some or ()])

    def close(self) -> None:
        """Ask the kernel for no more."""
        for thread in self._threads.values():
            thread.close()
        self._threads.clear()


def merged(stretches: List[Stretch]) -> List[Stretch]:
    """The union, in order."""
    union: List[Stretch] = []
    for begin, end in sorted(stretches):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def _opened(thread: int) -> int:
    """The descriptor of the switches of ``thread``.

    Raises:
        OSError: the kernel does not tell them, or it has ended.
    """
    attributes = ATTRIBUTES.pack(
        *(SOFTWARE, ATTRIBUTES.size, DUMMY, 0, SAMPLE_TIME, 0, FLAGS, 0, 0),
        *(0, 0, 0, 0, 0, MONOTONIC),
    )
    return opened(attributes, thread)

"""Store the profiles of a job's files, in memory or on disk, until lstmprof joins the profiles.

::

    read ─ in_files, in another process ─▶ ProfileCollection ─▶ joined
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

from lstmprof.events import Profile
from lstmprof.events.schema import COLUMNS
from lstmprof.events.spool import SPOOLED_ROWS, on_disk
from lstmprof.events.stored import Folder, StoredEvents
from lstmprof.formats.sources import Source

#: Columns of the events table that a reader fills.
_READ = tuple(c.name for c in COLUMNS if not c.derived and c.name != "event_id")
#: A file, and the profile that was read from this file.
Read = tuple[Source, Profile]


def in_files(profile: Profile, base: Path) -> Profile:
    """Write a profile's events to disk, so that other processes can read them."""
    return _in_folder(profile, Folder(base))


def _in_folder(profile: Profile, folder: Folder) -> Profile:
    events = profile.events
    if isinstance(events, StoredEvents):
        events = events.moved_to(folder)
    else:
        events = on_disk(events, _READ, folder)
    return replace(profile, events=events, counters=profile.counters.on_disk(folder))


class ProfileCollection:
    """Collects the profiles of several files, and moves many events to disk."""

    def __init__(self) -> None:
        self.profiles: list[Read] = []
        self._in_memory: list[int] = []
        self._folder: Folder | None = None

    def add(self, read: Sequence[Read]) -> None:
        """Add all profiles of ``read``, or none if an error occurs, such as a full disk."""
        before = len(self.profiles)
        for source, profile in read:
            if not isinstance(profile.events, StoredEvents):
                self._in_memory.append(len(self.profiles))
            self.profiles.append((source, profile))
        rows = sum(len(self.profiles[number][1].events) for number in self._in_memory)
        if len(self.profiles) < 2 or rows <= SPOOLED_ROWS:
            return
        try:
            self._spool()
        except BaseException:
            del self.profiles[before:]
            self._in_memory = [number for number in self._in_memory if number < before]
            raise

    def _spool(self) -> None:
        self._folder = self._folder or Folder()
        for number in list(self._in_memory):
            source, profile = self.profiles[number]
            self.profiles[number] = (source, _in_folder(profile, self._folder))
            self._in_memory.remove(number)


@contextmanager
def concurrently(work: Callable[[Event], object]) -> Iterator[None]:
    """Run ``work(stop)`` in a thread during the block; a failed block sets ``stop``."""
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(work, stop)
        try:
            yield
            answer.result()
        finally:
            stop.set()

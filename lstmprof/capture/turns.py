"""Workers that take turns: one runs, the others wait, and each gets its turn in the same order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from lstmprof.errors import CaptureError


@dataclass(frozen=True)
class Seat:
    """The place of one worker among those that take turns."""

    turns: Turns
    member: str

    def take(self) -> None:
        """As ``Turns.take``."""
        self.turns.take(self.member)

    def started(self, stop: Callable[[], None]) -> None:
        """As ``Turns.started``."""
        self.turns.started(self.member, stop)


class Turns:
    """Who runs of ``members``; a turn is given when all of them wait for one.

    Each member has a thread of its own, which calls ``take`` and, at its end, ``leave``.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self._order = list(members)
        self._present = list(self._order)
        self._waiting: set[str] = set()
        self._running: str | None = None
        self._last: str | None = None
        self._changed = threading.Condition()
        self._stops: dict[str, Callable[[], None]] = {}
        self._stopped = False

    def take(self, member: str) -> None:
        """Give up the turn, if it has it, and return when it has the next.

        Raises:
            CaptureError: ``stop`` was called.
        """
        with self._changed:
            self._given_up(member)
            self._waiting.add(member)
            self._next()
            self._changed.wait_for(lambda: self._running == member or self._stopped)
            if self._stopped:
                raise CaptureError("the capture was stopped")

    def leave(self, member: str) -> None:
        """Take no more turns."""
        with self._changed:
            self._given_up(member)
            self._stops.pop(member, None)
            with suppress(ValueError):
                self._present.remove(member)
            self._waiting.discard(member)
            self._next()

    def started(self, member: str, stop: Callable[[], None]) -> None:
        """Note how the worker of ``member`` is stopped; at once where all were."""
        with self._changed:
            self._stops[member] = stop
            if self._stopped:
                stop()

    def stop(self) -> None:
        """Stop all workers, and wake those who wait."""
        with self._changed:
            self._stopped = True
            for stop in self._stops.values():
                stop()
            self._changed.notify_all()

    def _given_up(self, member: str) -> None:
        if self._running == member:
            self._running, self._last = None, member

    def _next(self) -> None:
        """Give the turn to the member after the last one, once all wait."""
        if self._running is not None or not self._present or self._waiting != set(self._present):
            return
        place = self._order.index(self._last) + 1 if self._last in self._order else 0
        members = self._order[place:] + self._order[:place]
        self._running = next(member for member in members if member in self._waiting)
        self._waiting.discard(self._running)
        self._changed.notify_all()

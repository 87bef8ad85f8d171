"""A run of the attack: inputs drawn from numbers, what became of them, failures kept as files.

A seed and a number are enough to draw an input again. Each target has the same processor time; an
input that breaks a promise is kept with the traceback and the command that reads it again.
"""

from __future__ import annotations

import hashlib
import json
import signal
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from attack.oracle import MOST_SECONDS, BusyError, Tally
from attack.targets import TARGETS, Target

#: An input that takes longer, by the clock of the wall, hangs.
HANG_S = 6 * MOST_SECONDS
#: How long a target is attacked before the next one, in seconds of processor time.
_TURN_S = 1.0
#: After so many inputs the clock is looked at, which takes as long as an input.
_STRETCH = 50
#: Of so many accepted inputs one is accounted for, as that takes longer than all else.
_ACCOUNTED = 8


class Attack:
    """A run of the attack: its tallies, and the failures that it kept."""

    def __init__(
        self, names: list[str], seed: int, failures: Path, scratch: Path, worker: int = 0
    ) -> None:
        self.targets = [TARGETS[name] for name in names]
        self.tallies = {name: Tally(every=_ACCOUNTED) for name in names}
        self.seconds: Counter[str] = Counter()
        self.seed = seed
        self.worker = worker
        self.failures = failures
        self.scratch = scratch
        self.broken: Counter[str] = Counter()
        self._contents = {target.name: target.seeds() for target in self.targets}

    def run(self, minutes: float, most: int | None, counts: Path | None = None) -> None:
        """Attack every target in turn, for so long or with so many inputs each.

        What was done so far is in ``counts`` after every round.
        """
        until = time.monotonic() + 60 * minutes
        is_more = True
        while is_more and time.monotonic() < until:
            is_more = False
            for target in self.targets:
                is_more |= self._turn(target, until, most)
            self.tell(counts)
        for target in self.targets:
            for content, error in self.tallies[target.name].account(least=1):
                self._keep(target, content, error)
        self.tell(counts)

    def _turn(self, target: Target, until: float, most: int | None) -> bool:
        """Attack ``target`` for a turn; whether there is more to do."""
        tally, began = self.tallies[target.name], time.process_time()
        contents = self._contents[target.name]
        while (took := time.process_time() - began) < _TURN_S and time.monotonic() < until:
            left = _STRETCH if most is None else min(_STRETCH, most - tally.inputs)
            if left <= 0:
                break
            for _ in range(left):
                self.one(target, target.drawn(self._number(tally.inputs), contents))
        self.seconds[target.name] += took
        return most is None or tally.inputs < most

    def _number(self, place: int) -> int:
        return self.seed * 10**9 + self.worker * 10**8 + place

    def one(self, target: Target, content: bytes) -> None:
        """Attack ``target`` with ``content``; keep it if it breaks a promise."""
        tally = self.tallies[target.name]
        signal.alarm(HANG_S)
        try:
            target.attack(content, tally, self.scratch)
            for failing, error in tally.account():
                self._keep(target, failing, error)
        except Exception as error:
            self._keep(target, content, error)
        finally:
            signal.alarm(0)

    def _keep(self, target: Target, content: bytes, error: Exception) -> None:
        place = _place(error)
        self.broken[f"{target.name}: {place}"] += 1
        if self.broken[f"{target.name}: {place}"] > 3:
            return
        name = f"{target.name.replace(' ', '-')}-{hashlib.sha256(content).hexdigest()[:12]}"
        self.failures.mkdir(parents=True, exist_ok=True)
        (self.failures / name).write_bytes(content)
        lines = "".join(traceback.format_exception(error))
        (self.failures / f"{name}.txt").write_text(lines, "utf-8", "backslashreplace")
        print(f"FAILED {target.name}: {type(error).__name__} {place}: {str(error)[:200]!a}")
        print(f"  again: python -m attack --again '{target.name}' {self.failures / name}")

    def tell(self, counts: Path | None) -> None:
        """Write what was done to the file ``counts``, whole or not at all."""
        if counts is not None:
            partial = counts.with_suffix(".partial")
            partial.write_text(json.dumps(self.told()), "utf-8")
            partial.replace(counts)

    def told(self) -> dict[str, object]:
        """What was done, for a file or a page."""
        return {
            "seed": self.seed,
            "inputs": sum(tally.inputs for tally in self.tallies.values()),
            "targets": {
                name: {
                    "inputs": tally.inputs,
                    "accepted": tally.accepted,
                    "ledgers": tally.ledgers,
                    "refused": tally.refused,
                    "kinds of refusal": len(tally.faults),
                    "cpu_s": round(self.seconds[name], 1),
                }
                for name, tally in self.tallies.items()
            },
            "broken promises": dict(self.broken),
        }


def _place(error: Exception) -> str:
    """Where in lstmprof it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "lstmprof" in Path(frame.filename).parts]
    frame = (own or frames)[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno} {frame.name}"


def hung(signum: int, frame: FrameType | None) -> NoReturn:
    """Say that an input hangs: the handler of the alarm that each one sets, which is set again.

    Raises:
        BusyError: always; the process may have been stopped, so an input is tried again.
    """
    signal.alarm(HANG_S)
    raise BusyError(f"it hung for more than {HANG_S} s")


def draw(
    names: list[str], seed: int, failures: Path, counts: Path, worker: int, *span: Any
) -> None:
    """A worker: attack for ``span``, its minutes and most inputs, told in ``counts``."""
    signal.signal(signal.SIGALRM, hung)
    with tempfile.TemporaryDirectory(dir=counts.parent) as folder:
        tempfile.tempdir = folder
        Attack(names, seed, failures, Path(folder), worker).run(*span, counts)

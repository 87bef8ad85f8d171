"""When this worker runs: alone, or in turns with others on the same CPU.

A machine changes its speed within seconds (clocks, what else runs on the same core). Workers that
take turns at every step see the same machine, and what they are compared by is the same for all.
A worker that asks for a turn gives up the one that it has; the parent (``capture.turns``) answers
with a byte on stdin when all others wait too.
"""

from __future__ import annotations

import os
from typing import Callable, Optional

from lstmprof.capture.request import TURN, CaptureRequest

#: A turn lasts for one iteration, and for as many more as begin within this time: what the others
#: left in the caches is soon gone, and the first iteration of several does not count.
TURN_NS = 20_000_000

Turn = Callable[[], None]


def turn_of(request: CaptureRequest, report: Callable[[str], None]) -> Optional[Turn]:
    """A call that returns when it is this worker's turn again; None where it has no others."""
    if not request.turn_with:
        return None

    def ask() -> None:
        report(TURN)
        if not os.read(0, 1):  # the parent is gone
            raise SystemExit(1)

    return ask

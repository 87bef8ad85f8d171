"""How much of what ran on the devices is linked to what caused it.

Reads linked events. Activities without a launch are normal where a profile has no host, was trimmed
or lost events; launches without an activity too (an empty copy, a kernel that was not recorded).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import EventTable


@dataclass(frozen=True)
class Coverage:
    """Counts of one profile.

    ``activities``; of these ``launched`` have a launch in the profile, ``issued`` an op that caused
    them. ``kernel_launches`` are the calls that launch kernels or graphs; of these ``unanswered``
    have no activity.
    """

    activities: int
    launched: int
    issued: int
    kernel_launches: int
    unanswered: int


def coverage(events: EventTable) -> Coverage:
    """The counts of ``events``."""
    activity = events.is_kind(*ACTIVITY_KINDS)
    launch, op = events.ints("launch_id", -1), events.ints("op_id", -1)
    launching = events.is_kind("runtime") & events.where_name(is_kernel_launch)
    calls = events.ints("event_id", -1)[launching]
    return Coverage(
        activities=int(activity.sum()),
        launched=int((activity & (launch >= 0)).sum()),
        issued=int((activity & (op >= 0)).sum()),
        kernel_launches=len(calls),
        unanswered=int((~np.isin(calls, launch[activity])).sum()),
    )


def is_kernel_launch(name: str) -> bool:
    """Whether a runtime call of this name launches a kernel or a graph of them."""
    return "Launch" in name and "HostFunc" not in name

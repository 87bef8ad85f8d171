"""How much of what ran on the devices is linked to what caused it.

Reads linked events. Activities without a launch are normal where a profile has no host, was trimmed
or lost events; launches without an activity too (an empty copy, a kernel that was not recorded).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import is_kind
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts


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


def coverage(events: pa.Table) -> Coverage:
    """The counts of ``events``."""
    activity = is_kind(events, *ACTIVITY_KINDS)
    launch, op = ints(events, "launch_id", -1), ints(events, "op_id", -1)
    codes, names = texts(events, "name")
    launching = np.array([is_kernel_launch(name) for name in names] + [False])[codes]
    calls = ints(events, "event_id", -1)[is_kind(events, "runtime") & launching]
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

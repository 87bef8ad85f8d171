"""Evidence for causes: facts of a profile other than times, such as blocking calls.

::

    lane ─▶ calls  waits  work  recurrent  autograd ─▶ Seen
    contexts (purpose of a time interval: input, compiling, reading values)

A lane has the events of a rank's host and of at most one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.breakdown.attribution import Intervals
from lstmprof.diagnose.seen import autograd, calls, recurrent, waits, work
from lstmprof.diagnose.seen.autograd import Growing
from lstmprof.diagnose.seen.calls import RUNTIMES
from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.diagnose.seen.recurrent import Unrolled
from lstmprof.diagnose.seen.waits import Gaps
from lstmprof.diagnose.seen.work import DenseTable, Product, Slow, Small
from lstmprof.events.annotate.steps import Window
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo

__all__ = [
    "RUNTIMES",
    "DenseTable",
    "Fact",
    "Gaps",
    "Growing",
    "Product",
    "Seen",
    "Slow",
    "Small",
    "seen_in",
]


@dataclass(frozen=True)
class Seen:
    """Evidence of a profile about one device or host, such as casts of weights."""

    # for the meaning of a field, see the function in ``FACTS`` with the name of the field
    framework: str | None = None
    gaps: Gaps | None = None
    loading: tuple[Fact, ...] = ()
    steps_before: int = 0
    blocking_calls: tuple[Fact, ...] = ()
    read: tuple[Fact, ...] = ()
    queued: tuple[Fact, ...] = ()
    run_dry: tuple[Fact, ...] = ()
    compiled: tuple[Fact, ...] = ()
    compiled_steps: int = 0
    made_anew: str | None = None
    programs: tuple[Fact, ...] = ()
    eager: tuple[Fact, ...] = ()
    called: tuple[Fact, ...] = ()
    later_allocs: tuple[Fact, ...] = ()
    moved: tuple[Fact, ...] = ()
    weights: tuple[Fact, ...] = ()
    flattens: bool = False
    recast: tuple[Fact, ...] = ()
    relaid: tuple[Fact, ...] = ()
    filled: tuple[Fact, ...] = ()
    shapes: tuple[str, tuple[str, ...]] | None = None
    indexed: tuple[Fact, ...] = ()
    selected: int | None = 0
    sliced: tuple[Fact, ...] = ()
    packed: tuple[Fact, ...] = ()
    one_by_one: tuple[Fact, ...] = ()
    unrolled: Unrolled | None = None
    read_in_compiled: int = 0
    looped_module: tuple[str, int, int] | None = None
    hooked: tuple[Fact, ...] = ()
    recomputed: tuple[Fact, ...] = ()
    scripted: tuple[Fact, ...] = ()
    growing: Growing | None = None
    slowing: Slow | None = None
    graph: bool = False
    captured: float = 0.0
    blocking_launches: float = 0.0
    half_products: tuple[Product, ...] = ()
    peepholes: float = 0.0
    asked_between: float = 0.0
    paths: Mapping[str, float] = field(default_factory=dict)
    keras_frames: bool = False
    looping_ns: int = 0
    dense_tables: tuple[DenseTable, ...] = ()
    small: tuple[Small, ...] = ()


FACTS: tuple[Callable[[Lane], Any], ...] = (
    *(
        waits.gaps,
        waits.blocking_calls,
        waits.read,
        waits.queued,
        waits.run_dry,
        waits.later_allocs,
    ),
    *(
        waits.graph,
        waits.captured,
        waits.blocking_launches,
        calls.loading,
        calls.steps_before,
        calls.compiled,
    ),
    *(calls.compiled_steps, calls.made_anew, calls.programs, calls.eager, calls.called),
    *(work.moved, work.filled, work.shapes, work.slowing, work.half_products, work.dense_tables),
    *(recurrent.weights, recurrent.flattens, recurrent.recast, recurrent.relaid),
    *(recurrent.indexed, recurrent.selected, recurrent.sliced, recurrent.packed),
    *(recurrent.one_by_one, recurrent.unrolled, recurrent.read_in_compiled),
    *(recurrent.looped_module, recurrent.peepholes, recurrent.asked_between, recurrent.paths),
    *(recurrent.keras_frames, recurrent.looping_ns, autograd.hooked, autograd.recomputed),
    *(autograd.scripted, autograd.growing),
)


def seen_in(
    events: EventTable,
    windows: Sequence[Window],
    device: int | None,
    intervals: Intervals,
    info: RunInfo,
) -> Seen:
    lane = Lane(events, windows, device, intervals)
    return Seen(
        framework=info.framework or calls.framework(events),
        small=work.small(lane, info.device_facts),
        **{fact.__name__: fact(lane) for fact in FACTS},
    )

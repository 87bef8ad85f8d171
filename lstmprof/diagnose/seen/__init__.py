"""Facts in a profile, besides times, that decide which fixes are advised.

::

    lane ─▶ origin  loading  calls  waits  work  grids  recurrence  recurrent  slices  autograd
            pace ─▶ Seen
    contexts (the purpose of a stretch of time)

Reads linked and categorised events and the stretches of one lane. Times are parts of the clean step
that the lane waits for or spends; time that overlaps other work does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lstmprof.breakdown.attribution import Stretches
from lstmprof.diagnose.seen import (
    autograd,
    calls,
    cells,
    grids,
    loading,
    origin,
    pace,
    products,
    recurrence,
    recurrent,
    slices,
    waits,
    work,
)
from lstmprof.diagnose.seen.grids import Small
from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.diagnose.seen.loading import RUNTIMES
from lstmprof.diagnose.seen.pace import Slow
from lstmprof.diagnose.seen.products import Product
from lstmprof.diagnose.seen.recurrent import Unrolled
from lstmprof.diagnose.seen.waits import Gaps
from lstmprof.diagnose.seen.work import DenseTable
from lstmprof.events.annotate.steps import Window
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo

__all__ = ["RUNTIMES", "DenseTable", "Fact", "Gaps", "Product", "Seen", "Slow", "Small", "seen_in"]


@dataclass(frozen=True)
class Seen:
    """The facts of one lane; a field is empty if the profile does not show the fact.

    - ``loading``: calls that initialised a GPU's runtime or loaded code. ``steps_before``: steps of
      the program before the profile. ``later_allocs``: calls that allocate or free after the first
      step, or in the later half of an unmarked profile.
    - ``asked``: blocking calls by the op that made them. ``read``: ops that read a value and wait
      for the device. ``queued``: queued work by the call for which it waited. ``run_dry``: blocking
      calls in which an idle device has work and does not begin it. ``graph``: whether
      CUDA graphs were launched. ``captured``: launches per step that were only captured.
      ``blocking_launches``: launches per step, if each returns after its kernel has ended.
    - ``compiled``: tracing and compiling, by op. ``compiled_steps``: the steps with some of it.
      ``made_anew``: a function that is created again in each step.
    - ``programs``, ``eager``: what Python calls one by one (``calls``). ``called``: the time of
      these calls, with the Python between them.
    - ``moved``: work that moves elements, by op. ``filled``: memory that is filled when allocated.
      ``weights``: copies inside a recurrent layer's op. ``flattens``: whether flatten_parameters()
      was called without effect. ``recast``, ``relaid``: casts, and copies into another layout,
      inside such an op. ``shapes``: (op, its shapes) that differ from step to step.
    - ``indexed``: backward passes of indexing, with their forward ops. ``selected``: the largest
      number of them for tensors of one shape in a step; None if shapes were not recorded.
      ``sliced``: backward passes of slices in a loop.
    - ``packed``: recurrent layers over packed sequences, one time step at a time. ``one_by_one``:
      layers called for one sequence after the other. Both include their backward passes.
    - ``unrolled``: cells that compiled code runs one by one. ``read_in_compiled``: most values that
      one call of compiled code reads. ``looped_module``: a parallel module that runs one time step
      at a time.
    - ``hooked``: ops of hooks on gradients. ``recomputed``: forward ops in the backward pass.
      ``scripted``: TorchScript's backward passes. ``growing``: nodes of the first and the last
      step's backward pass, if each step has as many more.
    - ``slowing``: matmuls that are slower at one place of every step. ``half_products``: matmuls
      with 16 bits per element on a device. ``peepholes``: elementwise products per step of a matrix
      and a vector.
    - ``asked_between``: cells per step with a value read before the next cell. ``dense_tables``:
      embedding tables with a dense gradient. ``small``: kernels with fewer blocks than
      multiprocessors.
    - ``paths``: paths of loops and recurrent layers, with runs per step. ``keras_frames``: whether
      Python functions of Keras's layers were recorded.
    """

    framework: str | None = None
    gaps: Gaps | None = None
    loading: tuple[Fact, ...] = ()
    steps_before: int = 0
    asked: tuple[Fact, ...] = ()
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
    looped_module: tuple[str, int] | None = None
    hooked: tuple[Fact, ...] = ()
    recomputed: tuple[Fact, ...] = ()
    scripted: tuple[Fact, ...] = ()
    growing: tuple[int, int] | None = None
    slowing: Slow | None = None
    graph: bool = False
    captured: float = 0.0
    blocking_launches: float = 0.0
    half_products: tuple[Product, ...] = ()
    peepholes: float = 0.0
    asked_between: float = 0.0
    paths: Mapping[str, float] = field(default_factory=dict)
    keras_frames: bool = False
    dense_tables: tuple[DenseTable, ...] = ()
    small: tuple[Small, ...] = ()


def seen_in(
    events: EventTable,
    windows: Sequence[Window],
    device: int | None,
    stretches: Stretches,
    info: RunInfo,
) -> Seen:
    """Return the facts of a lane; ``windows`` have one rank, ``stretches`` are the lane's own."""
    lane = Lane(events, windows, device, stretches)
    compiled, compiled_steps = calls.compiled(lane)
    return Seen(
        framework=info.framework or origin.framework(events),
        gaps=waits.gaps(lane),
        loading=loading.loading(lane),
        steps_before=loading.steps_before(lane),
        asked=waits.asked(lane),
        read=waits.read(lane),
        queued=waits.queued(lane),
        run_dry=waits.run_dry(lane),
        compiled=compiled,
        compiled_steps=compiled_steps,
        made_anew=calls.made_anew(lane),
        programs=calls.programs(lane),
        eager=calls.eager(lane),
        called=calls.called(lane),
        later_allocs=waits.later_allocs(lane),
        moved=work.moved(lane),
        weights=recurrent.weights(lane),
        flattens=recurrent.flattens(lane),
        recast=recurrent.recast(lane),
        relaid=recurrent.relaid(lane),
        filled=work.filled(lane),
        shapes=work.shapes(lane),
        indexed=slices.indexed(lane),
        selected=slices.selected(lane),
        sliced=slices.sliced(lane),
        packed=recurrent.packed(lane),
        one_by_one=recurrent.one_by_one(lane),
        unrolled=recurrent.unrolled(lane),
        read_in_compiled=recurrent.read_in_compiled(lane),
        looped_module=recurrence.looped_module(lane),
        hooked=autograd.hooked(lane),
        recomputed=autograd.recomputed(lane),
        scripted=autograd.scripted(lane),
        growing=autograd.growing(lane),
        slowing=pace.slowing(lane),
        graph=waits.graph(lane),
        captured=waits.captured(lane),
        blocking_launches=waits.blocking_launches(lane),
        half_products=products.half_products(lane),
        peepholes=cells.peepholes(lane),
        asked_between=cells.asked_between(lane),
        paths=recurrence.paths(lane),
        keras_frames=recurrence.keras_frames(lane),
        dense_tables=work.dense_tables(lane),
        small=grids.small(lane, info.device_facts),
    )

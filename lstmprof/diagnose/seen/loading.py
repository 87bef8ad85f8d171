"""Calls that set the runtime of a GPU up or load code: by their names, or first and long."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from lstmprof.breakdown.attribution import LATENCY
from lstmprof.diagnose.seen.lane import Fact, Lane, upper_median
from lstmprof.events.annotate.calls import is_kernel_launch, is_launch
from lstmprof.events.groups import Groups, inherited, own_time
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE
from lstmprof.events.threads import runtime_state

#: The runtime of a GPU by how its functions begin: CUDA's and its driver's, HIP's.
RUNTIMES = {"CUDA": re.compile(r"cuda[A-Z]|cu[A-Z]"), "HIP": re.compile(r"hip[A-Z]")}
#: Calls that load code whenever they are made; the last two are names of Nsight Systems.
_LOADS = re.compile(
    r"cuInit$|cuModuleLoad|cuLibraryLoad|hipModuleLoad|hipInit$|\w*CtxCreate|\w*PrimaryCtxRetain"
    r"|Runtime Triggered Module Loading|Lazy Function Loading"
)
_UNLOADS = re.compile(r"Unload|Destroy|Finalize")
#: A call that takes this long has not only been made: a launch call takes 4.8 to 6.6 µs in a
#: profile of BERT on an H100 (torch.profiler), and this is more than a hundred times that.
LONG_CALL_NS = 1_000_000
#: If the first call takes this many times the median of the later ones, it did more than they.
LONGER = 10
#: The same of an op that computes on the CPU, which takes longer for larger inputs. Chosen by hand.
LONGER_ON_CPU = 100


def loads(name: str) -> bool:
    """Return whether each call of this name loads code or initialises the runtime."""
    return _LOADS.match(name) is not None


def steps_before(lane: Lane) -> int:
    """Return the number of steps before the profile, from the numbers of the markers (from 0 or
    1).
    """
    numbers = lane.step[lane.rank & (lane.step != NONE)]
    return max(0, int(numbers.min()) - 1) if len(numbers) else 0


def loading(lane: Lane) -> tuple[Fact, ...]:
    """Return the calls that load code or initialise the runtime, by name, the longest first."""
    held_ns = lane.held - lane.held_as(LATENCY)
    found = (*_calls(lane), *_first_ops(lane))
    facts = [_fact(lane, rows, usual_ns, held_ns) for rows, usual_ns in found]
    return tuple(sorted((f for f in facts if f.ns), key=lambda f: (-f.ns, f.name)))


def starting(lane: Lane) -> Flags:
    """Return for each row whether it is such a call, or is inside such a call of the runtime.

    A first op counts alone: calls inside it are judged by themselves.
    """
    calls, ops = (np.zeros(len(lane.events), dtype=np.bool_) for _ in range(2))
    for found, marks in ((_calls(lane), calls), (_first_ops(lane), ops)):
        for rows, _ in found:
            marks[rows] = True
    if calls.any():
        calls = inherited(lane.parent, np.where(calls, np.arange(len(calls)), NONE)) != NONE
    return np.asarray(calls | ops, np.bool_)


def _fact(lane: Lane, rows: Ints, usual_ns: int | None, held_ns: Ints) -> Fact:
    ns, name = int(held_ns[rows].sum()), str(lane.text(int(rows[0])))
    return Fact(name, round(ns / lane.steps), len(rows) / lane.steps, None, usual_ns)


def _calls(lane: Lane) -> Iterator[tuple[Ints, int | None]]:
    """Yield the calls of each name that load or initialise, with the time of later calls.

    Calls that load by their name count, and first calls that take much longer than later ones. For
    launches, the first of each kernel counts, because it loads the kernel. Other calls before the
    first kernel also count as first calls, because several may be long (``cudaFree``).
    """
    events = lane.events
    works = lane.rank & events.is_kind("kernel")
    works = works if works.any() else lane.rank & events.is_kind(*ACTIVITY_KINDS)
    begun = lane.least_of_each(events.start_ns, np.flatnonzero(works))
    rows = np.flatnonzero(lane.rank & events.is_kind("runtime"))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for members in Groups(lane.names[rows]).members() if len(rows) else ():
        chosen, usual_ns = _first_long(lane, rows[members], begun, events.dur_ns)
        if len(chosen):
            yield chosen, usual_ns


def _first_ops(lane: Lane) -> Iterator[tuple[Ints, int | None]]:
    """Yield the first call of each computing op that takes much longer than the later calls do.

    Only in a profile without step markers: nothing else says that a profiled step was warmed up. In
    one of PyTorch on an RTX 3090 the first ``aten::cudnn_convolution`` takes 74 ms on the host, the
    later ones 3.3 ms.
    """
    longer = LONGER_ON_CPU if lane.device is None else LONGER
    events = lane.events
    computes = events.column("category").is_valid().to_numpy()
    computes &= ~events.is_one_of("category", "other", "collective")
    rows = np.flatnonzero(lane.rank & events.is_kind("op") & computes)
    if lane.marked or not len(rows):
        return
    rows, own_ns = rows[np.argsort(events.start_ns[rows], kind="stable")], own_time(events)
    for members in Groups(lane.names[rows]).members():
        first = rows[members][Groups(lane.turn[rows[members]]).first]
        others = np.setdiff1d(rows[members], first)
        if len(others) > len(first):
            usual_ns = upper_median(own_ns[others])
            first = first[own_ns[first] >= max(LONG_CALL_NS, longer * usual_ns)]
            if len(first):
                yield first, usual_ns


def _first_long(lane: Lane, rows: Ints, begun_ns: Ints, dur: Ints) -> tuple[Ints, int | None]:
    name = str(lane.text(int(rows[0])))
    of_gpu = any(pattern.match(name) for pattern in RUNTIMES.values())
    if _UNLOADS.search(name) or not (loads(name) or of_gpu) or runtime_state(name) == "sync":
        return rows[:0], None
    early = lane.events.start_ns[rows] < begun_ns[lane.turn[rows]]
    first = rows if loads(name) else _firsts(lane, rows, name)
    if not is_launch(name) and not steps_before(lane):
        first = np.union1d(first, rows[early])
    others = np.setdiff1d(rows, first)
    middle = upper_median(dur[others]) if len(others) else None
    if loads(name):
        long = np.ones(len(first), dtype=np.bool_)
    elif middle is not None:
        long = dur[first] >= max(LONG_CALL_NS, LONGER * middle)
    else:
        long = (dur[first] >= LONG_CALL_NS) & (
            lane.events.start_ns[first] < begun_ns[lane.turn[first]]
        )
    return first[long & lane.here[first]], middle


def _firsts(lane: Lane, rows: Ints, name: str) -> Ints:
    """Return the first of ``rows`` in each process; for launches, the first of each kernel."""
    first = rows[Groups(lane.turn[rows]).first]
    if not is_kernel_launch(name):
        return first
    work = np.flatnonzero(lane.rank & lane.events.is_kind("kernel"))
    launch = lane.events.rows_named("launch_id")[work]
    kernel = np.full(len(lane.events), NONE, dtype=np.int64)
    kernel[launch[launch != NONE]] = lane.names[work][launch != NONE]
    linked = rows[kernel[rows] != NONE]
    if not len(linked):
        return first
    return np.union1d(first, linked[Groups(lane.turn[linked], kernel[linked]).first])

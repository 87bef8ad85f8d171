"""What a profile shows beside the times of its parts: the facts that decide what is advised.

Reads linked and categorised events and the stretches of one lane. Times are of the mean profiled
step and only of what the lane waits for or spends: what is hidden behind other work is in none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution import QUEUED, Stretches
from lstmprof.diagnose.contexts import COMPILES
from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.annotate.links import inherited
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.processes import in_turn
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import STATES, runtime_state, state_codes, thread_ids
from lstmprof.runs.metadata import RunInfo

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
#: The first call has done more than the later ones where it takes so many times their median.
LONGER = 10
#: A gap so many times the median one is none of the usual ones.
UNUSUAL = 10

#: Framework by what only it calls an op, a range or a frame; then by its kernels.
_OPS = {
    "torch": re.compile(r"^(?:aten|c10d|autograd|torch)::|^Torch-Compiled|^ProfilerStep|^torch/"),
    "jax": re.compile(r"^PjitFunction|^jit_\w+[:(]|^trace_to_jaxpr|^jit\("),
    "tensorflow": re.compile(
        r"^[^:\s]*:[A-Z][A-Za-z0-9]+$|^tf\.function|^Eager(?:Local)?Execute|FunctionRun|^SessionRun"
    ),
    "pytensor": re.compile(r"^pytensor::"),
    "theano": re.compile(r"^theano::"),
    "chainer": re.compile(r"^chainer::"),
}
_KERNELS = {
    "torch": re.compile(r"\bat::|\bc10::|at_cuda_detail|THCTensor"),
    "tensorflow": re.compile(r"tensorflow::"),
}
_EVENT_WAIT = re.compile(r"StreamWait(?:Event|Value)")
_HOST_FUNCTION = re.compile(r"LaunchHostFunc|StreamAddCallback")
_LAYER_OP = re.compile(r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)$")
_WEIGHTS_OP = re.compile(r"aten::_(?:cudnn|miopen)_rnn$|aten::(?:miopen_rnn|_cudnn_rnn_flatten)$")
_EMPTY_OP = re.compile(r"aten::(?:new_)?empty(?:_like|_strided)?$")
#: Ops of torch that copy by calling each other.
_ARRANGING = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::reshape", "aten::flatten")
_WORK = ("rnn", "gemm", "conv", "attention", "embedding")


@dataclass(frozen=True)
class Fact:
    """Events of one name: the time of the mean step that they hold, in ``count`` of them a step.

    ``within`` is the op, range or call around them, ``median_ns`` what the others of this name
    take, None where there is none.
    """

    name: str
    ns: int
    count: float
    within: str | None = None
    median_ns: int | None = None


@dataclass(frozen=True)
class Gaps:
    """A device's kernels and the gaps before them, 0 where something still ran: medians.

    ``usual_ns`` of the mean step are in gaps of the usual length, at most ``UNUSUAL`` median ones;
    ``all_ns`` in all.
    """

    kernels: float
    kernel_ns: int
    gap_ns: int
    usual_ns: int
    all_ns: int


@dataclass(frozen=True)
class Seen:
    """The facts of one lane; empty where the profile does not show them.

    ``loading``: calls that initialised the runtime of a GPU or loaded code. ``asked``: blocking
    calls by the op that made them. ``queued``: work that was queued, by what it waited for.
    ``compiled``: tracing and compiling, ``compiled_steps`` the steps with some. ``later_allocs``:
    calls that allocate or free after the first step, or in the later half of an unmarked profile.
    ``moved``: work that moves elements, by op. ``weights``: copies inside a recurrent layer's op,
    ``filled``: memory that was filled as it was allocated. ``shapes``: (op, its shapes) that differ
    from step to step. ``selected``: the largest number of backward passes of indexing into one
    shape in a step. ``packed``: whether a recurrent layer ran over packed sequences. ``graph``:
    whether CUDA graphs were launched.
    """

    framework: str | None = None
    gaps: Gaps | None = None
    loading: tuple[Fact, ...] = ()
    asked: tuple[Fact, ...] = ()
    queued: tuple[Fact, ...] = ()
    compiled: tuple[Fact, ...] = ()
    compiled_steps: int = 0
    later_allocs: tuple[Fact, ...] = ()
    moved: tuple[Fact, ...] = ()
    weights: tuple[Fact, ...] = ()
    filled: tuple[Fact, ...] = ()
    shapes: tuple[str, tuple[str, ...]] | None = None
    selected: int = 0
    packed: bool = False
    graph: bool = False


def seen_in(
    events: EventTable,
    windows: Sequence[Window],
    device: int | None,
    stretches: Stretches,
    info: RunInfo,
) -> Seen:
    """The facts of a lane, all ``windows`` of one rank; ``stretches`` are its own in them."""
    lane = _Lane(events, windows, device, stretches)
    compiled, compiled_steps = _compiled(lane)
    return Seen(
        framework=info.framework or _framework(events),
        gaps=_gaps(lane),
        loading=_loading(lane),
        asked=_asked(lane),
        queued=_queued(lane),
        compiled=compiled,
        compiled_steps=compiled_steps,
        later_allocs=_later_allocs(lane),
        moved=_moved(lane),
        weights=_beneath(lane, lane.copies, _WEIGHTS_OP),
        filled=_beneath(lane, events.is_one_of("name", "aten::fill_"), _EMPTY_OP),
        shapes=_shapes(lane),
        selected=_selected(lane),
        packed=_packed(lane),
        graph=_graph(lane),
    )


class _Lane:
    """The rows of a lane's rank in its windows, and the time that each row holds."""

    def __init__(
        self,
        events: EventTable,
        windows: Sequence[Window],
        device: int | None,
        stretches: Stretches,
    ) -> None:
        self.events, self.device, self.stretches = events, device, stretches
        self.steps, self.marked = len(windows), windows[0].step is not None
        self.rank = np.zeros(len(events), dtype=np.bool_)
        self.rank[events.of_rank(windows[0].rank)] = True
        #: which process a row is of, where one ran after the other: each has a first of all
        self.turn = np.zeros(len(events), dtype=np.int64)
        for number, rows in enumerate(in_turn(events, events.of_rank(windows[0].rank))):
            self.turn[rows] = number
        self.step = events.ints("step", NONE)
        here = self.rank
        if self.marked:
            here = here & np.isin(self.step, [NONE if w.step is None else w.step for w in windows])
        of_device = events.ints("device", UNKNOWN)
        self.here = here & (
            (of_device == UNKNOWN) | (of_device == (UNKNOWN if device is None else device))
        )
        states = np.array([state for state, _ in stretches.labels], dtype=object)
        busy = states[stretches.label] == "busy"
        self.held = self._held(np.ones(len(stretches.row), dtype=np.bool_))
        self.busy = self._held(np.asarray(busy, np.bool_))
        self.activity = self.here & events.is_kind(*ACTIVITY_KINDS)
        self.names, self.texts = events.texts("name")
        self.parent = events.rows_named("parent_id")

    def least_of_each(self, values: Ints, rows: Ints) -> Ints:
        """The least of ``values`` at ``rows`` of each process; past all where it has none."""
        least = np.full(int(self.turn.max(initial=0)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, self.turn[rows], values[rows])
        return least

    def _held(self, which: Flags) -> Ints:
        held = np.zeros(len(self.events), dtype=np.int64)
        which = which & (self.stretches.row != NONE)
        length = self.stretches.end_ns - self.stretches.start_ns
        np.add.at(held, self.stretches.row[which], length[which])
        return held

    def held_as(self, part: str) -> Ints:
        """The time that each row holds in idle stretches of this part."""
        places = [i for i, label in enumerate(self.stretches.labels) if label == ("idle", part)]
        return self._held(np.isin(self.stretches.label, places))

    @property
    def copies(self) -> Flags:
        """Activities, or on a host ops, that move elements."""
        layout = self.events.is_one_of("category", "layout") & self.here
        kinds = ("op",) if self.device is None else ACTIVITY_KINDS
        return np.asarray(layout & self.events.is_kind(*kinds), np.bool_)

    def calls(self, pattern: re.Pattern[str] | None = None) -> Flags:
        """Runtime calls here, those whose name has ``pattern``."""
        calls = self.here & self.events.is_kind("runtime")
        found = calls if pattern is None else calls & self.events.where_name(pattern.search)
        return np.asarray(found, np.bool_)

    def around(self, rows: Ints) -> Ints:
        """The op that each of ``rows`` is in or was issued by, ``NONE`` unknown."""
        is_op = self.events.is_kind("op")
        nearest = inherited(self.events, self.parent, np.where(is_op, np.arange(len(is_op)), NONE))
        issuer = self.events.rows_named("op_id")[rows]
        above = np.where(is_op[rows], self.parent[rows], rows)
        by_parent = np.where(above != NONE, nearest[above], NONE)
        return np.where(issuer != NONE, issuer, by_parent)

    def text(self, row: int) -> str | None:
        return None if row == NONE else self.texts[self.names[row]]

    def by_name(self, rows: Ints, within: Ints, held: Ints) -> tuple[Fact, ...]:
        """``rows`` by their name and that of the row ``within``, the longest first."""
        if not len(rows):
            return ()
        outer = np.where(within != NONE, self.names[within], NONE)
        groups = Groups(self.names[rows], outer)
        ns, sizes = groups.sums(held[rows]), groups.sizes()
        named = [
            Fact(
                str(self.text(int(rows[first]))),
                round(int(ns[i]) / self.steps),
                int(sizes[i]) / self.steps,
                self.text(int(within[first])),
            )
            for i, first in enumerate(groups.first.tolist())
        ]
        return tuple(sorted(named, key=lambda h: (-h.ns, h.name, h.within or "")))


def _framework(events: EventTable) -> str | None:
    """By the names of ops, ranges and frames; where these tell none, by those of kernels."""
    for patterns, kinds in ((_OPS, ("op", "step", "range", "python")), (_KERNELS, ("kernel",))):
        codes, texts = events.texts("name")
        counts = np.bincount(codes[events.is_kind(*kinds)], minlength=len(texts) + 1)
        votes: Counter[str] = Counter()
        for count, text in zip(counts.tolist(), texts, strict=False):
            if count:
                votes.update({name: count for name, p in patterns.items() if p.search(text)})
        if votes:
            return votes.most_common(1)[0][0]
    return None


def _gaps(lane: _Lane) -> Gaps | None:
    """Medians over the kernels of a device, those first in a window left out."""
    rows = np.flatnonzero(lane.activity & (lane.events.dur_ns > 0))
    rows = rows[np.lexsort((lane.events.end_ns[rows], lane.events.start_ns[rows]))]
    kernel = lane.events.is_kind("kernel")[rows]
    if lane.device is None or not kernel[1:].any():
        return None
    reached = np.maximum.accumulate(lane.events.end_ns[rows])
    gap = np.maximum(lane.events.start_ns[rows][1:] - reached[:-1], 0)
    inside = lane.step[rows][1:] == lane.step[rows][:-1] if lane.marked else True
    gap = gap[kernel[1:] & inside]
    if not len(gap):
        return None
    median = _median(gap)
    return Gaps(
        kernels=int(kernel.sum()) / lane.steps,
        kernel_ns=_median(lane.events.dur_ns[rows][kernel]),
        gap_ns=median,
        usual_ns=round(int(gap[gap <= UNUSUAL * median].sum()) / lane.steps),
        all_ns=round(int(gap.sum()) / lane.steps),
    )


def _median(values: Ints) -> int:
    """The lower median, which is one of them."""
    return int(np.sort(values)[(len(values) - 1) // 2])


def _loading(lane: _Lane) -> tuple[Fact, ...]:
    """Calls that load code, and first calls that take much longer than the later ones.

    Of launches the first of each kernel counts, which loads it; of a call that is made only once
    nothing says what it takes, so it counts where the device had done nothing before.
    """
    events, dur = lane.events, lane.events.dur_ns
    calls = lane.rank & events.is_kind("runtime")
    works = lane.rank & events.is_kind(*ACTIVITY_KINDS)
    begun = lane.least_of_each(events.start_ns, np.flatnonzero(works))
    rows = np.flatnonzero(calls)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    loading: list[Fact] = []
    for members in Groups(lane.names[rows]).members():
        of_name = rows[members]
        loading += _first_long(lane, of_name, begun, dur)
    return tuple(sorted(loading, key=lambda h: (-h.ns, h.name)))


def _first_long(lane: _Lane, rows: Ints, begun_ns: Ints, dur: Ints) -> Iterator[Fact]:
    name = str(lane.text(int(rows[0])))
    loads = _LOADS.match(name) is not None
    of_gpu = any(pattern.match(name) for pattern in RUNTIMES.values())
    if _UNLOADS.search(name) or not (loads or of_gpu) or runtime_state(name) == "sync":
        return
    first = rows if loads else _firsts(lane, rows, name)
    others = np.setdiff1d(rows, first)
    median = _median(dur[others]) if len(others) else None
    if loads:
        long = np.ones(len(first), dtype=np.bool_)
    elif median is not None:
        long = dur[first] >= max(LONG_CALL_NS, LONGER * median)
    else:
        long = (dur[first] >= LONG_CALL_NS) & (
            lane.events.start_ns[first] < begun_ns[lane.turn[first]]
        )
    chosen = first[long & lane.here[first]]
    ns = int(lane.held[chosen].sum())
    if ns:
        yield Fact(name, round(ns / lane.steps), len(chosen) / lane.steps, None, median)


def _firsts(lane: _Lane, rows: Ints, name: str) -> Ints:
    """The first of ``rows`` in each process; of launches the first of each kernel there."""
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


def _asked(lane: _Lane) -> tuple[Fact, ...]:
    """Blocking calls for which the lane waits, by the op around them, else the range or frame."""
    sync = state_codes(lane.events) == STATES.index("sync")
    rows = np.flatnonzero(lane.calls() & sync & (lane.held > 0))
    around = lane.around(rows)
    return lane.by_name(rows, np.where(around != NONE, around, lane.parent[rows]), lane.held)


def _queued(lane: _Lane) -> tuple[Fact, ...]:
    """Work that was queued, by the call between the launch before it and its own.

    ``within`` is that call. Where the profiler recorded the stream's wait itself, that decides.
    """
    held = lane.held_as(QUEUED)
    rows = np.flatnonzero(held)
    launch = lane.events.rows_named("launch_id")[rows]
    cause = np.where(launch != NONE, _calls_before(lane, launch), NONE)
    since = np.full(len(held), np.iinfo(np.int64).max, dtype=np.int64)
    stretches = lane.stretches
    np.minimum.at(since, stretches.row, stretches.start_ns)
    recorded = _recorded_waits(lane, rows, since[rows])
    cause = np.where(recorded != NONE, recorded, cause)
    known = cause != NONE
    return lane.by_name(rows[known], cause[known], held)


def _calls_before(lane: _Lane, launch: Ints) -> Ints:
    """For each launch the wait that its thread enqueued after the launch before it."""
    events = lane.events
    waits = events.where_name(_EVENT_WAIT.search) | events.where_name(_HOST_FUNCTION.search)
    enqueues = np.zeros(len(events), dtype=np.bool_)
    launches = events.rows_named("launch_id")
    enqueues[launches[launches != NONE]] = True
    rows = np.flatnonzero(lane.rank & events.is_kind("runtime") & (waits | enqueues))
    thread = thread_ids(events)[rows]
    rows = rows[np.lexsort((events.start_ns[rows], thread))]
    before = np.full(len(events), NONE, dtype=np.int64)
    same = thread_ids(events)[rows[1:]] == thread_ids(events)[rows[:-1]]
    waiting = same & waits[rows[:-1]]
    before[rows[1:][waiting]] = rows[:-1][waiting]
    return before[launch]


def _recorded_waits(lane: _Lane, rows: Ints, since_ns: Ints) -> Ints:
    """For each activity the recorded wait of its own stream that ended while it was waited for."""
    events = lane.events
    waits = np.flatnonzero(
        lane.rank & events.is_kind("device_sync") & events.where_name(_is_stream_wait)
    )
    stream = events.ints("stream", UNKNOWN)
    found = np.full(len(rows), NONE, dtype=np.int64)
    for number in np.unique(stream[waits]).tolist():
        ended = waits[stream[waits] == number]
        ended = ended[np.argsort(events.end_ns[ended], kind="stable")]
        places = np.flatnonzero(stream[rows] == number)
        last = np.searchsorted(events.end_ns[ended], events.start_ns[rows[places]], "right") - 1
        during = (last >= 0) & (events.end_ns[ended[last]] > since_ns[places])
        found[places[during]] = ended[last[during]]
    return found


def _is_stream_wait(name: str) -> bool:
    return "Stream" in name and "Wait" in name


def _compiled(lane: _Lane) -> tuple[tuple[Fact, ...], int]:
    """(tracing and compiling, the steps or the separate times with some)."""
    events = lane.events
    marks = lane.here & events.is_kind("op", "range", "python", "runtime")
    marks &= events.where_name(COMPILES.search)
    inside = inherited(events, lane.parent, np.where(marks, np.arange(len(events)), NONE))
    above = np.where(lane.parent != NONE, inside[lane.parent], NONE)
    rows = np.flatnonzero(marks & (above == NONE))
    steps = len(np.unique(lane.step[rows])) if lane.marked else min(len(rows), 1)
    nobody = np.full(len(rows), NONE, dtype=np.int64)
    return lane.by_name(rows, nobody, events.dur_ns), steps


def _later_allocs(lane: _Lane) -> tuple[Fact, ...]:
    """Calls that allocate or free, after the first step of their process.

    Unmarked, after half of the activities.
    """
    events = lane.events
    rows = np.flatnonzero(lane.calls() & (state_codes(events) == STATES.index("alloc")))
    if lane.marked:
        first = lane.least_of_each(lane.step, np.flatnonzero(lane.here & (lane.step >= 0)))
        rows = rows[lane.step[rows] > first[lane.turn[rows]]]
    else:
        begun = np.sort(events.start_ns[lane.activity])
        middle = begun[len(begun) // 2] if len(begun) else np.iinfo(np.int64).max
        rows = rows[events.start_ns[rows] > middle]
    return lane.by_name(rows, np.full(len(rows), NONE, dtype=np.int64), lane.held)


def _moved(lane: _Lane) -> tuple[Fact, ...]:
    """What moves elements, by kernel or op; ``within`` the outermost op that only arranges it."""
    rows = np.flatnonzero(lane.copies)
    within = lane.around(rows)
    arranges = lane.events.is_one_of("name", *_ARRANGING)
    for _ in _ARRANGING:
        outer = np.where(within != NONE, lane.around(within), NONE)
        within = np.where((outer != NONE) & arranges[outer], outer, within)
    return lane.by_name(rows, within, lane.busy)


def _beneath(lane: _Lane, which: Flags, pattern: re.Pattern[str]) -> tuple[Fact, ...]:
    """Rows of ``which`` that an op of this ``pattern`` issued, or a call in it."""
    rows = np.flatnonzero(which & lane.here)
    within = lane.around(rows)
    fits = lane.events.is_kind("op") & lane.events.where_name(pattern.match)
    chosen = (within != NONE) & fits[within]
    spent = lane.busy if lane.events.is_kind(*ACTIVITY_KINDS)[rows].all() else lane.held
    return lane.by_name(rows[chosen], within[chosen], spent)


def _shapes(lane: _Lane) -> tuple[str, tuple[str, ...]] | None:
    """The first product or layer that all steps call as often, with other shapes in some."""
    if not lane.marked:
        return None
    events = lane.events
    codes, texts = events.texts("shapes")
    works = lane.here & events.is_kind("op") & events.is_one_of("category", *_WORK)
    rows = np.flatnonzero(works & (codes != NONE) & (lane.step >= 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for members in sorted(Groups(lane.names[rows]).members(), key=lambda places: places[0]):
        of_name = rows[members]
        steps = [sorted(codes[of_name[m]].tolist()) for m in Groups(lane.step[of_name]).members()]
        alike = set(steps[0]).intersection(*steps)
        if len(steps) == lane.steps and len({len(step) for step in steps}) == 1:
            others = [c for c in dict.fromkeys(codes[of_name].tolist()) if c not in alike]
            if others and any(step != steps[0] for step in steps):
                return str(lane.text(int(of_name[0]))), tuple(texts[code] for code in others)
    return None


def _selected(lane: _Lane) -> int:
    """The largest number of backward passes of indexing into tensors of one shape in a step."""
    events = lane.events
    codes = events.texts("shapes")[0]
    rows = np.flatnonzero(
        lane.here & events.is_kind("op") & events.is_one_of("name", "aten::select_backward")
    )
    rows = rows[codes[rows] != NONE]
    sizes = Groups(codes[rows], lane.step[rows]).sizes() if len(rows) else np.zeros(1)
    return int(sizes.max())


def _packed(lane: _Lane) -> bool:
    """Whether sequences were packed, or a layer's second input is a list of batch sizes."""
    packs = lane.events.is_one_of("name", "aten::_pack_padded_sequence")
    layers = lane.events.where_name(_LAYER_OP.match) & lane.events.where("dtypes", _has_sizes)
    return bool((lane.here & (packs | layers)).any())


def _has_sizes(dtypes: str) -> bool:
    try:
        return [str(one) for one in json.loads(dtypes)][1:2] == ["long int"]
    except (ValueError, TypeError):
        return False


def _graph(lane: _Lane) -> bool:
    """Whether CUDA graphs were launched, or activities name the node that replayed them."""
    replayed = lane.events.column("graph_node_id").is_valid().to_numpy() & lane.activity
    launched = lane.calls() & lane.events.where_name(lambda name: "GraphLaunch" in name)
    return bool(replayed.any() or launched.any())

"""Find the ops and calls that a step no longer needs without some of its work, such as copies.

Example: without a copy, the step needs neither the launch call of the copy, nor a ``.transpose()``
right before the copy, nor the copy's autograd node.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.attribution.host import computing
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Forest, nearest, values_at
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, Column
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import STATES, VALUE_READS, nesting_order, state_codes, thread_ids

EVENT = Column("event_id", pa.int64(), "", "the event")
START = Column("start_ns", pa.int64(), "ns", "start, inside the window")
END = Column("end_ns", pa.int64(), "ns", "end, inside the window")
THREAD = Column("thread", pa.int64(), "", "number of the host thread")
PHASE = Column("phase", pa.string(), "", "phase of the step", "none is known")


class StepRows:
    """The columns of one step's events that a replay needs."""

    def __init__(self, events: EventTable, window: Window) -> None:
        self.events, self.window = events, window
        self.thread = thread_ids(events)
        self.state = state_codes(events, window.framework_ranges)
        self.runs_python = events.is_kind("step", "range", "python") & (self.thread >= 0)
        device = events.ints("device", UNKNOWN) != UNKNOWN
        self.runs_on_device = events.is_kind(*ACTIVITY_KINDS) & device
        self.event_id = events.ints("event_id", NONE)
        self.start_ns, self.end_ns = events.start_ns, events.end_ns
        self.correlation = events.ints("correlation_id", UNKNOWN)
        self.launch = events.rows_named("launch_id")
        self.parent = events.rows_named("parent_id")
        rows = events.rows_of_rank(window.rank)
        # let no host op count as computing if the rank has device activities, as in the ledger
        self.computes = computing(events) & (not self.runs_on_device[rows].any())
        ends = np.maximum(self.end_ns, self.start_ns + 1)[rows] > window.start_ns
        self.rows = rows[ends & (self.start_ns[rows] < window.end_ns)]
        self.host = self.rows[self.thread[self.rows] >= 0]
        activities = self.rows[self.runs_on_device[self.rows]]
        order = np.lexsort(
            (self.correlation[activities], self.end_ns[activities], self.start_ns[activities])
        )
        self.activities = activities[order]
        self.blocks = self._blocking_copies()

    def calls(self, *wanted: str) -> Ints:
        """Return the runtime calls with one of ``wanted`` in the name, sorted by start."""
        named = self.events.where_name(lambda name: any(part in name for part in wanted))
        rows = self.host[(named & self.events.is_kind("runtime"))[self.host]]
        return np.asarray(rows[np.argsort(self.start_ns[rows], kind="stable")], dtype=np.int64)

    def _blocking_copies(self) -> Flags:
        """Mark the copies that their launch call waits for, and these launch calls."""
        blocks = np.zeros(len(self.event_id), dtype=np.bool_)
        rows = self.activities[self.launch[self.activities] != NONE]
        call = self.launch[rows]
        waited = self.state[call] == STATES.index("sync")
        waited |= self.events.is_kind("memcpy")[rows] & (self.end_ns[rows] <= self.end_ns[call])
        blocks[rows[waited]] = True
        blocks[call[waited]] = True
        return blocks

    def within(self, ns: Ints) -> Ints:
        clipped: Ints = np.clip(ns, self.window.start_ns, self.window.end_ns)
        return clipped


def texts_at(events: EventTable, column: str, rows: Ints, mask: Flags) -> pa.Array:
    codes, values = events.texts(column)
    code = np.where(mask, codes[rows], NONE) if len(codes) else np.full(len(rows), NONE)
    return pa.array(values, pa.string()).take(pa.array(code, pa.int64(), mask=code < 0))


#: Ops that make one view of a tensor and compute nothing. Source: PyTorch's "Tensor Views".
VIEWS = frozenset(
    {
        *("_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal"),
        *("expand", "expand_as", "flatten", "movedim", "narrow", "numpy_T", "permute", "reshape"),
        *("select", "slice", "squeeze", "swapaxes", "swapdims", "t"),
        *("transpose", "unflatten", "unsqueeze", "view", "view_as"),
    }
)
#: Ops that only make memory filled with zeros: PyTorch's, and TensorFlow's ``<node>:ZerosLike``.
ZEROS = re.compile(r"^aten::(zero_|zeros|zeros_like|new_zeros)$|(^|:)ZerosLike$")
#: Beginning of the name of an op in which PyTorch's autograd engine runs a node.
ENGINE = "autograd::engine::evaluate_function: "
#: Pattern of ops that compute the gradients of the slices ``x[t]`` and ``x[a:b]``.
_SLICE_GRADIENTS = re.compile(r"^autograd::engine::evaluate_function: (Select|Slice)Backward\d*$")
_SUMS = ("aten::add", "aten::add_")
_MOST_ROUNDS = 4


class Calls:
    """Finds the ops and calls that the program does not need if some work is not done."""

    # "work" is activities, and ops that compute on the host; a "call" is a host op or runtime call

    def __init__(self, step: StepRows) -> None:
        events = step.events
        self.events, self.parent = events, step.parent
        self.event_id = step.event_id
        self.is_call = events.is_kind("op", "runtime") & (step.thread >= 0)
        self.forward = events.rows_named("forward_id")
        self.forest = Forest(step.parent)
        self.issuer = np.where(step.launch != NONE, step.launch, events.rows_named("op_id"))
        self.issuer[~events.is_kind(*ACTIVITY_KINDS)] = NONE
        self.issuer[step.computes] = np.flatnonzero(step.computes)
        self.works = self.issuer != NONE
        # find the nearest computing event around each event
        self.part_of = values_at(nearest(step.parent, step.computes), step.parent)
        self.node = nearest(step.parent, self.is_call & (self.forward != NONE))
        named = events.where_name(lambda name: name.rpartition("::")[2] in VIEWS)
        views = events.is_kind("op") & named
        self.views = views & (self.forest.beneath((~views).astype(np.int64)) == 0)
        self.after = self._next_sibling(step)

    def work_of_category(self, *categories: str) -> Flags:
        """Mark the work of ``categories``, except work inside other computing ops."""
        wanted = self.works & self.events.is_one_of("category", *categories)
        return np.asarray(wanted & ~self._within_other(wanted), dtype=np.bool_)

    def work_of_autograd(self, work: Flags) -> Flags:
        """Mark the ``work`` that autograd issued in the backward pass of a known op."""
        issued = self.node[np.maximum(self.issuer, 0)] != NONE
        return np.asarray(work & (self.issuer != NONE) & issued, dtype=np.bool_)

    def zero_fills(self) -> Flags:
        """Mark work that sets memory to zero, except inside other computing ops."""
        around = self._beneath(self.events.where_name(ZEROS.search))
        wanted = self.works & (self.issuer != NONE) & around[self.issuer]
        wanted |= self.works & self.events.is_kind("memset")
        return np.asarray(wanted & ~self._within_other(wanted), dtype=np.bool_)

    def named(self, *names: str) -> Flags:
        return np.asarray(self.is_call & self.events.is_one_of("name", *names), dtype=np.bool_)

    def sums(self) -> Flags:
        """Mark the calls by which autograd adds up gradients of one tensor."""
        engine = self.events.where_name(lambda name: name.startswith(ENGINE)) & self.is_call
        inner = self.named(*_SUMS) & (self.parent != NONE)
        return np.asarray(inner & engine[np.maximum(self.parent, 0)], dtype=np.bool_)

    def value_reads(self) -> Flags:
        """Mark ops that read a value (``aten::item``), and views right before these ops."""
        return self._with_views(self.named(*VALUE_READS))

    def without(self, work: Flags, *, reads: bool = True) -> Flags:
        """Mark ``work`` and the events that the program needs only for ``work``."""
        vanished = work
        for _ in range(_MOST_ROUNDS):
            before = int(vanished.sum())
            vanished = self._with_around(self._with_nodes(self._with_around(vanished)))
            vanished = self._with_views(vanished) if reads else vanished
            if int(vanished.sum()) == before:
                break
        return vanished

    def slices(self) -> tuple[Flags, Flags]:
        """Return two masks: ops that sum gradients of slices ``x[t]``, and slicing ops."""
        names = self.events.where_name(_SLICE_GRADIENTS.search)
        engine = self.is_call & names
        sums = np.flatnonzero(self.sums())
        sums = sums[engine[self.parent[sums]]]
        summed = np.zeros(len(engine), dtype=np.bool_)
        summed[self.parent[sums]] = True
        # mark the sums: autograd fills a whole tensor for each slice, which takes quadratic time
        vanished = self._beneath(summed)
        copies = self.is_call & self.events.is_one_of("name", "aten::copy_")
        made = np.zeros(len(engine), dtype=np.bool_)
        rows = np.flatnonzero(summed & (self.forward != NONE))
        made[self._outermost_views(self.forward[rows])] = True
        return vanished & ~self._beneath(copies & vanished), made

    def _outermost_views(self, rows: Ints) -> Ints:
        """Return the outermost view op around each op of ``rows``, or the op itself."""
        outer = rows.copy()
        for _ in range(_MOST_ROUNDS):
            above = self.parent[outer]
            outer = np.where((above != NONE) & self.views[np.maximum(above, 0)], above, outer)
        return outer

    def _within_other(self, wanted: Flags) -> Flags:
        """Mark the events inside a computing op that ``wanted`` does not mark."""
        around = self.part_of
        return np.asarray((around != NONE) & ~wanted[np.maximum(around, 0)], dtype=np.bool_)

    def _issued(self, work: Flags) -> Ints:
        """Return how much ``work`` each event and the nested events issued."""
        counts = np.zeros(len(work), dtype=np.int64)
        np.add.at(counts, self.issuer[work & self.works], 1)
        return self.forest.beneath(counts)

    def _beneath(self, rows: Flags) -> Flags:
        """Mark ``rows`` and all events nested in ``rows``."""
        return np.asarray(nearest(self.parent, rows) != NONE, dtype=np.bool_)

    def _with_around(self, vanished: Flags) -> Flags:
        """Add the work of the vanished calls, and calls that issue only vanished work."""
        calls = vanished & self.is_call
        issued_by_vanished = self._beneath(calls)
        work = self.works & (vanished | issued_by_vanished[np.maximum(self.issuer, 0)])
        issued, remaining = self._issued(self.works), self._issued(self.works & ~work)
        calls |= self.is_call & (issued > 0) & (remaining == 0)
        return np.asarray(self._beneath(calls) | work, dtype=np.bool_)

    def _with_nodes(self, vanished: Flags) -> Flags:
        """Add autograd nodes of vanished ops, and their engine events if these are empty."""
        nodes = self.is_call & (self.forward != NONE) & vanished[np.maximum(self.forward, 0)]
        engine = nodes & self.events.where_name(lambda name: name.startswith(ENGINE))
        vanished = vanished | self._beneath(nodes & ~engine)
        remaining = self._issued(self.works & ~vanished[np.maximum(self.issuer, 0)] & ~vanished)
        return np.asarray(vanished | self._beneath(engine & (remaining == 0)), dtype=np.bool_)

    def _with_views(self, vanished: Flags) -> Flags:
        """Add the views right before the vanished calls."""
        # assume that the next call uses the view, because profiles do not record uses
        views = vanished & self.views
        rows = np.flatnonzero(self.views & (self.after != NONE))
        calls = vanished & self.is_call
        while True:
            more = rows[(calls | views)[self.after[rows]] & ~views[rows]]
            if not len(more):
                return np.asarray(vanished | self._beneath(views), dtype=np.bool_)
            views[more] = True

    def _next_sibling(self, step: StepRows) -> Ints:
        """Return for each call the next call with an equal thread and parent."""
        rows = nesting_order(self.events, step.host[self.is_call[step.host]])
        order = np.lexsort((np.arange(len(rows)), step.thread[rows], self.parent[rows]))
        rows = rows[order]
        after = np.full(len(self.parent), NONE, dtype=np.int64)
        same = (self.parent[rows[1:]] == self.parent[rows[:-1]]) & (
            step.thread[rows[1:]] == step.thread[rows[:-1]]
        )
        after[rows[:-1][same]] = rows[1:][same]
        return after

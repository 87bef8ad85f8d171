"""Link each event to its parent, launch, op, phase and forward op."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.events.groups import Codes, inherited
from lstmprof.events.intervals import Flags, Ints, foremost, longer_first
from lstmprof.events.schema import ACTIVITY_KINDS, PHASES
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import nesting_order, thread_ids

#: Pattern of the ranges that torch.optim records, which are the optimizer phase.
_OPTIMIZER_RANGE = re.compile(r"^Optimizer\.(step|zero_grad)#")
#: Pattern of name scopes in the backward pass: TensorFlow's, and JAX's ``transpose(jvp(…))``.
_GRADIENT_SCOPE = re.compile(r"(^|/)gradient_tape/|^gradients(?:_\d+)?/|transpose\(jvp\(")
_PHASE_SCOPE = re.compile(r"(?:^|/|jvp\()(" + "|".join(PHASES) + r")(?:_\d+)?(?=[/:)]|$)")
#: Prefix of the op that PyTorch's autograd engine records around every backward node.
_AUTOGRAD = "autograd::engine::"
#: Pattern of the names of backward nodes in PyTorch's older profiler.
_GRADIENT_NODE = re.compile(r"[A-Z]\w*Backward\d*|torch::autograd::\w+")
#: (phase, pattern of MXNet's operators). Names decide, because MXNet runs operators late, when
#: Python is already in a later phase.
_MXNET_PHASES = (
    ("backward", re.compile(r"mxnet::_(?:backward_|grad_add$)")),
    ("optimizer", re.compile(r"mxnet::\w+_update(?:_phase[12])?$")),
    ("loss", re.compile(r"mxnet::(?:log_softmax|pick|(?i:ctc_?loss|make_?loss)|\w+Output)$")),
    ("forward", re.compile(r"mxnet::(?!MX[A-Z]|DeleteVariable|WaitFor)")),
)


def linked(events: EventTable) -> EventTable:
    """Fill the columns ``parent_id``, ``launch_id``, ``op_id`` and ``phase``."""
    parent = small(parents(events))
    events = events.with_columns({"parent_id": _ids(events, parent)})
    launch = small(launches(events))
    events = events.with_columns({"launch_id": _ids(events, launch)})
    op = ops(events, parent, launch)
    events = events.with_columns({"op_id": _ids(events, op)})
    del op
    phase = phases(events, parent, launch)
    named = pa.DictionaryArray.from_arrays(pa.array(phase, mask=phase == NONE), pa.array(PHASES))
    return events.with_columns({"phase": named})


def small(rows: Ints) -> Codes:
    """Use 32-bit row numbers if possible, to save memory."""
    return rows.astype(np.int32) if len(rows) < 2**31 else rows


def _ids(events: EventTable, rows: Ints) -> pa.Array:
    event_id = events.ints("event_id", NONE)
    return pa.array(event_id[np.maximum(rows, 0)], mask=rows == NONE) if len(rows) else pa.array([])


def parents(events: EventTable) -> Ints:
    """Find the innermost event around each event on its thread: a row, or ``NONE``."""
    thread = small(thread_ids(events))
    rows = small(nesting_order(events, np.flatnonzero(thread >= 0)))
    rows = rows[np.argsort(thread[rows], kind="stable")]
    first = np.append(True, np.diff(thread[rows]) != 0)[: len(rows)]
    del thread
    previous = np.append(0, np.where(first, 0, np.arange(len(rows), dtype=rows.dtype)))
    previous = small(previous)
    ends = np.append(np.iinfo(np.int64).max, events.end_ns[rows])  # position 0: around all events
    behind = np.flatnonzero(ends[previous] < ends)
    # Follow links for all rows at once (pointer jumping) until each linked event encloses its row.
    while len(behind):
        previous[behind] = previous[previous[behind]]
        behind = behind[ends[previous[behind]] < ends[behind]]
    del ends, behind
    parent = np.full(len(events), NONE, dtype=np.int64)
    parent[rows] = np.append(NONE, rows)[previous[1:]]
    return parent


def launches(events: EventTable) -> Ints:
    """Find each activity's launch: the earliest runtime call with its correlation id."""
    return _calls_with(events, events.ints("correlation_id", UNKNOWN))


def captured_by(events: EventTable) -> Ints:
    """Find the runtime call that added each activity to a CUDA graph during capture."""
    return _calls_with(events, events.ints("graph_node_id", UNKNOWN))


def _calls_with(events: EventTable, number: Ints) -> Ints:
    """Find each activity's call: the earliest runtime call with an equal ``number``."""
    rank, pid = (events.ints(name, UNKNOWN) for name in ("rank", "pid"))
    has_number = number > 0  # profilers write 0 or −1 for an unknown id
    calls = np.flatnonzero(has_number & events.is_kind("runtime"))
    activities = has_number & events.is_kind(*ACTIVITY_KINDS)
    call = np.full(len(events), NONE, dtype=np.int64)
    calls = calls[longer_first(events.start_ns[calls], events.dur_ns[calls])]
    # Match ids within a process, because ids are unique only there.
    for rows, columns in (
        (np.flatnonzero(activities & (pid == UNKNOWN)), (rank, number)),
        (np.flatnonzero(activities & (pid != UNKNOWN)), (rank, pid, number)),
    ):
        call[rows] = _first_match(columns, calls, rows)
    return call


def _first_match(columns: tuple[Ints, ...], among: Ints, rows: Ints) -> Ints:
    """Find each row's first match in ``among`` with equal ``columns``, or ``NONE``."""
    if not len(among) or not len(rows):
        return np.full(len(rows), NONE, dtype=np.int64)
    all_rows = np.concatenate([among, rows])
    order = np.lexsort([column[all_rows] for column in columns])
    changes = [column[all_rows][order][1:] != column[all_rows][order][:-1] for column in columns]
    key = np.empty(len(all_rows), dtype=np.int64)
    key[order] = np.append(0, np.cumsum(np.any(changes, axis=0)))
    first = np.full(len(all_rows), NONE, dtype=np.int64)
    first[key[: len(among)][::-1]] = among[::-1]  # reversed: the first row remains
    return first[key[len(among) :]]


def ops(events: EventTable, parent: Ints, launch: Ints) -> Ints:
    """Find the row of the op that issued each activity or runtime call, or ``NONE``."""
    is_op = events.is_kind("op")
    enclosing = inherited(parent, small(np.where(is_op, np.arange(len(events)), NONE)))
    runtime = events.is_kind("runtime")
    op = np.where(runtime, enclosing, NONE)
    has_launch = launch != NONE
    op[has_launch] = enclosing[launch[has_launch]]
    return np.where(op != NONE, op, ops_by_external_id(events, is_op, launch))


def ops_by_external_id(events: EventTable, is_op: Flags, launch: Ints) -> Ints:
    """Find the op of each activity without a launch, by equal external ids."""
    rank, external = (events.ints(name, UNKNOWN) for name in ("rank", "external_id"))
    activity = events.is_kind(*ACTIVITY_KINDS) & (launch == NONE)
    # Skip external ids that equal the correlation id, as some profilers write: such ids name no op.
    activity &= (external > 0) & (external != events.ints("correlation_id", UNKNOWN))
    rows = np.flatnonzero(activity)
    op = np.full(len(events), NONE, dtype=np.int64)
    op[rows] = _first_match((rank, external), np.flatnonzero(is_op & (external > 0)), rows)
    return op


def phases(events: EventTable, parent: Ints, launch: Ints) -> Codes:
    """Return the phase of each event as an index into ``PHASES``, or ``NONE``."""
    # Prefer the event's own name scope, then enclosing events, the launch, and open phase ranges.
    scoped = scope_phases(events)
    scopes = np.where(scoped != NONE, scoped, _named_phases(events))
    phase = inherited(parent, scopes)
    has_launch = launch != NONE
    phase[has_launch] = np.where(
        scoped[has_launch] != NONE, scoped[has_launch], phase[launch[has_launch]]
    )
    phase = np.where(phase != NONE, phase, _open_phases(events))
    again = has_launch & (phase == NONE)
    phase[again] = phase[launch[again]]
    return phase


def _named_phases(events: EventTable) -> Codes:
    return events.once(_phases_of_names, "name", "kind")


def _phases_of_names(events: EventTable) -> Codes:
    range_phases = events.mapped("name", _range_phase, NONE, np.int8)
    op_phases = np.where(
        events.is_kind("op"), events.mapped("name", _op_phase, NONE, np.int8), NONE
    )
    return np.where(events.is_kind("range"), range_phases, op_phases.astype(np.int8))


def _op_phase(name: str) -> int:
    if name.startswith(_AUTOGRAD) or _GRADIENT_NODE.fullmatch(name):
        return PHASES.index("backward")
    if name.startswith("mxnet::"):
        matches = (PHASES.index(phase) for phase, pattern in _MXNET_PHASES if pattern.match(name))
        return next(matches, NONE)
    # Import late, because commands that only read a stored run do not need the rules.
    from lstmprof.events.annotate.rules.graphs import GRADIENT, scan_label

    scan = scan_label(name)
    if scan is None:
        return NONE
    return PHASES.index("backward" if scan.startswith(GRADIENT) else "forward")


def _range_phase(name: str) -> int:
    if name in PHASES:
        return PHASES.index(name)
    return PHASES.index("optimizer") if _OPTIMIZER_RANGE.search(name) else NONE


def scope_phases(events: EventTable) -> Codes:
    """Return each event's phase from the name scope of its op, or ``NONE``."""
    return events.once(_scope_phases, "name", "op_name", "kind")


def _scope_phases(events: EventTable) -> Codes:
    phase = np.full(len(events), NONE, dtype=np.int8)
    for column, rows in (
        ("name", events.is_kind("op")),
        ("op_name", np.ones(len(events), dtype=bool)),
    ):
        scoped = events.mapped(column, _scope_phase, NONE, np.int8)
        phase = np.where((phase == NONE) & rows, scoped, phase)
    return phase


def _scope_phase(name: str) -> int:
    if "/" not in name:
        return NONE
    if _GRADIENT_SCOPE.search(name):
        return PHASES.index("backward")
    match = _PHASE_SCOPE.search(name)
    return PHASES.index(match.group(1)) if match else NONE


def _open_phases(events: EventTable) -> Codes:
    """Return the innermost phase open on any thread when each host event of a rank began."""
    named = _named_phases(events)
    on_host = thread_ids(events) >= 0
    phase = np.full(len(events), NONE, dtype=np.int8)
    is_range = events.is_kind("range") & (named != NONE) & on_host
    rank = events.ints("rank", UNKNOWN)
    start, end = events.start_ns, events.end_ns
    for number in np.unique(rank[is_range]):
        rows = nesting_order(events, np.flatnonzero(is_range & (rank == number)))
        open_then = foremost(start[rows], end[rows], np.arange(len(rows))[::-1])
        host_rows = np.flatnonzero(on_host & (rank == number))
        owner = open_then.owner_at(start[host_rows])
        phase[host_rows] = np.where(owner == NONE, NONE, named[rows[np.maximum(owner, 0)]])
    return phase


def with_forwards(events: EventTable) -> EventTable:
    forward = forwards(events)
    event_id = events.ints("event_id", UNKNOWN)
    named = event_id[np.maximum(forward, 0)] if len(event_id) else forward
    return events.with_columns({"forward_id": pa.array(named, mask=forward < 0)})


def forwards(events: EventTable) -> Ints:
    """Return the row of the forward op that each backward op differentiates, or −1."""
    number = events.ints("sequence_number", UNKNOWN)
    numbered = events.is_kind("op") & (number >= 0)
    is_backward = numbered & (events.ints("forward_thread", 0) > 0)
    forward = np.full(len(events), -1, dtype=np.int64)
    rows = np.flatnonzero(numbered)
    rank, start = events.ints("rank", UNKNOWN), events.start_ns
    # Sort backward ops first if starts are equal, because the forward op must begin earlier.
    rows = rows[np.lexsort((~is_backward[rows], start[rows], number[rows], rank[rows]))]
    place = np.where(is_backward[rows], -1, np.arange(len(rows)))
    # Take the latest forward op before each backward op.
    # Source: ``fwdbwd`` in torch/csrc/autograd/profiler_kineto.cpp.
    latest = np.maximum.accumulate(place) if len(rows) else place
    maker = rows[np.maximum(latest, 0)]
    same = (latest >= 0) & (number[maker] == number[rows]) & (rank[maker] == rank[rows])
    linked = same & is_backward[rows]
    forward[rows[linked]] = maker[linked]
    return forward

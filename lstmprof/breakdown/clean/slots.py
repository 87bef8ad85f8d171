"""Give each event a number, the *slot*, which the matching events of other steps share.

Host events match by parent, name, kind, shapes and position. Device activities match by launch and
position. If steps differ, the longest common subsequence (rapidfuzz) decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import LCSseq

from lstmprof.breakdown.attribution import Intervals
from lstmprof.events.annotate.steps import Window, windows_at
from lstmprof.events.groups import Groups, distinct, numbered
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

#: Most pairs of events in a search for the longest common subsequence (1 bit per pair). With more
#: pairs, the n-th events of a name match.
MOST_PAIRS = 200_000_000
#: Pattern of parts of a name that differ between steps: TensorFlow's ``#id=3,step=7#``, memory
#: addresses, step numbers.
VARYING = re.compile(r"#[^#]*#|#\d+$|0x[0-9a-f]+")
#: Codes of events without a parent in the step
_OWN_THREAD, _OTHER_THREADS, _NO_LAUNCH = -2, -3, -4
_NOTHING: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Slots:
    """The slot (an event that recurs) of each time interval and of each event."""

    slot: Ints
    like: Ints  # equal for intervals that run the same code
    of_event: Ints
    absent: tuple[Ints, Ints] = (_NOTHING, _NOTHING)  # (slot, step) of gaps of length 0


def slots_of_intervals(
    events: EventTable, windows: Sequence[Window], intervals: Intervals, on_device: bool
) -> Slots:
    """Assign matching time intervals of different steps to one slot."""
    if not len(events):
        slot = numbered(intervals.label)
        return Slots(slot, slot, np.empty(0, dtype=np.int64))
    slot_of = slots_of_events(events, windows)
    row, has_event = intervals.row, intervals.row != NONE
    own = np.where(has_event, slot_of[row], NONE)
    if on_device:
        busy = np.array([state == "busy" for state, _ in intervals.labels], dtype=np.bool_)
        busy = busy[intervals.label]
        # give all idle time before an activity one slot, whatever the cause
        activity_slot = np.where(busy, own, _next_busy(intervals, own, busy))
        slot = numbered(np.where(busy, intervals.label, NONE), activity_slot)
        return Slots(slot, slot, slot_of, _absent(slot, activity_slot, intervals.window, busy))
    label = events.once(_labels, *_LABEL_COLUMNS)
    parent = events.rows_named("parent_id")
    around = np.where(parent != NONE, label[parent], NONE)
    # give the time between two children of an event a slot of its own
    before = _last_child(events, intervals)
    inside = before != NONE
    slot = numbered(intervals.label, own, np.where(inside, slot_of[before], NONE))
    like = numbered(
        intervals.label,
        np.where(has_event, label[row], NONE),
        np.where(has_event, around[row], NONE),
        np.where(inside, label[before], NONE),
    )
    return Slots(slot, like, slot_of)


def _next_busy(intervals: Intervals, own: Ints, busy: np.ndarray) -> Ints:
    """Return, for each interval, the slot of the next activity in the step."""
    order = np.lexsort((intervals.start_ns, intervals.window))
    window, sorted_busy = intervals.window[order], busy[order]
    positions = np.where(sorted_busy, np.arange(len(order)), len(order))
    following = np.minimum.accumulate(positions[::-1])[::-1]
    safe = np.minimum(following, len(order) - 1)
    is_followed = (following < len(order)) & (window[safe] == window)
    result = np.empty(len(order), dtype=np.int64)
    result[order] = np.where(is_followed, own[order][safe], NONE)
    return result


def _absent(slot: Ints, activity_slot: Ints, window: Ints, busy: np.ndarray) -> tuple[Ints, Ints]:
    """Return (slot, step) of gaps that are 0 ns long in this step, longer in others."""
    gap_before = np.full(int(activity_slot.max(initial=0)) + 1, NONE, dtype=np.int64)
    gaps = np.flatnonzero(~busy & (activity_slot != NONE))
    gap_before[activity_slot[gaps]] = slot[gaps]
    followed = np.flatnonzero(busy & (activity_slot != NONE) & (gap_before[activity_slot] != NONE))
    windows = int(window.max(initial=0)) + 1
    begun = distinct(gap_before[activity_slot[followed]] * windows + window[followed])
    missing = np.setdiff1d(begun, slot[gaps] * windows + window[gaps])
    return missing // windows, missing % windows


def _last_child(events: EventTable, intervals: Intervals) -> Ints:
    """Find, for each interval's event, the last child that began before the interval."""
    parent = events.rows_named("parent_id")
    inner, own = np.flatnonzero(parent != NONE), np.flatnonzero(intervals.row != NONE)
    around = np.concatenate([parent[inner], intervals.row[own]])
    at_ns = np.concatenate([events.start_ns[inner], intervals.start_ns[own]])
    is_interval = np.arange(len(around)) >= len(inner)
    order = np.lexsort((is_interval, at_ns, around))
    last = np.maximum.accumulate(np.where(is_interval[order], -1, np.arange(len(order))))
    same = (last >= 0) & (around[order][np.maximum(last, 0)] == around[order])
    rows = np.append(inner, np.full(len(own), NONE))[order]
    before = np.where(same, rows[np.maximum(last, 0)], NONE)
    result = np.full(len(intervals.row), NONE, dtype=np.int64)
    of_interval = is_interval[order]
    result[own[order[of_interval] - len(inner)]] = before[of_interval]
    return result


def slots_of_events(events: EventTable, windows: Sequence[Window]) -> Ints:
    """Assign matching events of different steps to one slot (a number)."""
    slots = np.full(len(events), NONE, dtype=np.int64)
    if not windows:
        return slots
    rows, window = events.rows_of_rank(windows[0].rank), slots.copy()
    window[rows] = windows_at(events.start_ns[rows], windows)
    rows = rows[window[rows] != NONE]
    if not len(rows):
        return slots
    parent, window = _parents(events, rows, window, windows)
    label = events.once(_labels, *_LABEL_COLUMNS)
    begun = 0
    level = rows[parent[rows] < 0]
    children = _Children(parent, rows)
    slots[level] = _matched(parent[level], window[level], label[level], events.start_ns[level])
    while len(level):
        begun = int(slots[level].max()) + 1
        level = children.children_of(level)
        if len(level):
            above = slots[parent[level]]
            numbers = _matched(above, window[level], label[level], events.start_ns[level])
            slots[level] = begun + numbers
    return slots


def _parents(
    events: EventTable, rows: Ints, window: Ints, windows: Sequence[Window]
) -> tuple[Ints, Ints]:
    """Return each event's parent (< 0: none) and step; an activity's parent is its launch."""
    thread = thread_ids(events)
    step_thread = np.array(
        [NONE if w.thread is None else w.thread for w in windows], dtype=np.int64
    )
    around = events.rows_named("parent_id")
    activity = events.is_kind(*ACTIVITY_KINDS)[rows]
    above = np.where(activity, events.rows_named("launch_id")[rows], around[rows])
    inside = (above != NONE) & (window[above] != NONE)
    inside &= activity | (window[above] == window[rows])
    on_own = thread[rows] == step_thread[window[rows]]
    # treat all other threads as one thread, because thread pools move work between threads
    role = np.where(on_own, _OWN_THREAD, _OTHER_THREADS)
    role = np.where(thread[rows] < 0, _NO_LAUNCH, role)
    parent = np.full(len(events), NONE, dtype=np.int64)
    parent[rows] = np.where(inside, above, role)
    new_window = window.copy()
    launched = rows[activity & inside]
    new_window[launched] = window[parent[launched]]
    return parent, new_window


def names_without_numbers(events: EventTable) -> Ints:
    """Return the code of each name. ``train#1`` and ``train#2`` share a code."""
    names, texts = events.texts("name")
    plain = {text: code for code, text in reversed(list(enumerate(texts)))}
    same = np.arange(len(texts) + 1)
    for code, text in enumerate(texts):
        if "#" in text or "0x" in text:
            same[code] = plain.setdefault(VARYING.sub("", text), code)
    return np.asarray(np.where(events.is_kind("step"), NONE, same[names]))


_LABEL_COLUMNS = ("kind", "name", "shapes", "stream")


def _labels(events: EventTable) -> Ints:
    kinds, shapes = (events.texts(c)[0].astype(np.int64) for c in ("kind", "shapes"))
    return numbered(kinds, names_without_numbers(events), shapes, events.ints("stream", UNKNOWN))


class _Children:
    def __init__(self, parent: Ints, rows: Ints) -> None:
        inner = rows[parent[rows] >= 0]
        self._rows = inner[np.argsort(parent[inner], kind="stable")]
        self._parents = parent[self._rows]

    def children_of(self, level: Ints) -> Ints:
        first = np.searchsorted(self._parents, level, side="left")
        last = np.searchsorted(self._parents, level, side="right")
        counts = last - first
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(self._rows[np.repeat(first, counts) + offsets])


def _matched(above: Ints, window: Ints, label: Ints, start_ns: Ints) -> Ints:
    """Return slots from 0, where ``above`` has the slots of the parents."""
    order = np.lexsort((start_ns, window, above))
    above, window, label = above[order], window[order], label[order]
    sequence = Groups(above, window)
    first = np.flatnonzero(np.append(True, sequence.of[1:] != sequence.of[:-1]))
    offset = np.arange(len(order)) - first[sequence.of]
    key, position = label, _occurrences(sequence.of, label)
    unlike = _parents_that_differ(above, sequence, offset, label)
    if len(unlike):
        position = position.copy()
        ends = np.append(first[1:], len(order))
        parent_of_sequence = above[first]
        for parent in unlike.tolist():
            sequences = np.flatnonzero(parent_of_sequence == parent)
            _match_by_subsequence(
                [(first[s], ends[s]) for s in sequences.tolist()], label, position
            )
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = numbered(above, key, position)
    return numbers


def _occurrences(sequence: Ints, label: Ints) -> Ints:
    """Count equal labels from 0 in each sequence: ``a b a a`` gives ``0 0 1 2``."""
    pairs = numbered(sequence, label)
    order = np.argsort(pairs, kind="stable")
    sorted_pairs = pairs[order]
    first = np.flatnonzero(np.append(True, sorted_pairs[1:] != sorted_pairs[:-1]))
    counts = np.arange(len(order)) - first[sorted_pairs]
    result = np.empty(len(order), dtype=np.int64)
    result[order] = counts
    return result


def _parents_that_differ(above: Ints, sequence: Groups, offset: Ints, label: Ints) -> Ints:
    """Return the slots of parents whose children differ from step to step."""
    sizes = sequence.sizes()[sequence.of]
    by_parent = numbered(above)
    count = int(by_parent.max(initial=-1)) + 1
    least, most = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
    np.minimum.at(least, by_parent, sizes)
    np.maximum.at(most, by_parent, sizes)
    unlike = least != most
    at_offset = Groups(by_parent, offset)
    differs = label != label[at_offset.first[at_offset.of]]
    unlike |= np.bincount(by_parent[differs], minlength=count) > 0
    first = np.full(count, len(above), dtype=np.int64)
    np.minimum.at(first, by_parent, np.arange(len(above)))
    return np.asarray(above[first[unlike]])


def _match_by_subsequence(ends: list[tuple[int, int]], label: Ints, position: Ints) -> None:
    """Set each event's ``position`` to the match's position in the longest sequence."""
    longest = max(ends, key=lambda span: span[1] - span[0])
    size = longest[1] - longest[0]
    if size < 2:
        return
    reference = label[slice(*longest)].tolist()
    if max(last - first for first, last in ends) * size > MOST_PAIRS:
        return
    for first, last in ends:
        own = label[first:last].tolist()
        positions = np.full(last - first, NONE, dtype=np.int64)
        for code in LCSseq.opcodes(reference, own):
            if code.tag == "equal":
                positions[code.dest_start : code.dest_end] = np.arange(code.src_start, code.src_end)
        _match_the_rest(positions, own, reference)
        position[first:last] = positions


def _match_the_rest(positions: Ints, own: list[int], reference: list[int]) -> None:
    """Match the other events by label, or give them positions after ``reference``."""
    unmatched = np.flatnonzero(positions == NONE).tolist()
    if not unmatched:
        return
    free: dict[int, list[int]] = {}
    for position in np.setdiff1d(np.arange(len(reference)), positions).tolist():
        free.setdefault(reference[position], []).append(position)
    counts: dict[int, int] = {}
    for event in unmatched:
        same_label, number = free.get(own[event], []), counts.get(own[event], 0)
        counts[own[event]] = number + 1
        past = len(reference) + number - len(same_label)
        positions[event] = same_label[number] if number < len(same_label) else past

"""Causes removed from programs themselves: what a simulator then runs is the truth of a what-if.

Says for simulated programs what ``lstmprof.breakdown.replay.changes`` says of profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.drawn_programs import Body
from simulator.gpu_programs import (
    BlockingCopy,
    Call,
    Gap,
    HandOver,
    Instruction,
    Launch,
    Machine,
    Sync,
    Within,
    Work,
)

from lstmprof.breakdown.replay.calls import VIEWS
from lstmprof.events.threads import VALUE_READS

Rewritten = tuple[Body, Machine]
#: Scopes that are Python's; an op is the framework's.
PYTHON = ("step", "range", "python")
#: What a view that goes with the call after it is called from then on.
GONE = "gone"
#: Ops that take no time where nothing is waited for.
FREE = (*VALUE_READS, GONE)


def mapped(body: Body, change: Callable[[Instruction], Body]) -> Body:
    """``body`` with each instruction, the inner ones first, replaced by those of ``change``."""
    found: list[Instruction] = []
    for one in body:
        if isinstance(one, (Within, HandOver)):
            one = replace(one, body=mapped(one.body, change))
        found += change(one)
    return tuple(found)


def without_launch(body: Body, machine: Machine) -> Rewritten:
    def change(one: Instruction) -> Body:
        return (replace(one, call_ns=0),) if isinstance(one, Launch) else (one,)

    return mapped(body, change), replace(machine, latency_ns=0)


def without_python(body: Body, machine: Machine) -> Rewritten:
    return without_scopes(opened(body), PYTHON, None), machine


def without_dispatch(body: Body, machine: Machine) -> Rewritten:
    return without_scopes(opened(body), ("op",), None), machine


def opened(body: Body) -> Body:
    """The same program: what entering and leaving a scope takes is said as gaps in it."""

    def change(one: Instruction) -> Body:
        if not isinstance(one, Within):
            return (one,)
        inner = (Gap(one.enter_ns), *one.body, Gap(one.exit_ns))
        some = tuple(i for i in inner if not (isinstance(i, Gap) and i.ns == 0))
        return (replace(one, enter_ns=0, body=some, exit_ns=0),)

    return mapped(body, change)


def without_scopes(body: Body, kinds: tuple[str, ...], scope: str | None) -> Body:
    """The ``opened`` body without what threads spend in scopes of ``kinds`` themselves."""
    found: list[Instruction] = []
    for one in body:
        if isinstance(one, Gap) and scope in kinds:
            continue
        if isinstance(one, (Within, HandOver)):
            inner = one.kind if isinstance(one, Within) else None
            one = replace(one, body=without_scopes(one.body, kinds, inner))
        found.append(one)
    return tuple(found)


def without_ways_in(body: Body, vanishes: Callable[[Within, str | None, int], bool]) -> Body:
    """The ``opened`` body without the Python that ends where an op begins that ``vanishes``.

    That is told the op, the category around it, and how much work was sent before it.
    """
    sent = 0

    def walk(body: Body, scope: str | None, around: str | None) -> Body:
        nonlocal sent
        found: Body = ()
        for one in body:
            if isinstance(one, Within):
                if one.kind == "op" and vanishes(one, around, sent):
                    found = without_last_python(found, scope)
                one = replace(one, body=walk(one.body, one.kind, one.category or around))
            elif isinstance(one, HandOver):
                one = replace(one, body=walk(one.body, None, None))
            elif isinstance(one, (Launch, BlockingCopy)):
                sent += 1
            found = (*found, one)
        return found

    return walk(body, None, None)


def without_last_python(body: Body, scope: str | None) -> Body:
    """The body of a scope of this kind without the stretch of Python that ends it."""
    if not body:
        return body
    *most, last = body
    if isinstance(last, Gap) and scope in PYTHON:
        while most and isinstance(most[-1], Gap):
            most.pop()
        return tuple(most)
    if isinstance(last, Within) and last.kind in PYTHON:
        return (*most, replace(last, body=without_last_python(last.body, last.kind)))
    return body


def without_syncs(body: Body, machine: Machine) -> Rewritten:
    """All that wait before the last work is sent, and what asking for values takes until then."""
    body = marked_views(opened(body), lambda one, around: getattr(one, "name", None) in VALUE_READS)
    whole = sum(isinstance(one, (Launch, BlockingCopy)) for one in flat(body))
    body = without_ways_in(body, lambda one, around, sent: one.name in FREE and sent < whole)
    sent = 0

    def walk(body: Body, asks: bool) -> Body:
        nonlocal sent
        found: list[Instruction] = []
        for one in body:
            sent += isinstance(one, (Launch, BlockingCopy))
            early = sent < whole
            if isinstance(one, Within):
                one = replace(one, body=walk(one.body, one.name in FREE))
            elif isinstance(one, HandOver):
                one = replace(one, body=walk(one.body, False))
            elif early and isinstance(one, Gap) and asks:
                continue
            elif early and isinstance(one, Sync):
                one = replace(one, call_ns=0, waits=False)
            elif early and isinstance(one, BlockingCopy):
                one = replace(one, waits=False)
            elif early and isinstance(one, Call) and one.state == "sync":
                one = replace(one, ns=0)
            found.append(one)
        return tuple(found)

    return walk(body, False), machine


def flat(body: Body) -> Iterator[Instruction]:
    """Every instruction."""
    for one in body:
        if isinstance(one, (Within, HandOver)):
            yield from flat(one.body)
        yield one


def without_casts(body: Body, machine: Machine) -> Rewritten:
    return without_issuers(body, frozenset({"cast"})), machine


def without_copies(body: Body, machine: Machine) -> Rewritten:
    return without_issuers(body, frozenset({"transfer", "layout"})), machine


def without_issuers(body: Body, removed: frozenset[str]) -> Body:
    """``body`` without this work, the ops that have it and nothing else, and the way into these.

    Views right before these ops go with them.
    """

    def vanishes(one: Instruction, around: str | None) -> bool:
        if isinstance(one, (Launch, BlockingCopy)):
            return category(one.work, around) in removed
        return isinstance(one, Within) and one.kind == "op" and only(one, removed, around)

    body = marked_views(opened(body), vanishes)
    body = without_ways_in(body, lambda one, around, sent: vanishes(one, around) or gone(one))
    return without_work(body, removed, None)


def gone(one: Instruction) -> bool:
    """Whether this is a view that ``marked_views`` marked."""
    return isinstance(one, Within) and one.name == GONE


def is_view(one: Instruction) -> bool:
    """An op that makes a view of a tensor, and holds nothing but such ops."""
    return (
        isinstance(one, Within)
        and one.kind == "op"
        and one.name.rpartition("::")[2] in VIEWS
        and all(isinstance(inner, Gap) or is_view(inner) for inner in one.body)
    )


def marked_views(body: Body, vanishes: Callable[[Instruction, str | None], bool]) -> Body:
    """The ``opened`` body, where views right before calls that vanish are ``GONE``."""

    def walk(body: Body, around: str | None) -> Body:
        found: list[Instruction] = []
        follows = False  # whether the next call of this body vanishes
        for one in reversed(body):
            if isinstance(one, Within) and one.kind == "op":
                marked = follows and is_view(one)
                follows = marked or vanishes(one, around)
                inner = walk(one.body, one.category or around)
                one = all_gone(one) if marked else replace(one, body=inner)
            elif isinstance(one, Within):
                one = replace(one, body=walk(one.body, around))
            elif isinstance(one, HandOver):
                one = replace(one, body=walk(one.body, None))
            elif not isinstance(one, Gap) and not is_overhead(one):
                follows = vanishes(one, around)
            found.append(one)
        return tuple(reversed(found))

    return walk(body, None)


def is_overhead(one: Instruction) -> bool:
    """The profiler's own time is no call."""
    return isinstance(one, Call) and one.kind == "overhead"


def all_gone(one: Within) -> Within:
    """A view and all beneath it as ``GONE``."""
    body = tuple(all_gone(inner) if isinstance(inner, Within) else inner for inner in one.body)
    return replace(one, name=GONE, body=body)


def without_work(body: Body, removed: frozenset[str], around: str | None) -> Body:
    found: list[Instruction] = []
    for one in body:
        if isinstance(one, Within):
            if one.kind == "op" and (only(one, removed, around) or gone(one)):
                continue
            one = replace(one, body=without_work(one.body, removed, one.category or around))
        elif isinstance(one, HandOver):
            one = replace(one, body=without_work(one.body, removed, None))
        elif isinstance(one, (Launch, BlockingCopy)) and category(one.work, around) in removed:
            continue
        found.append(one)
    return tuple(found)


def only(op: Within, removed: frozenset[str], around: str | None) -> bool:
    """Whether ``op`` issues work of the ``removed`` categories and of no other."""
    issued = categories(op.body, op.category or around)
    return bool(issued) and issued <= removed


def categories(body: Body, around: str | None) -> frozenset[str]:
    """Of all work that ``body`` issues on its own thread."""
    found: frozenset[str] = frozenset()
    for one in body:
        if isinstance(one, Within):
            found |= categories(one.body, one.category or around)
        elif isinstance(one, (Launch, BlockingCopy)):
            found |= {category(one.work, around)}
    return found


def category(work: Work, around: str | None) -> str:
    return around if around is not None and work.kind == "kernel" else work.category


def faster_gemms(factor: float) -> Callable[[Body, Machine], Rewritten]:
    def faster(body: Body, around: str | None) -> Body:
        found: list[Instruction] = []
        for one in body:
            if isinstance(one, Within):
                one = replace(one, body=faster(one.body, one.category or around))
            elif isinstance(one, HandOver):
                one = replace(one, body=faster(one.body, None))
            elif isinstance(one, Launch) and category(one.work, around) == "gemm":
                one = replace(one, work=replace(one.work, ns=round(one.work.ns / factor)))
            found.append(one)
        return tuple(found)

    return lambda body, machine: (faster(body, None), machine)

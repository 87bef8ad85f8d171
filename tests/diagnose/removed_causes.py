"""Causes removed from programs themselves: what a simulator then runs is the truth of a what-if.

Says for simulated programs what ``lstmprof.diagnose.changes`` says of profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from breakdown.drawn_programs import Body
from breakdown.gpu_programs import (
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

Rewritten = tuple[Body, Machine]


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
    def change(one: Instruction) -> Body:
        if isinstance(one, Gap):
            return ()
        return (replace(one, enter_ns=0, exit_ns=0),) if isinstance(one, Within) else (one,)

    return mapped(body, change), machine


def without_syncs(body: Body, machine: Machine) -> Rewritten:
    """All but the syncs that no launch follows, counted in the order in which they run."""
    sent = [n for n, one in enumerate(flat(body)) if isinstance(one, (Launch, BlockingCopy))]
    last, count = max(sent, default=-1), iter(range(1_000_000))

    def change(one: Instruction) -> Body:
        early = next(count) < last
        if isinstance(one, Sync) and early:
            return (replace(one, call_ns=0, waits=False),)
        if isinstance(one, BlockingCopy) and early:
            return (replace(one, waits=False),)
        if isinstance(one, Call) and one.state == "sync" and early:
            return (replace(one, ns=0),)
        return (one,)

    return mapped(body, change), machine


def flat(body: Body) -> Iterator[Instruction]:
    """Every instruction in the order of ``mapped``."""
    for one in body:
        if isinstance(one, (Within, HandOver)):
            yield from flat(one.body)
        yield one


def without_casts(body: Body, machine: Machine) -> Rewritten:
    return without_work(body, frozenset({"cast"}), None), machine


def without_copies(body: Body, machine: Machine) -> Rewritten:
    return without_work(body, frozenset({"transfer", "layout"}), None), machine


def without_work(body: Body, removed: frozenset[str], around: str | None) -> Body:
    """``body`` without this work, and without the ops that have it and nothing else."""
    found: list[Instruction] = []
    for one in body:
        if isinstance(one, Within):
            issued = categories(one.body, one.category or around)
            if one.kind == "op" and issued and issued <= removed:
                continue
            one = replace(one, body=without_work(one.body, removed, one.category or around))
        elif isinstance(one, HandOver):
            one = replace(one, body=without_work(one.body, removed, None))
        elif isinstance(one, (Launch, BlockingCopy)) and category(one.work, around) in removed:
            continue
        found.append(one)
    return tuple(found)


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

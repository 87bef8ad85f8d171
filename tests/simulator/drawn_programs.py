"""Programs for ``gpu_simulator``, drawn by hypothesis, under names whose categories are known."""

from __future__ import annotations

from hypothesis import strategies as st
from simulator.gpu_programs import (
    BlockingCopy,
    Call,
    Gap,
    HandOver,
    Instruction,
    Launch,
    Machine,
    Record,
    Stream,
    StreamWait,
    Sync,
    Within,
    Work,
)

Body = tuple[Instruction, ...]

KERNELS = (
    ("ampere_sgemm_128x64_nn", "gemm"),
    ("vectorized_elementwise_kernel", "pointwise"),
    ("float16_copy_kernel_cuda", "cast"),
    ("CatArrayBatchedCopy", "layout"),
    ("ncclDevKernel_AllReduce_Sum_f32", "collective"),
)
COPIES = (
    ("Memcpy HtoD (Pinned -> Device)", "transfer"),
    ("Memcpy DtoH (Device -> Pinned)", "transfer"),
    ("Memcpy DtoD (Device -> Device)", "layout"),
)
OPS = (
    ("aten::mm", "gemm"),
    ("aten::add", "pointwise"),
    ("aten::view", None),
    ("autograd::engine::evaluate_function: MmBackward0", None),
)
CALLS = (
    ("cudaMalloc", "alloc", "runtime"),
    ("cudaFree", "alloc", "runtime"),
    ("cudaEventQuery", "sync", "runtime"),
    ("cudaGetLastError", "runtime", "runtime"),
    ("Buffer Flush", "profiler", "overhead"),
)

#: Two streams of one device, one of another.
STREAMS: tuple[Stream, ...] = ((0, 7), (0, 20), (1, 7))
short = st.integers(0, 6)
some = st.integers(1, 9)

kernels = st.builds(
    lambda one, ns: Work("kernel", *one, ns), st.sampled_from(KERNELS), st.integers(1, 25)
)
copies = st.builds(lambda one, ns: Work("memcpy", *one, ns), st.sampled_from(COPIES), some)
memsets = st.builds(lambda ns: Work("memset", "Memset (Device)", "memset", ns), some)
gemms = st.builds(lambda ns: Work("kernel", *KERNELS[0], ns), st.integers(1, 40))
works = st.one_of(gemms, kernels, kernels, kernels, copies, memsets)
machines = st.builds(Machine, short, short, st.integers(0, 2), st.integers(0, 3))
throttled = st.builds(
    Machine, short, short, st.integers(0, 2), st.integers(0, 3), st.integers(1, 3), st.booleans()
)


def launches(streams: tuple[Stream, ...]) -> st.SearchStrategy[Body]:
    return st.builds(Launch, st.sampled_from(streams), works, some).map(lambda one: (one,))


def syncs(streams: tuple[Stream, ...]) -> st.SearchStrategy[Body]:
    by_stream = st.builds(Sync, st.just("stream"), st.sampled_from(streams), st.just(2))
    devices = st.sampled_from(sorted({device for device, _ in streams}))
    by_device = st.builds(Sync, st.just("device"), devices, st.just(3))
    return st.one_of(by_stream, by_device).map(lambda one: (one,))


def blocking_copies(streams: tuple[Stream, ...]) -> st.SearchStrategy[Body]:
    return st.builds(BlockingCopy, st.sampled_from(streams), copies).map(lambda one: (one,))


@st.composite
def events(draw: st.DrawFn, streams: tuple[Stream, ...]) -> Body:
    """Work on a stream, then a wait of another stream, or of the host, for just that work."""
    stream, number = draw(st.sampled_from(streams)), draw(st.integers(1, 1000))
    there = Launch(stream, draw(works), draw(some)), Record(stream, number, 1)
    other = draw(st.sampled_from([s for s in streams if s != stream] or [None]))
    if other is None or draw(st.booleans()):
        return (*there, *draw(gaps), Sync("event", number, 2))
    return (*there, *draw(gaps), StreamWait(other, number, 1), Launch(other, draw(works), 2))


gaps: st.SearchStrategy[Body] = some.map(lambda ns: (Gap(ns),))
calls: st.SearchStrategy[Body] = st.builds(
    lambda one, ns: (Call(one[0], one[1], ns, one[2]),), st.sampled_from(CALLS), some
)


def scopes(inner: st.SearchStrategy[Body]) -> st.SearchStrategy[Body]:
    """An op, a range or a Python frame around ``inner``."""
    named = st.sampled_from(
        [("op", *one) for one in OPS]
        + [("range", "forward", None), ("python", "model.py(7): forward", None)]
    )
    return st.builds(
        lambda one, enter, body, leave: (Within(one[0], one[1], enter, body, leave, one[2]),),
        named,
        some,
        inner,
        short,
    )


def casts(streams: tuple[Stream, ...]) -> st.SearchStrategy[Body]:
    """A cast as PyTorch writes it: ops that arrange, with an allocation, around the one copying."""

    def cast(stream: Stream, ns: int, call_ns: int) -> Body:
        kernel = Work("kernel", "vectorized_elementwise_kernel", "pointwise", ns)
        empty = Within("op", "aten::empty_strided", 2, (), 1)
        copy = Within("op", "aten::copy_", 2, (Launch(stream, kernel, call_ns),), 1, "cast")
        inner = Within("op", "aten::_to_copy", 1, (empty, copy), 0)
        return (Within("op", "aten::to", 1, (inner,), 2),)

    return st.builds(cast, st.sampled_from(streams), some, some)


def joined(parts: st.SearchStrategy[Body], most: int) -> st.SearchStrategy[Body]:
    return st.lists(parts, max_size=most).map(lambda found: sum(found, ()))


def bodies(streams: tuple[Stream, ...]) -> st.SearchStrategy[Body]:
    """What one thread does: everything above, scopes two deep."""
    plain = st.one_of(
        gaps,
        calls,
        launches(streams),
        launches(streams),
        syncs(streams),
        blocking_copies(streams),
        events(streams),
        casts(streams),
    )
    inner = joined(plain, 3)
    return joined(st.one_of(plain, scopes(inner), scopes(joined(scopes(inner), 2))), 5)


def handed_over(body: st.SearchStrategy[Body], tid: int) -> st.SearchStrategy[Body]:
    """A scope that waits while thread ``tid`` runs ``body`` in ops of its own."""

    def waits(before: int, one: Body, enter: int, after: int) -> Body:
        work = Within("op", "autograd::engine::evaluate_function: MmBackward0", enter, one, 1)
        there = HandOver(tid, (work, Within("op", "aten::empty", enter, (), 0)))
        return (Within("range", "backward", before, (there,), after),)

    return st.builds(waits, some, body, some, short)

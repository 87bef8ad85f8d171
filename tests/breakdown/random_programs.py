"""Programs that hypothesis draws: events of a few kinds, on two threads and two devices."""

from __future__ import annotations

import pyarrow as pa
from events.rows import Row, row, table
from hypothesis import strategies as st

from lstmprof.events.annotate.steps import Window
from lstmprof.events.threads import thread_ids

NAMES = {
    "kernel": ("gemm", "add"),
    "memcpy": ("Memcpy HtoD", "Memcpy UVM HtoD"),
    "memset": ("Memset",),
    "runtime": (
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
        "cudaMemcpyAsync",
        "cudaMemcpy",
        "cudaMalloc",
        "cuMemcpyHtoD_v2",
        "cudaEventQuery",
        "hipMemcpyWithStream",
    ),
    "op": ("aten::mm", "aten::view"),
    "python": ("frame",),
    "range": ("forward",),
    "overhead": ("Buffer Flush",),
}
KERNEL_CATEGORIES = ("gemm", "pointwise", "collective", None)


@st.composite
def activities(draw: st.DrawFn) -> Row:
    kind = draw(st.sampled_from(["kernel", "kernel", "memcpy", "memset"]))
    start = draw(st.integers(0, 40))
    category = {"memcpy": "transfer", "memset": "memset"}.get(kind)
    return row(
        kind,
        draw(st.sampled_from(NAMES[kind])),
        start,
        start + draw(st.integers(0, 12)),
        device=draw(st.integers(0, 1)),
        stream=draw(st.integers(0, 2)),
        correlation_id=draw(st.none() | st.integers(1, 8)),
        category=category or draw(st.sampled_from(KERNEL_CATEGORIES)),
    )


@st.composite
def host_events(draw: st.DrawFn, kinds: tuple[str, ...]) -> Row:
    kind = draw(st.sampled_from(kinds))
    start = draw(st.integers(0, 40))
    return row(
        kind,
        draw(st.sampled_from(NAMES[kind])),
        start,
        start + draw(st.integers(0, 20)),
        pid=1,
        tid=draw(st.integers(1, 2)),
        correlation_id=draw(st.integers(1, 8)) if kind == "runtime" else None,
        category=draw(st.sampled_from(("gemm", "collective", None))) if kind == "op" else None,
    )


HOST = ("runtime", "runtime", "op", "python", "range", "overhead")
gpu_programs = st.tuples(
    st.lists(activities(), min_size=1, max_size=8), st.lists(host_events(HOST), max_size=10)
).map(lambda pair: pair[0] + pair[1])
cpu_programs = st.lists(host_events(("op", "op", "python", "range")), min_size=1, max_size=10)
#: What an instant of a drawn program stands for: nanoseconds, or times like those of real launches.
scales = st.sampled_from((1, 1, 7_000, 30_000, 100_000))


def one_window(rows: list[Row], t0: int, t1: int) -> tuple[pa.Table, Window]:
    events = table(rows)
    threads = thread_ids(events)
    tids = events.column("tid").to_pylist()
    first = next((int(n) for n, tid in zip(threads, tids, strict=True) if tid == 1), None)
    return events, Window(None, 0, t0, t1, first)

"""What a profile shows beside its times: each fact in a few events, and in none of its like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from events.rows import Row, row, table

from lstmprof.breakdown.attribution import attributed
from lstmprof.diagnose.seen import DenseTable, Fact, Gaps, Growing, Seen, Small, seen_in
from lstmprof.events import DeviceFacts
from lstmprof.events.annotate.links import linked, with_forwards
from lstmprof.events.annotate.steps import Window
from lstmprof.runs.metadata import RunInfo

MS = 1_000_000
HOST = {"pid": 1, "tid": 1}


def call(name: str, start_ms: float, end_ms: float, correlation: int | None = None) -> Row:
    return event("runtime", name, start_ms, end_ms, correlation_id=correlation)


def event(kind: str, name: str, start_ms: float, end_ms: float, **columns: Any) -> Row:
    return row(kind, name, round(start_ms * MS), round(end_ms * MS), **HOST, **columns)


def kernel(
    name: str,
    start_ms: float,
    end_ms: float,
    correlation: int | None,
    kind: str = "kernel",
    **more: Any,
) -> Row:
    columns = {"device": 0, "stream": 7, "correlation_id": correlation, **more}
    return row(kind, name, round(start_ms * MS), round(end_ms * MS), **columns)


def seen(
    *rows: Row,
    end_ms: float = 100,
    steps: int = 1,
    device: int | None = 0,
    multiprocessors: int | None = None,
) -> Seen:
    """The facts of one unmarked window, or of as many steps of ``end_ms`` each."""
    length = round(end_ms * MS)
    marked = [{**r, "step": r["start_ns"] // length if steps > 1 else None} for r in rows]
    events = with_forwards(linked(table(marked)))
    shapes = {(r["name"], r["start_ns"]): r["shapes"] for r in rows}
    places = zip(*(events.column(name).to_pylist() for name in ("name", "start_ns")), strict=True)
    events = events.with_columns({"shapes": pa.array([shapes[p] for p in places], pa.string())})
    windows = [
        Window(None, number if steps > 1 else None, number * length, (number + 1) * length, 0)
        for number in range(steps)
    ]
    intervals = attributed(events, windows, None)[device]
    info = RunInfo(device_facts={"0": DeviceFacts(multiprocessors=multiprocessors)})
    return seen_in(events, windows, device, intervals, info)


#                 0    10   20   30   40   50   60 ms
# cudaLaunchKernel|-20-------|    |40-|    |50-|
# a, a, a                    |-30|   |41-|    |51-|
def launches(name: str) -> list[Row]:
    times = ((0, 20, 30), (40, 40.01, 41), (50, 50.01, 51))
    return [
        one
        for number, (start, returned, end) in enumerate(times, start=1)
        for one in (call(name, start, returned, number), kernel("a", returned, end, number))
    ]


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "hipLaunchKernel", "cuLaunchKernelEx"])
def test_the_first_launch_of_a_kernel_that_is_long_has_loaded_it(name: str) -> None:
    assert seen(*launches(name)).loading == (Fact(name, 20 * MS, 1, None, 10_000),)


def test_steps_before_the_profile_are_told_by_the_numbers_of_its_steps() -> None:
    rows = launches("cudaLaunchKernel")
    later = [{**r, "start_ns": r["start_ns"] + 1600 * MS} for r in rows]
    assert seen(*rows).steps_before == 0
    assert seen(*rows, steps=2).steps_before == 0
    assert seen(*later, steps=18).steps_before == 15


def test_a_launch_that_is_long_and_not_the_first_has_loaded_nothing() -> None:
    late = [call("cudaLaunchKernel", 60, 90, 9), kernel("a", 90, 91, 9)]
    times = {fact.ns for fact in seen(*launches("cudaLaunchKernel"), *late).loading}
    assert times == {20 * MS}
    loaded = [call("cudaLaunchKernel", 60, 90, 9), kernel("b", 90, 91, 9)]
    (both,) = seen(*launches("cudaLaunchKernel"), *loaded).loading
    assert (both.ns, both.count) == (50 * MS, 2)


@pytest.mark.parametrize(
    ("second_ms", "third_ms", "count"),
    [(0.01, 0.01, 1), (30, 0.01, 2), (0.01, 30, 0), (30, 30, 0)],
)
def test_long_calls_before_the_first_kernel_initialise_unless_later_ones_are_as_long(
    second_ms: float, third_ms: float, count: int
) -> None:
    work = [call("cudaLaunchKernel", 70, 70.01, 1), kernel("a", 70, 75, 1)]
    calls = ((0, 20), (30, second_ms), (80, third_ms))
    rows = [call("cudaFree", at, at + length) for at, length in calls]
    facts = seen(*rows, *work).loading
    assert [(f.name, f.count) for f in facts] == ([("cudaFree", count)] if count else [])


#                   0                   178      777  799    860 ms
# cudaMallocManaged |-------178-------||0.03||0.05|
# prefetch, launch                               |-22-|       |
# migration                                      |1|          |1|kernel
def test_the_first_managed_allocation_initialises_before_a_migration_without_a_launch() -> None:
    rows = [
        *(
            call("cudaMallocManaged", at, at + ms)
            for at, ms in ((0, 178), (180, 0.03), (181, 0.05))
        ),
        call("cudaMemPrefetchAsync", 777, 799),
        kernel("Memcpy UVM HtoD", 777.5, 778.5, None, kind="memcpy"),
        call("cudaLaunchKernel", 859, 860, 1),
        kernel("Memcpy UVM HtoD", 860, 861, None, kind="memcpy"),
        kernel("a", 861, 896, 1),
    ]
    (first,) = seen(*rows, end_ms=900).loading[:1]
    assert (first.name, first.ns, first.count) == ("cudaMallocManaged", 178 * MS, 1)


@pytest.mark.parametrize(("second_ms", "count"), [(0.01, 1), (15, 0)])
def test_long_allocations_before_the_first_kernel_initialise_unless_the_others_are_as_long(
    second_ms: float, count: int
) -> None:
    work = [call("cudaLaunchKernel", 90, 90.01, 1), kernel("a", 90, 95, 1)]
    calls = ((0, 30), (30, second_ms), (60, second_ms))
    rows = [call("cudaHostAlloc", at, at + length) for at, length in calls]
    facts = seen(*rows, *work).loading
    assert [(f.name, f.count) for f in facts] == ([("cudaHostAlloc", count)] if count else [])


def test_calls_that_all_take_long_have_loaded_nothing() -> None:
    rows = [
        one
        for i in range(1, 5)
        for one in (
            call("cudaLaunchKernel", 20 * i, 20 * i + 15, i),
            kernel("a", 20 * i + 15, 20 * i + 16, i),
        )
    ]
    assert seen(*rows).loading == ()


@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("cuModuleLoadData", True),
        ("cuLibraryLoadData", True),
        ("Runtime Triggered Module Loading", True),
        ("cudaGetDeviceProperties", True),
        ("cudaFree", True),
        ("cuModuleUnload", False),
        ("cudaDeviceSynchronize", False),
        ("gif_remote", False),
    ],
)
def test_a_call_that_is_made_once_loads_by_its_name_or_before_all_work(
    name: str, loads: bool
) -> None:
    rows = [call(name, 0, 20), call("cudaLaunchKernel", 20, 20.01, 1), kernel("a", 21, 22, 1)]
    assert (name in {fact.name for fact in seen(*rows).loading}) == loads


def test_an_allocation_that_is_retried_is_no_initialisation() -> None:
    rows = [call("cudaMalloc", 0, 0.1), *launches("cudaLaunchKernel")[2:]]
    retried = [call("cudaMalloc", 60, 90), call("cudaLaunchKernel", 90, 90.01, 9)]
    facts = seen(*rows, *retried, kernel("a", 90.01, 91, 9))
    assert facts.loading == ()
    assert [(fact.name, fact.ns) for fact in facts.later_allocs] == [("cudaMalloc", 30 * MS)]


#          0    10   20   30   40 ms
# k1       |-10-|                    k2 was launched at 2 ms, behind a wait
# k2                 |20--30|
@pytest.mark.parametrize(
    "name", ["cudaStreamWaitEvent", "hipStreamWaitEvent", "cudaLaunchHostFunc"]
)
def test_queued_work_waited_for_what_its_thread_enqueued_before_it(name: str) -> None:
    rows = [
        call("cudaLaunchKernel", 0, 0.1, 1),
        call(name, 1, 1.1),
        call("cudaLaunchKernel", 2, 2.1, 2),
        kernel("k1", 0, 10, 1),
        kernel("k2", 20, 30, 2, stream=8),
        call("cudaEventRecord", 0.5, 0.6),
    ]
    assert seen(*rows).queued == (Fact("k2", 10 * MS, 1, name),)
    assert seen(*rows[:1], *rows[2:]).queued == ()
    # Without the record, the event is of work that the profile does not have.
    assert bool(seen(*rows[:-1]).queued) is ("Event" not in name)
    in_between = call("cudaLaunchKernel", 1.5, 1.6, 3)
    assert seen(*rows, in_between, kernel("k3", 30, 31, 3)).queued == ()


def test_a_recorded_wait_of_the_stream_says_what_was_waited_for() -> None:
    rows = [
        call("cudaLaunchKernel", 0, 0.1, 1),
        call("cudaLaunchKernel", 2, 2.1, 2),
        kernel("k1", 0, 10, 1),
        kernel("k2", 20, 30, 2, stream=8),
    ]
    for stream, waits in ((8, "Stream Wait Event"), (9, None)):
        wait = kernel("Stream Wait Event", 3, 20, 5, kind="device_sync", stream=stream)
        queued = seen(*rows, wait).queued
        assert [fact.within for fact in queued] == ([waits] if waits else [])


def test_a_blocking_call_is_told_with_the_op_that_made_it() -> None:
    rows = [
        call("cudaLaunchKernel", 0, 0.1, 1),
        kernel("k", 0.1, 10, 1),
        event("op", "aten::nonzero", 10, 40),
        call("cudaStreamSynchronize", 12, 38),
        call("cudaLaunchKernel", 50, 50.1, 2),
        kernel("k", 50.1, 60, 2),
    ]
    assert seen(*rows).blocking_calls == (
        Fact("cudaStreamSynchronize", 26 * MS, 1, "aten::nonzero"),
    )


# Kernels of 1 ms, each 3 ms after the one before it; then one 80 ms later.
def test_gaps_have_medians_and_the_usual_ones_are_told_apart() -> None:
    starts = (0, 4, 8, 12, 96)
    rows = [kernel("k", start, start + 1, i) for i, start in enumerate(starts)]
    assert seen(*rows).gaps == Gaps(5, 1 * MS, 3 * MS, 9 * MS, 92 * MS)
    nothing = kernel("k", 2, 2, 9)  # a kernel of no length is none
    assert seen(*rows, nothing).gaps == seen(*rows).gaps
    assert seen(event("op", "aten::mm", 0, 1), device=None).gaps is None


def test_gaps_under_other_streams_are_none() -> None:
    rows = [kernel("long", 0, 50, 1, stream=8), kernel("k", 1, 2, 2), kernel("k", 10, 11, 3)]
    gaps = seen(*rows).gaps
    assert gaps is not None
    assert (gaps.gap_ns, gaps.all_ns) == (0, 0)


def mm(start_ms: float, shapes: str | None) -> Row:
    return event("op", "aten::mm", start_ms, start_ms + 1, category="gemm", shapes=shapes)


def test_shapes_that_differ_between_steps_are_named() -> None:
    first, second, third = "[[2,3]]", "[[4,3]]", "[[5,5]]"

    def shapes(*each: tuple[float, str | None]) -> object:
        return seen(*(mm(*one) for one in each), steps=2, device=None).shapes

    assert shapes((1, first), (101, second)) == ("aten::mm", (first, second))
    assert shapes((1, first), (3, third), (101, first), (103, third)) is None
    assert shapes((1, first), (3, third), (101, third), (103, first)) is None, "only the order"
    assert shapes((1, first), (3, first), (101, second)) is None, "not as often"
    assert shapes((1, None), (101, None)) is None


def test_only_calls_of_a_function_are_its_tracing() -> None:
    def first(start: float, kind: str = "op") -> Row:
        return event(kind, "call", start, start + 1, op_name="traced-jit #1")

    calls = [first(start) for start in (10, 20, 30)]
    ranges = [first(start, "range") for start in (40, 50, 60)]
    assert seen(*calls, device=None).made_anew == "call"
    assert seen(*calls[:2], *ranges, device=None).made_anew is None


def test_tracing_is_counted_by_step_and_what_is_inside_it_is_not_counted_again() -> None:
    def trace(start: float) -> list[Row]:
        outer = event("op", "tf.function-graph_building", start, start + 40)
        return [outer, event("op", "XlaCompile", start + 1, start + 20)]

    facts = seen(*trace(10), *trace(110), steps=2, device=None)
    assert facts.compiled == (Fact("tf.function-graph_building", 40 * MS, 1),)
    assert (facts.compiled_steps, seen(*trace(10), device=None).compiled_steps) == (2, 1)


def test_allocations_of_the_first_step_are_not_later_ones() -> None:
    rows = [call("cudaMalloc", 0, 30), call("cudaLaunchKernel", 30, 30.1, 1)]
    rows += [kernel("k", 30.1, 31, 1), call("cudaLaunchKernel", 130, 130.1, 2)]
    rows += [kernel("k", 130.1, 131, 2)]
    assert seen(*rows, steps=2).later_allocs == ()
    later = call("cudaFree", 101, 120)
    (fact,) = seen(*rows, later, steps=2).later_allocs
    assert (fact.name, fact.ns, fact.count) == ("cudaFree", 19 * MS / 2, 0.5)


def test_what_a_forward_pass_is_made_of_is_computed_again_inside_of_a_backward_node() -> None:
    node = "autograd::engine::evaluate_function: "
    rows = [
        event("op", "aten::linear", 0, 10),
        event("op", f"{node}CheckpointFunctionBackward", 20, 40),
        event("op", "aten::linear", 22, 30),
        event("op", "aten::mm", 31, 35),
        event("op", f"{node}AddmmBackward0", 36, 38),
        event("op", f"{node}AddmmBackward0", 50, 60),
        event("op", "aten::mm", 51, 59),
    ]
    # all of the first node counts, but not the node inside it
    assert seen(*rows, device=None).recomputed == (Fact("aten::linear", 18 * MS, 1),)


def test_of_a_product_of_a_batch_of_matrices_the_sizes_are_the_matrices() -> None:
    shapes, dtypes = "[[8,64,320],[8,320,128]]", '["c10::Half","c10::Half"]'
    rows = [
        event("op", "aten::bmm", 0, 10, shapes=shapes, dtypes=dtypes),
        call("cudaLaunchKernel", 2, 3, 1),
        kernel("gemm", 20, 30, 1, category="gemm"),
    ]
    (product,) = seen(*rows).half_products
    assert (product.sizes, product.dtype, product.ns) == ((64, 320, 128), "float16", 10 * MS)


def test_a_value_is_asked_for_between_cells_and_not_by_the_optimizer_after_them() -> None:
    # cell|0-4|   |10-14|   |20-24|           ms; the cell's own op is in it
    # ask      |5|       |15|      |30| |32|  the last two are the optimizer's
    cells = [
        event("op", name, at, at + length)
        for at in (0, 10, 20)
        for name, length in (("aten::lstm_cell", 4), ("aten::_thnn_fused_lstm_cell", 3))
    ]
    asks = [event("op", "aten::item", at, at + 1) for at in (5, 15, 30, 32)]
    assert seen(*cells, *asks, device=None).asked_between == 2
    assert seen(*cells, *asks[2:], device=None).asked_between == 0
    # of two steps each has its own, and the first cell of a step follows no other
    later = [{**r, "start_ns": r["start_ns"] + 100 * MS} for r in (*cells, *asks[2:])]
    assert seen(*cells, *asks, *later, device=None, steps=2).asked_between == 1


def test_a_matrix_times_a_vector_as_long_as_its_rows_is_a_peephole() -> None:
    rows = [
        event("op", "aten::mul", 0, 1, shapes="[[64,320],[320]]"),
        event("op", "aten::mul", 2, 3, shapes="[[64,320],[64,320]]"),
        event("op", "aten::add", 4, 5, shapes="[[64,320],[320]]"),  # of a bias
    ]
    assert seen(*rows, device=None).peepholes == 1


@pytest.mark.parametrize(("forward_ms", "fits"), [(10, True), (9.9, False)])
def test_a_layers_backward_pass_is_slow_against_a_forward_one_of_10_ms_or_more(
    forward_ms: float, fits: bool
) -> None:
    rows = [
        one
        for at in (0, 200)
        for one in (
            event("op", "aten::mkldnn_rnn_layer", at, at + forward_ms),
            event("op", "aten::mkldnn_rnn_layer_backward", at + 10, at + 10 + 9 * forward_ms),
        )
    ]
    slowing = seen(*rows, end_ms=200, steps=2, device=None).slowing
    assert (slowing is not None) == fits


def test_copies_are_told_with_the_outermost_op_that_asked_for_them() -> None:
    names = ("aten::reshape", "aten::clone", "aten::copy_")
    rows = [event("op", name, 10 + i, 40 - i) for i, name in enumerate(names)]
    rows += [call("cudaLaunchKernel", 13, 14, 1), kernel("copy", 20, 30, 1, category="layout")]
    assert seen(*rows).moved == (Fact("copy", 10 * MS, 1, "aten::reshape"),)


def test_copies_and_fills_inside_other_ops_are_told_apart() -> None:
    layer = event("op", "aten::_cudnn_rnn", 10, 40)
    copy = [call("cudaMemcpyAsync", 13, 14, 1), kernel("Memcpy DtoD", 20, 30, 1, "memcpy")]
    copy[1]["category"] = "layout"
    assert seen(layer, *copy).weights == (Fact("Memcpy DtoD", 10 * MS, 1, "aten::_cudnn_rnn"),)
    deeper = event("op", "aten::copy_", 12, 30)
    assert seen(layer, deeper, *copy).weights[0].within == "aten::_cudnn_rnn"
    for_layout = event("op", "aten::contiguous", 11, 35)
    assert seen(layer, for_layout, deeper, *copy).weights == ()
    (relaid,) = seen(layer, for_layout, deeper, *copy).relaid
    assert (relaid.ns, relaid.within) == (10 * MS, "aten::_cudnn_rnn")
    assert seen(*copy).weights == ()
    fill = event("op", "aten::fill_", 11, 13, category="pointwise")
    for name, fills in (("aten::empty", 1), ("aten::ones_like", 0)):
        facts = seen(event("op", name, 10, 14), fill, device=None)
        assert len(facts.filled) == fills


def test_backward_passes_of_indexing_are_counted_by_shape() -> None:
    def passes(*shapes: str) -> int:
        rows = [
            event("op", "aten::select_backward", i, i + 1, shapes=shape)
            for i, shape in enumerate(shapes)
        ]
        return seen(*rows, device=None).selected

    assert passes("[[4,16]]", "[[4,16]]", "[[9,9]]") == 2
    assert seen(event("op", "aten::select_backward", 0, 1), device=None).selected is None
    assert seen(event("op", "aten::mm", 0, 1), device=None).selected == 0


def test_a_layer_over_packed_sequences_is_known_by_its_batch_sizes() -> None:
    for dtypes, packed in (('["float","long int"]', True), ('["float","TensorList"]', False)):
        layer = event("op", "aten::lstm", 0, 9, dtypes=dtypes)
        assert bool(seen(layer, device=None).packed) == packed
    assert not seen(event("op", "aten::lstm", 0, 9, dtypes="{"), device=None).packed


def test_without_types_packing_tells_that_the_layer_is_over_packed_sequences() -> None:
    packing = event("op", "aten::_pack_padded_sequence", 0, 1)
    layer = event("op", "aten::lstm", 1, 9)
    assert seen(packing, layer, device=None).packed == (Fact("aten::lstm", 8 * MS, 1),)
    whole = event("op", "aten::mkldnn_rnn_layer", 2, 8)
    assert not seen(packing, layer, whole, device=None).packed


def test_of_a_packed_layer_its_backward_pass_is_part() -> None:
    layer = event("op", "aten::lstm", 0, 9, dtypes='["float","long int"]', sequence_number=-1)
    product = event("op", "aten::mm", 1, 8, sequence_number=4, forward_thread=0)
    node = event("op", "MmBackward0", 20, 30, sequence_number=4, forward_thread=1)
    assert seen(layer, product, node, device=None).packed[0].ns == 19 * MS


def one_call(start: float, shapes: str) -> Row:
    return event("op", "aten::lstm", start, start + 1, shapes=shapes)


@pytest.mark.parametrize(
    ("shapes", "calls", "found"),
    [
        ("[[20,1,8],[[1,1,4],[1,1,4]],[[16,8]]]", 8, True),
        ("[[1,20,8],[[1,1,4],[1,1,4]],[[16,8]]]", 8, True),
        ("[[1,20,8],[1,1,4],[[12,8]]]", 8, True),  # a GRU has one state
        ("[[20,1,8],[[1,1,4],[1,1,4]],[[16,8]]]", 7, False),
        ("[[20,2,8],[[1,2,4],[1,2,4]],[[16,8]]]", 8, False),  # two sequences at once
        ("[[1,1,8],[[1,1,4],[1,1,4]],[[16,8]]]", 8, False),  # one time step
        ("[[20,8],[3]]", 8, False),  # packed
        ("{", 8, False),
    ],
)
def test_calls_for_one_sequence_each_are_known_by_their_shapes(
    shapes: str, calls: int, found: bool
) -> None:
    rows = [one_call(2 * number, shapes) for number in range(calls)]
    assert bool(seen(*rows, device=None).one_by_one) == found


def test_layers_of_other_weights_are_no_calls_of_one_layer() -> None:
    state = "[[1,1,4],[1,1,4]]"
    rows = [one_call(2 * i, f"[[20,1,{i}],{state},[[16,{i}]]]") for i in range(1, 17)]
    assert not seen(*rows, device=None).one_by_one


@pytest.mark.parametrize(
    ("kind", "name", "framework"),
    [
        ("op", "aten::mm", "torch"),
        ("step", "ProfilerStep#3", "torch"),
        ("op", "model/dense/MatMul:MatMul", "tensorflow"),
        ("op", "PjitFunction(step)", "jax"),
        ("op", "pytensor::Gemm{inplace}", "pytensor"),
        ("op", "chainer::Stack", "chainer"),
        ("range", "forward", None),
    ],
)
def test_the_framework_is_in_the_names(kind: str, name: str, framework: str | None) -> None:
    assert seen(event(kind, name, 0, 1), device=None).framework == framework


def test_of_a_profile_without_ops_kernels_tell_the_framework() -> None:
    torch = kernel("void at::native::vectorized_elementwise_kernel<4>()", 0, 1, 1)
    assert seen(torch).framework == "torch"
    assert seen(kernel("ampere_sgemm_128x64_tn", 0, 1, 1)).framework is None


def test_graphs_are_seen_by_their_launch_or_their_nodes() -> None:
    launched = [call("cudaGraphLaunch", 0, 1, 1), kernel("k", 1, 2, 1)]
    node = kernel("k", 1, 2, 1, graph_node_id=5)
    assert [seen(*launched).graph, seen(node).graph, seen(launched[1]).graph] == [True, True, False]
    assert replace(seen(node), graph=False) == seen(launched[1])


#  thread 1   |Begin 0-1| |launch 2| |launch 4, kernel| |launch 6| |End 8| |launch 9|
#  thread 2                     |launch 3|
def test_launches_of_a_thread_that_captures_a_graph_run_nothing() -> None:
    def launch(at: float, number: int, thread: int = 1) -> Row:
        return {**call("cudaLaunchKernel", at, at + 0.5, number), "tid": thread}

    launches = [launch(2, 1), launch(4, 2), launch(6, 3), launch(9, 4), launch(3, 5, thread=2)]
    ran = [kernel("k", at, at + 1, number) for at, number in ((5, 2), (20, 6))]
    begin, end = call("cudaStreamBeginCapture", 0, 1), call("cudaStreamEndCapture_ptsz", 8, 8.5)
    assert seen(*launches, *ran, begin, end).captured == 2
    assert seen(*launches, *ran, begin).captured == 3  # the profile ends before
    assert seen(*launches, *ran, end).captured == 0


#  step            0           1           2           3
#  process 1  |Malloc     |Malloc     |
#  process 2                          |Malloc     |Malloc     |
def test_what_comes_first_is_the_first_of_each_process() -> None:
    rows = []
    for step in range(4):
        at, own = 100 * step, {"pid": 1 + step // 2}
        returned = at + (51 if step % 2 == 0 else 31.01)
        rows += [
            {**call("cudaMalloc", at + 1, at + 31), **own},
            {**call("cudaLaunchKernel", at + 31, returned, step + 1), **own},
            kernel("a", returned, at + 60, step + 1),
        ]
    facts = seen(*rows, steps=4)
    assert [(fact.name, fact.ns, fact.count) for fact in facts.later_allocs] == [
        ("cudaMalloc", 2 * 30 * MS // 4, 0.5)  # of steps 1 and 3
    ]
    (loading,) = facts.loading
    assert (loading.ns, loading.count) == (2 * 20 * MS // 4, 0.5)  # of steps 0 and 2


@pytest.mark.parametrize(
    ("slow_runs", "times", "is_slow"),
    [((3, 3), 9, True), ((3, 4), 9, True), ((3, 7), 9, False), ((3, 3), 7, False)],
)
def test_products_of_one_shape_that_are_slow_at_one_place_of_every_step(
    slow_runs: tuple[int, int], times: int, is_slow: bool
) -> None:
    """Of 0.1 ms each, but six of a step's sixty, as denormal numbers make them on most CPUs."""
    columns = {"category": "gemm", "shapes": "[[2, 3], [3, 4]]"}
    rows = [
        event(
            "op", "aten::mm", begin, begin + 0.1 * (times if number // 6 == slow else 1), **columns
        )
        for step, slow in enumerate(slow_runs)
        for number in range(60)
        for begin in [100 * step + 1.5 * number]
    ]
    slowing = seen(*rows, steps=2, device=None).slowing
    assert (slowing is not None) == is_slow
    if slowing is not None:
        assert (slowing.name, slowing.fast_ns, slowing.slow_ns) == ("aten::mm", 100_000, 900_000)
        assert slowing.ns == 6 * 800_000


def test_kernels_with_fewer_blocks_than_multiprocessors_by_what_they_hold_of_the_step() -> None:
    def launched(grid: str, start: float, end: float, **more: Any) -> Row:
        columns = {
            "category": "gemm",
            "launch_config": f'{{"grid":[{grid}],"block":[64,1,1]}}',
            **more,
        }
        return kernel("k", start, end, int(start), **columns)

    rows = [
        launched("4,2,1", 1, 3),
        launched("8,1,1", 51, 53),
        launched("2,2,1", 4, 5, category="pointwise"),
        launched("10,1,1", 6, 8),  # as many as there are multiprocessors
        launched("1,1,1", 9, 10, family="persistent"),
        {**launched("", 11, 12), "launch_config": None},
        launched("1,1,1", 12, 13, category=None),
        launched("2,1,1", 14, 15, device=1),
    ]
    small = seen(*rows, end_ms=50, steps=2, multiprocessors=10).small
    assert small == (Small("pointwise", 4, 10, MS // 2), Small("gemm", 8, 10, 2 * MS))
    assert seen(*rows, end_ms=50, steps=2).small == ()


#               0    10   20   30   40  45  50              900 905 ms
# step          |==================================================…|
# add              |----|    |----|                          |---|
#   aten::mm                  |32 36|
# tanh                               |---|
@pytest.mark.parametrize(
    ("add", "tanh"),
    [
        ("PjitFunction(add)", "PjitFunction(tanh)"),
        ("EagerLocalExecute: Add", "EagerLocalExecute: Tanh"),
    ],
)
def test_the_usual_python_between_calls_made_one_by_one_is_theirs_and_no_work(
    add: str, tanh: str
) -> None:
    rows = [
        event("range", "step", 0, 1000),
        event("op", add, 10, 20),
        event("op", add, 30, 40),
        event("op", "aten::mm", 32, 36, category="gemm"),
        event("op", tanh, 45, 50),
        event("op", add, 900, 905),
    ]
    found = {
        fact.name: (fact.ns, fact.count) for fact in seen(*rows, end_ms=1000, device=None).called
    }
    assert found == {add: ((10 + (40 - 20) - 4 + 5) * MS, 3), tanh: ((50 - 40) * MS, 1)}
    assert seen(event("range", "step", 0, 10), device=None).called == ()


#               0    5         40     60    80  90 ms
# select        |----|
# node                         |------------|
#   backward                   |------|
# add_                                      |---|  of another node
def test_indexing_takes_its_backward_pass_and_what_adds_it_up() -> None:
    node = "autograd::engine::evaluate_function: SelectBackward0"
    rows = [
        event("op", "aten::select", 0, 5, sequence_number=4, forward_thread=0),
        event("op", node, 40, 80),
        event("op", "SelectBackward0", 40, 60, sequence_number=4, forward_thread=1),
        event("op", "aten::select_backward", 40, 60),
        event("op", "aten::add_", 80, 90),
    ]
    assert sum(fact.ns for fact in seen(*rows, device=None).indexed) == (5 + 40) * MS
    assert sum(fact.ns for fact in seen(*rows[1:], device=None).indexed) == 40 * MS


#          0                    40    50 |50.008      60   100 ms
# range    |mul|mul|mul|…|mul|--|
# backward                        |add_|  |MulBackward0|
# Python                               |--|                        the call of MulBackward0
@pytest.mark.parametrize("name", ["nn.Module: mLSTMCell_0", "nn.Module: mLSTMCell blocks.0.cell"])
def test_a_module_that_loops_takes_its_gradients_and_their_calls(name: str) -> None:
    rows = [
        event("range", "step", 0, 100),
        event("range", name, 0, 40),
        *(event("op", "aten::mul", at, at + 0.5, sequence_number=at + 1, forward_thread=0)
          for at in range(32)),
        event("op", "aten::add_", 45, 50),
        event("op", "MulBackward0", 50.008, 60, sequence_number=4, forward_thread=1),
    ]  # fmt: skip
    assert seen(*rows, device=None).looped_module == ("mLSTMCell", 32, (40 + 10) * MS)
    assert seen(*rows[:30], device=None).looped_module is None


@pytest.mark.parametrize(
    ("product_ms", "weights", "found"),
    [(0.5, [4, 4], True), (1.0, [4, 4], False), (0.5, [52, 8], False)],
)
def test_without_shapes_updates_as_long_as_filling_the_gradient_are_over_the_whole_table(
    product_ms: float, weights: list[int], found: bool
) -> None:
    gradient = "aten::embedding_dense_backward"
    rows = [
        event("op", "aten::embedding", 0, 1, shapes="[[100,8],[5,2]]"),
        event("op", "aten::lstm", 1, 2, shapes=f"[[5,2,8],[[1,2,4]],[{weights}]]"),
        event("op", "aten::mm", 3, 3 + product_ms, category="gemm"),
        event("op", gradient, 5, 8),
        event("op", "aten::fill_", 5, 7),
        event("op", "aten::addcmul_", 10, 11.5, category="optimizer"),
        event("op", "aten::addcmul_", 12, 12.9, category="optimizer"),  # another parameter
        event("op", "aten::sqrt", 13, 17, category="optimizer"),
    ]
    expected = (DenseTable(100, 10, round((3 + 1.5 + 4) * MS)),) if found else ()
    assert seen(*rows, device=None).dense_tables == expected


def test_a_backward_pass_that_grows_by_as_many_nodes_has_the_time_of_earlier_batches() -> None:
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    rows = []
    for step in range(4):
        rows.append(event("op", "aten::lstm", 100 * step, 100 * step + 10))
        for start in range(100 * step + 20, 100 * step + 20 + 5 * (4 + 2 * step), 5):
            rows.append(event("op", node, start, start + 4))
    # all but two of 4, 6, 8 and 10 nodes of 4 ms
    assert seen(*rows, steps=4, device=None).growing == Growing(4, 10, 20 * MS)
    assert seen(*rows[:-1], steps=4, device=None).growing is None


#           0  10          40    50         80   90    100 ms
# forward      |mm|     |mm|
# gradient                 |mm|         |mm|
# other                                          |mm|
def test_dispatch_between_the_first_and_the_last_op_of_a_loop_is_of_the_loop() -> None:
    loop = "model/lstm/while/body/_5/model/lstm/while/lstm_cell/MatMul:MatMul"
    rows = [
        event("range", "step", 0, 100),
        event("op", "SessionRun", 0, 95),
        *(event("op", loop, at, at + 5, category="gemm") for at in (10, 35)),
        *(
            event("op", f"gradient_tape/{loop}", at, at + 5, category="gemm")
            for at in (38.0 + 2, 75)
        ),
        event("op", "gradient_tape/model/lstm/while/AddN:AddN", 50, 60, category="pointwise"),
        event("op", "model/dense/MatMul:MatMul", 85, 90, category="gemm"),
    ]
    found = seen(*rows, device=None).looping_ns
    assert found == (80 - 10 - 4 * 5) * MS  # with the sum of gradients
    assert seen(*(r for r in rows if "lstm" not in r["name"]), device=None).looping_ns == 0

"""Remedies are told where the facts of a run show their condition, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose.made import contributor, profile, table, tally

from lstmprof import implementations
from lstmprof.diagnose import causes
from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.findings import findings
from lstmprof.diagnose.remedies import TABLE, device as remedies_of_device, remedies
from lstmprof.diagnose.step_profile import Contributor, StepProfile

WORKLOAD = {
    "layers": 1,
    "hidden": 320,
    "features": 123,
    "bidirectional": False,
    "time_steps": 20,
    "loss": "ce",
}
TORCH = {"framework": "torch", "precision": "fp32", "mode": "train", "workload": WORKLOAD}
TENSORFLOW = {**TORCH, "framework": "tensorflow"}
MM = contributor("busy", "gemm", 900, "aten::mm", count=100)
TANH = contributor("busy", "pointwise", 900, "aten::tanh", count=200)
WAIT = contributor("idle", "dispatch", 900)


def told(kind: str, slow: StepProfile, fast: StepProfile | None = None) -> str:
    """All remedies for the finding of this kind, joined."""
    (finding,) = (f for f in findings(fast, slow) if f.kind == kind)
    found = remedies(finding)
    return " | ".join(advice.sentence for advice in found)


def run(
    *contributors: Contributor, facts: dict[str, Any], device: int | None = None, **tables: Any
) -> StepProfile:
    made = {name: table(*rows) for name, rows in tables.items()}
    return profile(*contributors, facts=facts, device=device, tables=made)


HAND_WRITTEN = {**TORCH, "implementation": "torch-lstmcell-basic"}


def test_a_hand_written_cell_is_told_of_the_layer_in_one_op_and_of_hoisting() -> None:
    slow = run(MM, facts=HAND_WRITTEN, tally=tally(product=[9] * 102))
    fused = contributor("busy", "rnn", 100, "aten::mkldnn_rnn_layer")
    fast = run(fused, facts={**TORCH, "implementation": "torch-cudnn"})
    said = told("GEMM-bound", slow, fast)
    assert "torch-cudnn (torch.nn.LSTM); of torch-cudnn aten::mkldnn_rnn_layer take" in said
    assert "5.1 products a time step where 2 depend on the step before" in said


@pytest.mark.parametrize(
    ("name", "device", "form"),
    [
        ("torch-lstmcell-fused", None, "cell op"),
        ("torch-cudnn", None, "layer op"),
        ("tf-lstmblockcell", 0, "cell op"),
        ("keras-lstm", None, "loop"),
        ("keras-lstm", 0, "layer op"),
    ],
)
def test_one_op_a_layer_is_told_of_to_rows_that_have_none(
    name: str, device: int | None, form: str
) -> None:
    facts = {**TORCH, "framework": implementations.find(name).framework, "implementation": name}
    slow = run(MM, facts=facts, device=device)
    assert remedies_of_device.form_of(slow) == form
    assert ("in one op" in told("GEMM-bound", slow)) == (form != "layer op")


def test_the_rows_that_are_told_of_run_a_layer_in_one_op_there() -> None:
    for framework, texts in remedies_of_device._ONE_OP.items():
        for text, where in zip(texts, ("cuda", "cpu"), strict=True):
            row = implementations.find(text.split()[0].rstrip(","))
            assert (row.framework, row.form_on(where)) == (framework, "layer op")
            assert where not in row.refusals()


def test_the_form_of_a_profile_made_elsewhere_is_in_its_ops() -> None:
    ops = [
        {"name": name, "count": 9, "host_self_ns": 1} for name in ("aten::mm", "aten::lstm_cell")
    ]
    cells = run(MM, facts=TORCH, ops=ops)
    assert "one op: torch-cudnn" in told("GEMM-bound", cells)
    layer = contributor("busy", "rnn", 100, "aten::_cudnn_rnn")
    forms = [remedies_of_device.form_of(run(c, facts=TORCH)) for c in (layer, MM)]
    assert forms == ["layer op", None]


def test_the_products_of_a_layer_op_are_not_the_users_to_hoist() -> None:
    slow = run(MM, facts={**TORCH, "implementation": "torch-cudnn"}, tally=tally(product=[9] * 102))
    assert "inputs' product" not in told("GEMM-bound", slow)


@pytest.mark.parametrize(("products", "fits"), [(42, False), (102, True)])
def test_hoisting_needs_more_products_than_the_recurrence(products: int, fits: bool) -> None:
    slow = run(MM, facts=HAND_WRITTEN, tally=tally(product=[9] * products))
    assert ("inputs' product" in told("GEMM-bound", slow)) == fits


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"cuda_graph": True}, False),
        ({"framework": "tensorflow"}, False),
        ({"workload": {**WORKLOAD, "loss": "ctc"}}, False),
        ({"workload": {**WORKLOAD, "variable_length": True}}, False),
    ],
)
def test_a_cuda_graph_is_offered_where_one_can_be_captured(
    change: dict[str, Any], fits: bool
) -> None:
    waiting = contributor("idle", "launch call", 900)
    slow = run(waiting, facts={**TORCH, "implementation": "torch-cudnn", **change}, device=0)
    assert ("--cuda-graph" in told("launch-bound", slow)) == fits


def test_no_cuda_graph_on_a_cpu() -> None:
    assert "--cuda-graph" not in told("dispatch-bound", run(WAIT, facts=HAND_WRITTEN))


@pytest.mark.parametrize(
    ("implementation", "xla", "fits"),
    [
        ("tf-lstmcell", False, True),
        ("tf-lstmcell", True, False),
        ("tf-lstmblockcell", False, False),
    ],
)
def test_xla_is_offered_to_rows_that_it_compiles(
    implementation: str, xla: bool, fits: bool
) -> None:
    slow = run(WAIT, facts={**TENSORFLOW, "implementation": implementation, "xla": xla})
    assert ("--xla" in told("dispatch-bound", slow)) == fits


@pytest.mark.parametrize(
    ("names", "unmet"),
    [
        (["lstm/while/lstm_cell/MatMul:MatMul"], []),
        (["lstm/while/lstm_cell/hard_sigmoid/Relu6:Relu6"], ["recurrent_activation='sigmoid'"]),
        (["lstm/while/lstm_cell/Relu:Relu"], ["activation='tanh'"]),
        (["gru/while/gru_cell/dropout/random_uniform:R"], ["recurrent_dropout=0"]),
        (["model/lstm_cell_7/MatMul:MatMul"], ["unroll=False"]),
    ],
)
def test_the_condition_of_kerass_cudnn_path_that_fails_is_named(
    names: list[str], unmet: list[str]
) -> None:
    rows = [{"name": n, "count": 1, "host_self_ns": 1} for n in names]
    slow = run(WAIT, facts={**TENSORFLOW, "implementation": None}, device=0, ops=rows)
    assert remedies_of_device.unmet_by_keras(slow) == unmet
    assert ("Keras runs this layer on cuDNN only with" in told("dispatch-bound", slow)) == bool(
        unmet
    )
    on_host = run(WAIT, facts=TENSORFLOW, ops=rows)
    assert remedies_of_device.unmet_by_keras(on_host) == []


def test_what_cudnns_persistent_kernels_would_need() -> None:
    facts = {**TORCH, "kernels_used": "cuDNN", "implementation": "torch-cudnn"}
    kernel = contributor("busy", "rnn", 900, "sgemm", family="gemm")
    assert told("GEMM-bound", run(kernel, facts=facts, device=0)).endswith(
        "cuDNN's persistent kernels would need float16 (this is fp32), hidden a multiple of 128 "
        "(it is 320) and features a multiple of 128 (it is 123)"
    )
    persistent = contributor("busy", "rnn", 900, "persist", family="persistent")
    assert "persistent" not in told("GEMM-bound", run(persistent, facts=facts, device=0))


def test_tf32_is_offered_to_float32_on_a_gpu_that_has_it() -> None:
    facts = {**TORCH, "device_name": "NVIDIA A100-SXM4-80GB"}
    assert "--precision tf32" in told("GEMM-bound", run(MM, facts=facts, device=0))
    for other in ({"device_name": "Tesla V100"}, {"precision": "amp-bf16"}):
        assert "tf32" not in told("GEMM-bound", run(MM, facts={**facts, **other}, device=0))


def test_what_asks_for_values_is_named() -> None:
    rows = [{"name": "aten::item", "count": 40, "host_self_ns": 1}]
    slow = run(contributor("idle", "dispatch", 9, "aten::item"), facts=TORCH, ops=rows)
    assert told("sync-bound", slow).startswith("aten::item asks for a value 40 times a step")


def test_pageable_memory_is_named_and_pinned_memory_is_not() -> None:
    slow_copy = contributor("busy", "transfer", 9, "Memcpy HtoD (Pageable -> Device)")
    for memory, fits in (("pageable", True), ("pinned", False)):
        rows = [{"host_memory": memory, "total_ns": 2_000_000, "count": 1, "bytes": None}]
        slow = run(slow_copy, facts=TORCH, device=0, copies=rows)
        assert ("2.0 ms a step are copies of pageable memory" in told("copy-bound", slow)) == fits


def test_casts_of_autocast_are_counted_by_time_step() -> None:
    row = {
        "op": "aten::to",
        "within": "aten::linear",
        "from_dtype": "float",
        "to_dtype": "c10::BFloat16",
        "count": 60,
        "total_ns": 9,
        "bytes": None,
    }
    cast = contributor("busy", "cast", 9, "aten::copy_")
    amp = run(cast, facts={**TORCH, "precision": "amp-bf16"}, casts=[row])
    assert told("cast-bound", amp).startswith("autocast casts 3 times a time step")
    assert told("cast-bound", run(cast, facts=TORCH, casts=[row])) == (
        "aten::to in aten::linear casts from float to c10::BFloat16 60 times a step: keep one "
        "element type there"
    )


def test_a_cast_that_is_done_once_is_said_to_be() -> None:
    row: dict[str, Any] = {"op": "aten::to", "within": None, "to_dtype": None}
    row |= {"count": 1, "total_ns": 9, "bytes": None}
    cast = run(contributor("busy", "cast", 9, "aten::copy_"), facts=TORCH, casts=[row])
    assert told("cast-bound", cast).startswith("aten::to casts once a step: keep")


def test_calls_so_long_that_they_set_cuda_up_are_told_apart_from_launching() -> None:
    launching = contributor("idle", "launch call", 40_000, "cudaLaunchKernel", count=10)
    first = contributor("idle", "launch call", 7_000_000_000, "cudaStreamCreateWithFlags", count=1)
    gaps = tally(kernel=[1] * 9, gap=[4_000] * 8)
    told_of = {
        long: told("launch-bound", run(launching, *long, facts=TORCH, device=0, tally=gaps))
        for long in ((), (first,))
    }
    assert "initialised" not in told_of[()]
    assert told_of[first,].startswith("cudaStreamCreateWithFlags takes 7,000.000 ms a call: CUDA")
    freed = contributor("idle", "alloc", 6_000_000_000, "cudaFree", count=15)
    said = told("allocation-bound", run(freed, facts=TORCH, device=0))
    assert "cudaFree takes 400.000 ms a call" in said
    assert "warm step" not in said


def test_what_the_same_implementation_does_more_often_is_named() -> None:
    facts = {**TORCH, "implementation": "torch-cudnn"}
    fast = run(contributor("busy", "gemm", 100, "aten::mm", count=3), facts=facts)
    slow = run(contributor("busy", "gemm", 200, "aten::mm", count=6), facts=facts)
    assert "aten::mm runs 6 times a step against 3" in told("GEMM-bound", slow, fast)
    other = run(contributor("busy", "gemm", 200, "aten::mm", count=6), facts=HAND_WRITTEN)
    assert "aten::mm runs" not in told("GEMM-bound", other, fast)
    unknown = [profile(*one.contributors, facts={}) for one in (slow, fast)]
    assert "aten::mm runs" not in told("GEMM-bound", *unknown)


def test_a_remedy_quotes_no_whole_template() -> None:
    kernel = "void at::native::elementwise_kernel<" + 40 * "at::detail::Array<char*, 2>, " + ">"
    copy = contributor("busy", "layout", 900, kernel, count=7)
    said = told("copy-bound", run(copy, facts=TORCH, device=0))
    assert said.startswith("void at::native::elementwise_kernel<at::detail")
    assert "… moves elements 7 times a step" in said


def test_indexing_a_sequence_in_a_loop_is_found_by_its_backward_pass() -> None:
    rows = [{"name": "aten::select_backward", "count": 20, "host_self_ns": 1}]
    assert "x.unbind(0)" in told("memory-bound", run(TANH, facts=TORCH, ops=rows))
    few = [{**rows[0], "count": 1}]
    assert "x.unbind(0)" not in told("memory-bound", run(TANH, facts=TORCH, ops=few))


def test_denormals_are_spoken_of_where_they_were_not_flushed() -> None:
    for flushed, fits in ((False, True), (True, False), (None, False)):
        slow = run(MM, facts={**TORCH, "denormals_flushed": flushed})
        assert ("set_flush_denormal" in told("GEMM-bound", slow)) == fits


def test_nothing_is_told_of_a_run_of_which_nothing_is_known() -> None:
    for one in (
        MM,
        TANH,
        WAIT,
        contributor("idle", "python", 9),
        contributor("busy", "cast", 9, "x"),
    ):
        assert all(e.remedies == () for e in alone(profile(one)).findings)


def test_a_remedy_is_told_once() -> None:
    slow = run(MM, TANH, WAIT, facts=HAND_WRITTEN)
    fast = run(
        contributor("busy", "rnn", 100, "aten::lstm"), facts={**TORCH, "implementation": "x"}
    )
    said = [a.sentence for e in compare(slow, fast).findings for a in e.remedies]
    assert len(said) == len(set(said)) > 0


def test_every_remedy_is_for_kinds_that_exist_and_has_a_source() -> None:
    assert all(set(remedy.kinds) <= set(causes.KINDS) and remedy.source for remedy in TABLE)

"""Causes: PyTorch layers that a CPU runs op by op, because its library has no op for them.

oneDNN runs nn.LSTM in one op for float32 and bfloat16 without a projection. For everything else,
ATen loops over time steps. Source: aten/src/ATen/native/RNN.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import CAST, COPY, DISPATCH, PYTHON
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.rows import HOST, TORCH, WORK, Example, Match, Remedy, each
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.implementations import LAYER_OP
from lstmprof.numbers import count, number_of

#: The library of a layer's op in which no library's op was recorded.
_NO_LIBRARY = "ATen"
_RNN = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/RNN.cpp"


def _off_library(finding: Finding, is_reason: Callable[[dict[str, Any]], bool]) -> Match | None:
    """Match layers on a CPU without a library's op for which ``is_reason`` holds."""
    profile = finding.slow
    rows = [
        row
        for row in profile.rows("layers")
        if row["form"] == LAYER_OP and row["library"] == _NO_LIBRARY and is_reason(row)
    ]
    if not rows or profile.runs_on != "cpu":
        return None
    first = max(rows, key=lambda row: row["calls"] or 0)
    took = sum(
        ((row["forward_ns"] or 0) + (row["backward_ns"] or 0)) * (row["calls"] or 0) for row in rows
    )
    steps = f"each of {count(first['time_steps'])} time steps of " if first["time_steps"] else ""
    number = number_of(sum(row["calls"] or 0 for row in rows) / profile.steps, "call", "calls")
    seen = f"{steps}{first['op']} runs op by op, in {number}{each(profile)}"
    return Match(seen, round(took / profile.steps))


def in_float64(finding: Finding) -> Match | None:
    """Match an LSTM in float64."""
    return _off_library(finding, lambda row: row["dtype"] == "float64")


def in_bfloat16(finding: Finding) -> Match | None:
    """Match an LSTM in bfloat16 that a CPU with AVX-512 would run in one op."""
    if finding.slow.seen.packed:
        return None

    def is_reason(row: dict[str, Any]) -> bool:
        return row["dtype"] == "bfloat16" and row["cell"] == "lstm" and not row["projection"]

    return _off_library(finding, is_reason)


def projected(finding: Finding) -> Match | None:
    """Match an LSTM with a projection."""
    return _off_library(finding, lambda row: bool(row["projection"]))


def no_lstm(finding: Finding) -> Match | None:
    """Match a GRU or plain RNN if calling ops takes at least half of the step.

    One op saves calls: nn.GRU with 64 units took 14.6 ms, nn.LSTM 9.7; nn.RNN with 256 units, which
    consists mostly of matmuls, gained nothing (PyTorch 2.13 on a CPU).
    """
    profile = finding.slow
    kinds = causes.by_kind(profile, causes.comparison_of(profile))
    calling_ns = sum(total_ns(kinds[kind]) for kind in (DISPATCH, PYTHON))
    if 2 * calling_ns < profile.length_ns:
        return None
    return _off_library(finding, lambda row: str(row["cell"]).startswith(("gru", "rnn")))


FLOAT32 = Remedy(
    name="float32",
    cause="the layer computes in float64, for which a CPU has no LSTM op in PyTorch",
    fix="compute in float32: model.float(), and inputs.float()",
    condition="A CPU runs an LSTM of PyTorch in float64, and no library's op was recorded in it",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    saves="the layer, forward and backward",
    of_several=True,
    instead="the layer in float32",
    decide=in_float64,
    sources=(_RNN,),
    example=Example(
        of="nn.LSTM in float64 over 50 time steps (64 units, batch 16), PyTorch 2.13 on a CPU",
        seen="each of 50 time steps of aten::lstm runs op by op, in 1 call per step",
        gain="15.7 → 2.4 ms per step",
    ),
)
FLOAT32_NOT_BFLOAT16 = Remedy(
    name="float32 instead of bfloat16",
    cause="the LSTM computes in bfloat16 without oneDNN's op, as on CPUs without AVX-512",
    fix="compute in float32 on this CPU: oneDNN has a float32 LSTM op on every CPU",
    condition="A CPU runs an LSTM of PyTorch in bfloat16, and the profile shows no oneDNN op "
    "inside the layer. The layer has no projection (proj_size), and its sequences are not packed",
    kinds=(*HOST, *WORK, COPY, CAST),
    frameworks=TORCH,
    saves="the layer, forward and backward",
    of_several=True,
    instead="the layer in float32",
    decide=in_bfloat16,
    sources=("https://github.com/pytorch/pytorch/issues/118499", _RNN),
    example=Example(
        of="nn.LSTM in bfloat16 over 20 time steps (256 units, batch 32), PyTorch 2.13 on a CPU "
        "with ONEDNN_MAX_CPU_ISA=AVX2",
        seen="each of 20 time steps of aten::lstm runs op by op, in 1 call per step",
        gain="340.3 → 40.6 ms",
    ),
)
PROJECT_AFTERWARDS = Remedy(
    name="project afterwards",
    cause="proj_size keeps nn.LSTM from running as one op on a CPU",
    fix="if you can change the model, put nn.Linear after nn.LSTM (without projecting the state)",
    condition="A CPU runs an LSTM of PyTorch with a projection, and no library's op was recorded "
    "in it",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    saves="the layer, forward and backward",
    of_several=True,
    instead="the layer and its Linear",
    decide=projected,
    sources=(_RNN,),
    example=Example(
        of="nn.LSTM(proj_size=32) over 50 time steps (64 units, batch 16), PyTorch 2.13 on a CPU",
        seen="each of 50 time steps of aten::lstm runs op by op, in 1 call per step",
        gain="12.5 → 3.7 ms per step",
    ),
)
LSTM_ON_CPU = Remedy(
    name="LSTM on a CPU",
    cause="PyTorch has no CPU op for nn.GRU and nn.RNN: it runs their time steps op by op",
    fix="use nn.LSTM if you can change the model; for inference, ONNX Runtime or OpenVINO",
    condition="A CPU runs a GRU or a plain RNN of PyTorch, and no library's op was recorded in "
    "it. Dispatch and Python take half of the step or more",
    kinds=(*HOST, *WORK, COPY),
    frameworks=TORCH,
    saves="the layer, forward and backward",
    of_several=True,
    instead="the other layer",
    decide=no_lstm,
    sources=(_RNN,),
    example=Example(
        of="nn.GRU over 50 time steps (64 units, batch 16), PyTorch 2.13 on a CPU",
        seen="each of 50 time steps of aten::gru runs op by op, in 1 call per step",
        gain="13.4 → 2.4 ms per step with nn.LSTM",
    ),
)

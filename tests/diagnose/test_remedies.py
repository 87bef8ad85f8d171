"""Each row of the catalogue is advised under its condition, and not if one fact is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from causes import NOTES
from diagnose.made import contributor, profile, table, tally

from lstmprof import implementations
from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.findings import causes, findings
from lstmprof.diagnose.remedies import TABLE, Advice, cells, keras, remedies, scans
from lstmprof.diagnose.seen import DenseTable, Fact, Gaps, Growing, Product, Seen, Slow, Small
from lstmprof.diagnose.seen.recurrent import Unrolled
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.contributors import Contributor
from lstmprof.diagnose.step_profile.ranks import Straggler, Waiter, WaitsFor
from lstmprof.diagnose.step_profile.tally import Spread

WORKLOAD = {
    "layers": 1,
    "hidden": 320,
    "features": 123,
    "bidirectional": False,
    "time_steps": 20,
    "loss": "ce",
    "optimizer": "adam",
}
#: What a profile made elsewhere shows of itself.
TORCH, TENSORFLOW, JAX = (Seen(framework=name) for name in ("torch", "tensorflow", "jax"))
OURS = {"framework": "torch", "precision": "fp32", "mode": "train", "workload": WORKLOAD}
BY_HAND = {**OURS, "implementation": "torch-lstmcell-basic"}
NN_LSTM = {**OURS, "implementation": "torch-nn-lstm"}
TF_BY_HAND = {**OURS, "framework": "tensorflow", "implementation": "tf-lstmcell"}

MM = contributor("busy", "gemm", 900, "aten::mm", count=100)
TANH = contributor("busy", "pointwise", 900, "aten::tanh", count=200)
COPY = contributor("busy", "layout", 900, "aten::copy_")
TRANSFER = contributor("busy", "transfer", 900, "Memcpy HtoD (Pinned -> Device)")
CAST = contributor("busy", "cast", 900, "aten::copy_")
DISPATCH = contributor("idle", "dispatch", 900, "aten::empty")
LAUNCH = contributor("idle", "launch call", 900, "cudaLaunchKernel", count=100)
SYNC = contributor("idle", "sync", 900, "cudaStreamSynchronize")
PYTHON = contributor("idle", "python", 900, "prepare")
INPUT = contributor("input", "python", 9_000_000, "input")
START = contributor("idle", "launch call", 900, "cudaLaunchKernel", starting=True)
ALLOC = contributor("idle", "alloc", 900, "cudaMalloc")
QUEUED = contributor("idle", "queued", 900, "k")
#: Half of the time of ``MM``, on a GPU of 132 multiprocessors.
GRIDS = (Small("gemm", 24, 132, 400), Small("gemm", 66, 132, 50))
#: A hundred kernels of 2 µs, each after a gap of 7 ns: most of the waiting.
SERIES = Gaps(kernels=100, kernel_ns=2, gap_ns=7, usual_ns=700, all_ns=900)


def run(
    *contributors: Contributor,
    facts: Mapping[str, Any] | None = None,
    device: int | None = None,
    seen: Seen | None = None,
    straggler: Straggler | None = None,
    tally: Mapping[str, Spread] | None = None,
    **tables: Any,
) -> StepProfile:
    made = {name: table(*rows) for name, rows in tables.items()}
    fields = {"facts": dict(facts or {}), "device": device, "tables": made}
    fields |= {"straggler": straggler, "tally": tally or {}}
    return profile(*contributors, seen=seen or Seen(), **fields)


def ops(**calls: float) -> list[dict[str, Any]]:
    """Rows of the op table; ``__`` in a name stands for ``::``."""
    return [op(name.replace("__", "::"), count) for name, count in calls.items()]


def op(name: str, count: float, ns: int = 9) -> dict[str, Any]:
    return {"name": name, "count": count, "host_total_ns": ns, "device_total_ns": ns}


def kernels(category: str, count: int, name: str = "k", ns: int = 9) -> dict[str, Any]:
    return {"category": category, "family": None, "count": count, "total_ns": ns, "name": name}


def copies(memory: str, ns: int = 900) -> list[dict[str, Any]]:
    return [{"host_memory": memory, "total_ns": ns, "count": 1, "bytes": None}]


def moved(memory: str) -> list[dict[str, Any]]:
    return [{**row, "direction": "HtoD", "bytes": 9_000} for row in copies(memory)]


def casts(count: int = 60, ns: int = 900) -> list[dict[str, Any]]:
    row = {"op": "aten::to", "within": "aten::linear", "from_dtype": "float", "bytes": None}
    return [{**row, "to_dtype": "c10::BFloat16", "count": count, "total_ns": ns}]


def advice(kind: str, slow: StepProfile, fast: StepProfile | None = None) -> tuple[Advice, ...]:
    """The remedies for the finding of this kind; none where there is none."""
    return tuple(a for f in findings(fast, slow) if f.kind == kind for a in remedies(f))


def names(kind: str, slow: StepProfile, fast: StepProfile | None = None) -> set[str]:
    """The rows of this advice."""
    return {a.name for a in advice(kind, slow, fast)}


def the(name: str, kind: str, slow: StepProfile, fast: StepProfile | None = None) -> Advice:
    """The advice of one row; fails if it is not given."""
    (given,) = (a for a in advice(kind, slow, fast) if a.name == name)
    return given


@dataclass(frozen=True)
class Case:
    """A run whose finding of ``kind`` gets the remedy; the runs that lack one fact do not.

    ``saves_ns`` of it is expected; ``lacking`` is what is missing → the run without it.
    """

    kind: str
    slow: StepProfile
    saves_ns: int | None
    lacking: Mapping[str, StepProfile]
    fast: StepProfile | None = None


def series(*more: Contributor, **given: Any) -> StepProfile:
    """A stranger's profile on a GPU that waits for a hundred launches."""
    counts = tally(launch=[9] * 100, kernel=[2] * 100, pointwise=[2] * 50)
    given = {"seen": replace(TORCH, gaps=SERIES), "tally": counts, **given}
    return run(LAUNCH, *more, device=0, **given)


def with_paths(
    framework: Seen, paths: Mapping[str, float], *more: Contributor, **given: Any
) -> StepProfile:
    """A stranger's profile, of dispatch, with ops or kernels of these paths."""
    return run(DISPATCH, *more, seen=replace(framework, paths=paths), **given)


def with_gaps(**changed: int) -> Seen:
    return replace(TORCH, gaps=replace(SERIES, **changed))


def loading(*held: Fact) -> Seen:
    return replace(TORCH, loading=held)


def straggler(waits_ns: int) -> Straggler:
    """The lane of these runs waits so long for device 1."""
    waiters = (Waiter(None, 0, waits_ns, 0), Waiter(None, 1, 0, 4))
    waits_for = (WaitsFor(None, 0, None, 1, waits_ns),)
    return Straggler("found", device=1, waiters=waiters, waits_for=waits_for)


FIRST = Fact("cudaLaunchKernel", 800, 1, None, 8)
COMPILING = contributor("busy", "other", 900, "compile_fx", compiling=True)
ITEM = Fact("cudaStreamSynchronize", 600, 40, "aten::item")
READ = Fact("aten::item", 600, 40)
SIZED = Fact("cudaStreamSynchronize", 600, 3, "aten::nonzero")
DEVICE = Fact("cudaDeviceSynchronize", 800, 4, "step")
WAIT = Fact("gemm", 500, 1, "cudaStreamWaitEvent")
CALLBACK = Fact("gemm", 500, 1, "cudaLaunchHostFunc")
MOVED = Fact("copy_kernel", 700, 3, "aten::contiguous")
WEIGHTS = Fact("Memcpy DtoD", 400, 8, "aten::_cudnn_rnn")
FLATTENED = replace(WEIGHTS, within="aten::_cudnn_rnn_flatten_weight")
RELAID = replace(MOVED, within="aten::lstm")
CALLS = Fact("aten::lstm", 600, 16)
NODE = Fact("aten::norm", 300, 60)
FILLED = Fact("aten::fill_", 300, 90, "aten::empty")
LATER = Fact("cudaMalloc", 400, 3)
NCCL = contributor("busy", "collective", 900, "ncclDevKernel_AllReduce")
KERAS = [op("lstm/while/lstm_cell/Relu:Relu", 1)]
GRADIENTS = [op("autograd::engine::evaluate_function: MmBackward0", 30), op("aten::isnan", 30, 400)]
ADAM = [op("Optimizer.step#Adam.step", 1)]
UPDATES = [kernels("optimizer", 40), kernels("gemm", 60)]
SHAPES = ("aten::mm", ("[[2,3]]", "[[4,3]]"))
FUSED = contributor("busy", "rnn", 100, "aten::mkldnn_rnn_layer")
#: JAX's own operators and TensorFlow's, called one by one.
INDEXED = Fact("autograd::engine::evaluate_function: SelectBackward0", 300, 20)
SMALL = tuple(Fact(f"PjitFunction({name})", 400, 15) for name in ("add", "tanh"))
EAGER = (Fact("EagerLocalExecute: MatMul", 500, 30),)
FUNCTION = Fact("EagerLocalExecute: __inference_step_12", 500, 1)
#: … with the Python before each call; what a function takes is no operator's.
CALLED = (replace(EAGER[0], ns=1_300), replace(FUNCTION, ns=5_000))
CALLING = contributor("idle", "dispatch", 900, "EagerExecute")
#: A function that torch.compile compiled once per value of an attribute, until it gave up.
CHANGED = {"changed": "value", "argument": "self.epoch", "before": "7"}
AGAIN = {"recompiled": [{"function": "Model.forward", "times": 3, **CHANGED}]}
LOOKS = op("TorchDynamo Cache Lookup", 1)
GAVE_UP = {"recompiled": [{**AGAIN["recompiled"][0], "times": 7, "limit": 8}]}
#: Paths of loops over time steps: of Keras on TensorFlow with a mask, of Keras 2, of Flax.
MASKED = {"m/lstm/while/lstm_cell/MatMul:MatMul": 40, "m/lstm/while/SelectV2_1:SelectV2": 40}
STANDARD = {
    "while_15/body/_1/while/MatMul_1:MatMul": 40,
    "m/lstm/Read/ReadVariableOp:ReadVariableOp": 1,
}
FLAX = {"jit(f)/jvp(RNN_0)/while/body/closed_call/LSTMCell_0/dot_general": 40}
SCAN = [op("pytensor::Scan{l0, while_loop=False}", 2), op("pytensor::Dot22", 80)]
CTC_KERNEL = contributor("busy", "ctc", 900, "ctc_loss_log_alpha_gpu_kernel")
GATES = contributor("busy", "rnn", 900, "sgemm", family="gemm")
HALF = Product("fp16_sgemm_128x64_nn", "aten::mm", "float16", (64, 320, 1001), 700)
EVEN = replace(HALF, sizes=(64, 320, 1000))
TENSOR = replace(HALF, kernel="fp16_s884gemm_fp16_128x64_nn")
A100 = {"0": {"compute_capability": "8.0", "multiprocessors": 108, "warp_size": 32}}
P100 = {"0": {"compute_capability": "6.0", "multiprocessors": 56, "warp_size": 32}}
ON_A100 = {"device_facts": A100}
#: A row of the layer table: a loop of 20 time steps.
LAYER = {"form": "loop", "library": None, "time_steps": 20, "calls": 1, "hidden": 320}
LAYER |= {"kernels_per_time_step": None}
#: … and twenty calls of a layer op, one time step each.
ONE_STEP = {**LAYER, "form": "layer op", "op": "aten::lstm", "cell": "lstm", "cells": 1}
ONE_STEP |= {"time_steps": 1, "calls": 20, "forward_ns": 15, "backward_ns": 15}
IN_TREES = {**LAYER, "op": "4 products", "cell": "lstm", "cells": 3, "calls": 4}
IN_TREES |= {"forward_ns": 400, "backward_ns": 9, "per_step": 4}
TREE = {"script_tree": {"file": "a.py", "line": 7, "function": "visit", "ns": 1000}}
IN_BFLOAT16 = {**ONE_STEP, "time_steps": 20, "library": "ATen", "dtype": "bfloat16"}
IN_BFLOAT16 |= {"hidden": None, "projection": None}
#: A loop of XLA with eight matmuls in each of five time steps.
APART = {"jit(f)/jvp()/while/body/dot_general": 40}
SEPARATE = {"form": "loop", "op": "while", "cell": "lstm", "cells": 5, "time_steps": 5}
SEPARATE |= {"calls": 1, "rung": "separate products", "library": "XLA"}
SINGLE_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

#: Five matmuls in each of twenty time steps, and two beside.
MATMULS = tally(product=[9] * 102)

ON_CPU = contributor("idle", "dispatch", 900, "aten::normal_", on_cpu=True)


def off_library(**facts: Any) -> dict[str, Any]:
    """A row of the layer table: an LSTM without an op of a library."""
    row = {"form": "layer op", "op": "aten::lstm", "library": "ATen", "cell": "lstm", "calls": 1}
    times = {"forward_ns": 400.0, "backward_ns": 500.0, "time_steps": 50}
    return {**row, **times, "dtype": "float32", "projection": None, **facts}


CASES: dict[str, Case] = {
    "profile later": Case(
        "initialisation",
        run(START, seen=loading(FIRST), device=0),
        800,
        {"a long first call": run(LAUNCH, seen=TORCH, device=0)},
    ),
    "warm MIOpen up": Case(
        "compile",
        run(COMPILING, seen=replace(TORCH, compiled=(Fact("hiprtcCompileProgram", 800, 1),))),
        800,
        {"ROCm's compiler": run(COMPILING, seen=replace(TORCH, compiled=(Fact("nvrtc", 8, 1),)))},
    ),
    "capture once": Case(
        "compile",
        run(replace(COMPILING, name="cudaStreamBeginCapture"), seen=replace(TORCH, captured=40)),
        900,
        {"a capture": run(COMPILING, seen=TORCH)},
    ),
    "trace once": Case(
        "compile",
        run(COMPILING, seen=replace(TORCH, compiled=(Fact("compile_fx", 800, 2),))),
        900,
        {"tracing": run(COMPILING, seen=TORCH)},
    ),
    "jit the whole": Case(
        "launch",
        series(seen=replace(JAX, gaps=SERIES, programs=SMALL)),
        700,
        {
            "many programs": series(
                seen=replace(JAX, gaps=SERIES, programs=(Fact("PjitFunction(step)", 900, 1),))
            ),
            "a series of launches": series(seen=replace(JAX, programs=SMALL)),
            "one trace": series(
                seen=replace(
                    JAX, gaps=SERIES, programs=SMALL, compiled=(Fact("trace_to_jaxpr", 1, 1),)
                ),
            ),
        },
    ),
    "one tf.function": Case(
        "dispatch",
        run(CALLING, PYTHON, seen=replace(TENSORFLOW, eager=EAGER, called=CALLED)),
        1_300,  # of two kinds
        {
            "operators one by one": run(
                CALLING, seen=replace(TENSORFLOW, eager=(FUNCTION,), called=CALLED)
            ),
            "few functions": run(
                CALLING,
                seen=replace(TENSORFLOW, eager=(*EAGER, replace(FUNCTION, count=4)), called=CALLED),
            ),
            "calling them": run(DISPATCH, seen=replace(TENSORFLOW, eager=EAGER, called=CALLED)),
            "no trace": run(
                CALLING,
                seen=replace(
                    TENSORFLOW, eager=EAGER, called=CALLED, compiled=(Fact("XlaCompile", 1, 1),)
                ),
            ),
        },
    ),
    "Keras on cuDNN": Case(
        "dispatch",
        run(DISPATCH, device=0, seen=TENSORFLOW, ops=KERAS),
        None,
        {
            "Keras's cell": run(DISPATCH, device=0, seen=TENSORFLOW, ops=[op("rnn/Relu:Relu", 1)]),
            "a GPU": run(DISPATCH, seen=TENSORFLOW, ops=KERAS),
            "TensorFlow": run(DISPATCH, device=0, seen=TORCH, ops=KERAS),
        },
    ),
    "fuse the cell": Case(
        "matmul",
        run(MM, seen=TORCH, layers=[LAYER], ops=ops(aten__native_layer_norm=20)),
        None,
        {
            "one a time step": run(
                MM, seen=TORCH, layers=[LAYER], ops=ops(aten__native_layer_norm=2)
            ),
            "a loop": run(
                MM,
                seen=TORCH,
                layers=[{**LAYER, "form": "layer op"}],
                ops=ops(aten__native_layer_norm=20),
            ),
        },
    ),
    "pad at the end": Case(
        "dispatch",
        with_paths(TENSORFLOW, MASKED),
        None,
        {
            "choices in the loop": with_paths(
                TENSORFLOW, {**MASKED, "m/lstm/while/SelectV2_1:SelectV2": 3}
            ),
            "a recurrent layer's loop": with_paths(
                TENSORFLOW, {"m/decode/while/SelectV2:SelectV2": 40}
            ),
            "no layer in one op": with_paths(
                TENSORFLOW, MASKED, device=0, ops=[op("m/gru/CudnnRNNV3:CudnnRNNV3", 1)]
            ),
        },
    ),
    "Keras off its standard loop": Case(
        "dispatch",
        with_paths(TENSORFLOW, STANDARD, device=0),
        None,
        {
            "a GPU": with_paths(TENSORFLOW, STANDARD),
            "a layer of Keras": with_paths(
                TENSORFLOW, {"m/rnn/while/MatMul_1:MatMul": 40}, device=0
            ),
            "no op of cuDNN's": with_paths(
                TENSORFLOW, STANDARD, device=0, ops=[op("m/gru/CudnnRNNV3:CudnnRNNV3", 1)]
            ),
            "no mask": with_paths(
                TENSORFLOW, {**STANDARD, "m/lstm/while/SelectV2:SelectV2": 40}, device=0
            ),
            "no option that cuDNN lacks": with_paths(
                TENSORFLOW, {**STANDARD, "m/lstm/while/lstm_cell/Relu:Relu": 40}, device=0
            ),
        },
    ),
    "a layer op for Keras": Case(
        "dispatch",
        run(DISPATCH, device=0, seen=replace(TORCH, keras_frames=True)),
        None,
        {
            "Keras": run(DISPATCH, device=0, seen=TORCH),
            "a loop": run(
                DISPATCH,
                device=0,
                seen=replace(TORCH, keras_frames=True),
                ops=ops(aten___cudnn_rnn=1),
            ),
            "no mask": run(
                DISPATCH,
                device=0,
                seen=replace(TORCH, keras_frames=True),
                ops=ops(aten__where=40),
            ),
        },
    ),
    "cuDNN for JAX": Case(
        "dispatch",
        with_paths(JAX, FLAX, device=0),
        None,
        {
            "a GPU": with_paths(JAX, FLAX),
            "an LSTM": with_paths(JAX, {"jit(f)/while/body/closed_call/dot_general": 40}, device=0),
            "a loop over time steps": with_paths(JAX, {next(iter(FLAX)): 2}, device=0),
            "no op of cuDNN's": with_paths(JAX, FLAX, FUSED, device=0),
            "no layer of Keras": with_paths(
                JAX, {"jit(f)/jvp(lstm)/while/body/lstm_cell/dot_general": 40}, device=0
            ),
        },
    ),
    "gates together": Case(
        "dispatch",
        with_paths(JAX, APART, layers=[SEPARATE]),
        788,  # 35 of 40 ops of the loop go
        {
            "a matmul per gate": with_paths(JAX, APART, layers=[{**SEPARATE, "rung": None}]),
            "a CPU": with_paths(JAX, APART, device=0, layers=[SEPARATE]),
            "several per time step": with_paths(JAX, APART, layers=[{**SEPARATE, "calls": 8}]),
            "mostly dispatch": with_paths(JAX, APART, *[MM] * 4, layers=[SEPARATE]),
        },
    ),
    "unroll the loop": Case(
        "launch",
        series(seen=replace(JAX, gaps=SERIES, paths={"jit(f)/while/body/mul": 8})),
        700,
        {
            "a loop": series(seen=replace(JAX, gaps=SERIES, paths={"jit(f)/mul": 8})),
            "eight times": series(
                seen=replace(JAX, gaps=SERIES, paths={"jit(f)/while/body/mul": 7})
            ),
            "usual gaps": series(
                seen=replace(
                    JAX,
                    gaps=replace(SERIES, usual_ns=440),
                    paths={"jit(f)/while/body/mul": 8},
                )
            ),
        },
    ),
    "layer outside compiled code": Case(
        "matmul",
        run(MM, seen=replace(TORCH, unrolled=Unrolled("lstm", 16, "float"))),
        None,
        {
            "compiled code": run(MM, seen=TORCH),
            "faster on a CPU": run(MM, seen=replace(TORCH, unrolled=Unrolled("gru", 16, "float"))),
            "a type with an op": run(
                MM, seen=replace(TORCH, unrolled=Unrolled("lstm", 16, "double"))
            ),
        },
    ),
    "loop without the host": Case(
        "sync",
        run(SYNC, device=0, seen=replace(TORCH, read_in_compiled=17)),
        None,
        {
            "a GPU": run(SYNC, seen=replace(TORCH, read_in_compiled=17)),
            "eight values": run(SYNC, device=0, seen=replace(TORCH, read_in_compiled=7)),
        },
    ),
    "parallel form": Case(
        "dispatch",
        run(DISPATCH, seen=replace(TORCH, looped_module=("mLSTMCell", 256, 700))),
        700,
        {
            "a loop": run(DISPATCH, seen=TORCH),
            "a form for a CPU": run(
                DISPATCH, seen=replace(TORCH, looped_module=("Mamba", 256, 700))
            ),
            "launches on a GPU": run(
                DISPATCH, device=0, seen=replace(TORCH, looped_module=("mLSTMCell", 256, 700))
            ),
        },
    ),
    "no value in the loop": Case(
        "dispatch",
        run(DISPATCH, seen=replace(TORCH, asked_between=24), ops=ops(aten__lstm_cell=25)),
        None,
        {
            "cells": run(DISPATCH, seen=TORCH, ops=ops(aten__lstm=1, aten__item=25)),
            "between them": run(DISPATCH, seen=TORCH, ops=ops(aten__lstm_cell=25, aten__item=25)),
            "a value in each": run(
                DISPATCH, seen=replace(TORCH, asked_between=2), ops=ops(aten__lstm_cell=25)
            ),
        },
    ),
    "layer in one op": Case(
        "matmul",
        run(MM, facts=BY_HAND),
        None,
        {"cells": run(MM, facts=NN_LSTM), "a form": run(MM, seen=TORCH)},
    ),
    "nodes of a level together": Case(
        "dispatch",
        run(DISPATCH, facts=TREE, seen=TORCH, layers=[IN_TREES]),
        None,
        {
            "a function over trees": run(DISPATCH, seen=TORCH, layers=[IN_TREES]),
            "eight cells": run(
                DISPATCH, facts=TREE, seen=TORCH, layers=[{**IN_TREES, "calls": 1, "cells": 7}]
            ),
            "most of their time": run(
                DISPATCH, facts=TREE, seen=TORCH, layers=[{**IN_TREES, "forward_ns": 600}]
            ),
        },
    ),
    "input matmul before the loop": Case(
        "dispatch",
        run(DISPATCH, facts=BY_HAND, tally=MATMULS),
        None,
        {
            "matmuls of the inputs": run(DISPATCH, facts=BY_HAND, tally=tally(product=[9] * 42)),
            "a cell of one's own": run(DISPATCH, facts=NN_LSTM, tally=MATMULS),
            "a form": run(DISPATCH, facts={"workload": WORKLOAD}, seen=TORCH, tally=MATMULS),
            "half of the step": run(DISPATCH, replace(MM, ns=901), facts=BY_HAND, tally=MATMULS),
        },
    ),
    "Scan as a whole": Case(
        "dispatch",
        run(DISPATCH, seen=Seen(framework="pytensor"), ops=SCAN),
        None,
        {"Scan": run(DISPATCH, seen=Seen(framework="pytensor"), ops=SCAN[1:])},
    ),
    "do it once": Case(
        "matmul",
        run(replace(MM, count=6), facts=NN_LSTM),
        800,
        {
            "more calls": run(replace(MM, count=3), facts=NN_LSTM),
            "the same implementation": run(replace(MM, count=6), facts=BY_HAND),
        },
        fast=run(replace(MM, ns=100, count=3), facts=NN_LSTM),
    ),
    "unbind before the loop": Case(
        "elementwise",
        run(
            TANH,
            seen=replace(TORCH, selected=20, indexed=(INDEXED,)),
            ops=[op("aten::select_backward", 20)],
        ),
        300,
        {
            "a loop": run(
                TANH,
                seen=replace(TORCH, indexed=(INDEXED,)),
                ops=[op("aten::select_backward", 20)],
            ),
            "backward passes": run(TANH, seen=replace(TORCH, selected=20, indexed=(INDEXED,))),
        },
    ),
    "flatten_parameters": Case(
        "copy",
        run(COPY, seen=replace(TORCH, weights=(WEIGHTS,)), ops=[op("aten::_cudnn_rnn", 2)]),
        400,
        {
            "copies in the layer": run(COPY, seen=TORCH, ops=[op("aten::_cudnn_rnn", 2)]),
            "four a call": run(
                COPY, seen=replace(TORCH, weights=(WEIGHTS,)), ops=[op("aten::_cudnn_rnn", 8)]
            ),
        },
    ),
    "cast the layer's weights once": Case(
        "copy",
        run(COPY, seen=replace(TORCH, recast=(WEIGHTS,)), ops=[op("aten::_cudnn_rnn", 2)]),
        400,
        {
            "casts in the layer": run(COPY, seen=TORCH, ops=[op("aten::_cudnn_rnn", 2)]),
            "four a call": run(
                COPY, seen=replace(TORCH, recast=(WEIGHTS,)), ops=[op("aten::_cudnn_rnn", 8)]
            ),
        },
    ),
    "bfloat16 on cuDNN": Case(
        "matmul",
        run(MM, device=0, seen=TORCH, layers=[IN_BFLOAT16]),
        None,
        {
            "a GPU": run(MM, seen=TORCH, layers=[IN_BFLOAT16]),
            "bfloat16": run(MM, device=0, seen=TORCH, layers=[{**IN_BFLOAT16, "dtype": "float16"}]),
            "no library": run(
                MM, device=0, seen=TORCH, layers=[{**IN_BFLOAT16, "library": "cuDNN"}]
            ),
        },
    ),
    "flatten once": Case(
        "copy",
        run(COPY, seen=replace(TORCH, weights=(FLATTENED,))),
        400,
        {
            "its copies": run(
                COPY, seen=replace(TORCH, weights=(WEIGHTS,)), ops=[op("aten::_cudnn_rnn", 2)]
            )
        },
    ),
    "persistent kernels": Case(
        "matmul",
        run(GATES, device=0, facts={**NN_LSTM, "kernels_used": "cuDNN"}),
        900,
        {
            "cuDNN": run(GATES, device=0, facts=NN_LSTM),
            "a layer": run(MM, device=0, facts={**NN_LSTM, "kernels_used": "cuDNN"}),
            "standard kernels": run(
                replace(GATES, name="persist", family="persistent"),
                device=0,
                facts={**NN_LSTM, "kernels_used": "cuDNN"},
            ),
            "a large layer": run(
                GATES,
                device=0,
                facts={
                    **NN_LSTM,
                    "kernels_used": "cuDNN",
                    "workload": {**WORKLOAD, "hidden": 128},
                    "device_facts": A100,
                },
            ),
        },
    ),
    "cells instead of MIOpen": Case(
        "matmul",
        run(GATES, device=0, seen=TORCH, ops=ops(aten__miopen_rnn=1)),
        None,
        {
            "its op": run(GATES, device=0, seen=TORCH),
            "a GPU": run(GATES, seen=TORCH, ops=ops(aten__miopen_rnn=1)),
            "a kernel per time step": run(
                GATES,
                device=0,
                seen=TORCH,
                ops=ops(aten__miopen_rnn=1),
                layers=[{**LAYER, "library": "MIOpen", "kernels_per_time_step": 0.2}],
            ),
        },
    ),
    "pad instead of pack": Case(
        "matmul",
        run(MM, seen=replace(TORCH, packed=(CALLS,))),
        600,
        {
            "packing": run(MM, seen=TORCH),
            "a CPU": run(MM, seen=replace(TORCH, packed=(CALLS,)), device=0),
            "a size that matters": run(MM, seen=replace(TORCH, packed=(replace(CALLS, ns=40),))),
        },
    ),
    "batch the sequences": Case(
        "matmul",
        run(MM, seen=replace(TORCH, one_by_one=(CALLS,))),
        600,
        {"such calls": run(MM, seen=TORCH)},
    ),
    "slice at once": Case(
        "elementwise",
        run(TANH, seen=replace(TORCH, sliced=(NODE,))),
        300,
        {"slices": run(TANH, seen=TORCH)},
    ),
    "time first": Case(
        "copy",
        run(COPY, seen=replace(TORCH, relaid=(RELAID,))),
        700,
        {"copies of a layer": run(COPY, seen=TORCH)},
    ),
    "no gradient hooks": Case(
        "dispatch",
        run(DISPATCH, seen=replace(TORCH, hooked=(NODE,))),
        300,
        {"hooks": run(DISPATCH, seen=TORCH)},
    ),
    "compute once": Case(
        "matmul",
        run(MM, seen=replace(TORCH, recomputed=(CALLS,))),
        600,
        {"ops in the backward pass": run(MM, seen=TORCH)},
    ),
    "no TorchScript": Case(
        "elementwise",
        run(TANH, seen=replace(TORCH, scripted=(NODE,))),
        300,
        {"its graphs": run(TANH, seen=TORCH)},
    ),
    "whole sequence in one call": Case(
        "matmul",
        run(MM, seen=TORCH, layers=[ONE_STEP]),
        600,  # 20 calls with a backward pass each
        {
            "one time step": run(MM, seen=TORCH, layers=[{**ONE_STEP, "time_steps": 20}]),
            "eight calls": run(MM, seen=TORCH, layers=[{**ONE_STEP, "calls": 7}]),
            "sixteen, if unknown": run(
                MM, seen=TORCH, layers=[{**ONE_STEP, "time_steps": None, "calls": 15}]
            ),
            "no layer of Keras": run(MM, seen=replace(TORCH, keras_frames=True), layers=[ONE_STEP]),
        },
    ),
    "CUDA graph": Case(
        "launch",
        series(),
        700,
        {
            "many kernels": series(seen=with_gaps(kernels=9)),
            "kernels shorter than gaps": series(seen=with_gaps(kernel_ns=8)),
            "usual gaps": series(seen=with_gaps(usual_ns=440)),
            "no long call": series(contributor("idle", "launch call", 600, "cudaLaunchKernel")),
            "no graph": series(seen=replace(with_gaps(), graph=True)),
            "few values asked for": series(
                seen=replace(with_gaps(), read=(Fact("aten::item", 9, 10),))
            ),
            "no size asked for": series(ops=ops(aten__nonzero=1)),
            "no tracing": series(seen=replace(with_gaps(), compiled=(Fact("compile_fx", 1, 1),))),
            "one shape": series(seen=replace(with_gaps(), shapes=SHAPES)),
            "no communication": series(NCCL),
            "no CTC": series(facts={"workload": {"loss": "ctc"}}),
            "one length": series(facts={"workload": {"variable_length": True}}),
            "no graph of ours": series(facts={"cuda_graph": True}),
            "PyTorch": series(seen=replace(with_gaps(), framework=None)),
        },
    ),
    "XLA": Case(
        "launch",
        series(seen=replace(TENSORFLOW, gaps=SERIES)),
        700,
        {
            "a series of launches": series(seen=TENSORFLOW),
            "ops that XLA takes": series(
                seen=replace(TENSORFLOW, gaps=SERIES), ops=[op("a/CTCLoss:CTCLoss", 1)]
            ),
            "no tracing": series(
                seen=replace(TENSORFLOW, gaps=SERIES, compiled=(Fact("graph_building", 1, 1),))
            ),
            "nothing compiled": series(
                seen=replace(TENSORFLOW, gaps=SERIES), kernels=[kernels("pointwise", 9, "fusion_2")]
            ),
        },
    ),
    "fused cell": Case(
        "elementwise",
        run(TANH, device=0, facts=BY_HAND, tally=tally(pointwise=[9] * 100)),
        None,
        {
            "five ops": run(TANH, device=0, facts=BY_HAND, tally=tally(pointwise=[9] * 80)),
            "a cell by hand": run(TANH, device=0, facts=NN_LSTM, tally=tally(pointwise=[9] * 100)),
            "a GPU": run(TANH, facts=BY_HAND, tally=tally(pointwise=[9] * 100)),
        },
    ),
    "torch.compile": Case(
        "launch",
        series(),
        350,
        {
            "half of them element by element": series(
                tally=tally(kernel=[2] * 100, pointwise=[2] * 49)
            ),
            "nothing compiled": series(kernels=[kernels("pointwise", 50, "triton_poi_0")]),
            "nothing compiled, by an op": series(ops=[op("Torch-Compiled Region: 0/0", 1)]),
            "a series of launches": series(seen=TORCH),
        },
    ),
    "fused optimizer": Case(
        "launch",
        series(kernels=UPDATES, ops=ADAM),
        280,
        {
            "ten kernels": series(kernels=[kernels("optimizer", 9), kernels("gemm", 91)], ops=ADAM),
            "not fused": series(kernels=UPDATES, ops=[*ADAM, op("aten::_fused_adam_", 1)]),
            "a fused form": series(kernels=UPDATES, ops=[op("Optimizer.step#RMSprop.step", 1)]),
            "a known optimizer": series(kernels=UPDATES),
            "a series of launches": series(kernels=UPDATES, ops=ADAM, seen=TORCH),
            "of most rows": series(
                kernels=UPDATES,
                ops=ADAM,
                seen=replace(with_gaps(), dense_tables=(DenseTable(100, 10, 140),)),
            ),
        },
    ),
    "compute on the device": Case(
        "CPU op",
        run(ON_CPU, device=0, seen=TORCH),
        ON_CPU.ns,
        {"on the CPU": run(replace(ON_CPU, on_cpu=False), device=0, seen=TORCH)},
    ),
    "ask for no value": Case(
        "sync",
        run(SYNC, device=0, seen=replace(TORCH, read=(READ,))),
        600,
        {
            "waiting in an op that reads": run(
                SYNC, device=0, seen=replace(TORCH, blocking_calls=(ITEM,))
            )
        },
    ),
    "ask for no size": Case(
        "sync",
        run(SYNC, device=0, seen=replace(TORCH, blocking_calls=(SIZED,))),
        600,
        {"such an op": run(SYNC, device=0, seen=replace(TORCH, blocking_calls=(ITEM,)))},
    ),
    "synchronise once": Case(
        "sync",
        run(SYNC, device=0, seen=replace(TORCH, blocking_calls=(DEVICE,))),
        600,
        {
            "more than one": run(
                SYNC, device=0, seen=replace(TORCH, blocking_calls=(replace(DEVICE, count=1),))
            ),
            "the whole device": run(SYNC, device=0, seen=replace(TORCH, blocking_calls=(ITEM,))),
        },
    ),
    "pin memory": Case(
        "copy",
        run(COPY, device=0, seen=TORCH, copies=copies("pageable")),
        900,
        {
            "pageable": run(COPY, device=0, seen=TORCH, copies=copies("pinned")),
            "a size that matters": run(COPY, device=0, seen=TORCH, copies=copies("pageable", 40)),
        },
    ),
    "float32 without tensor cores": Case(
        "matmul",
        run(MM, device=0, seen=replace(TORCH, half_products=(HALF,)), facts={"device_facts": P100}),
        None,
        {
            "half precision": run(MM, device=0, seen=TORCH, facts={"device_facts": P100}),
            "such a GPU": run(
                MM, device=0, seen=replace(TORCH, half_products=(HALF,)), facts=ON_A100
            ),
        },
    ),
    "multiples of 8": Case(
        "matmul",
        run(MM, device=0, seen=replace(TORCH, half_products=(HALF,)), facts=ON_A100),
        700,
        {
            "an odd size": run(
                MM, device=0, seen=replace(TORCH, half_products=(EVEN,)), facts=ON_A100
            ),
            "no tensor cores": run(
                MM, device=0, seen=replace(TORCH, half_products=(TENSOR,)), facts=ON_A100
            ),
            "a GPU that has them": run(
                MM,
                device=0,
                seen=replace(TORCH, half_products=(HALF,)),
                facts={"device_facts": P100},
            ),
        },
    ),
    "cast once before the loop": Case(
        "cast",
        run(CAST, facts={**OURS, "precision": "amp-bf16"}, casts=casts()),
        855,
        {
            "autocast": run(CAST, facts=OURS, casts=casts()),
            "every time step": run(CAST, facts={**OURS, "precision": "amp-bf16"}, casts=casts(19)),
        },
    ),
    "keep one type": Case(
        "cast",
        run(CAST, seen=TORCH, casts=casts()),
        900,
        {
            "a known op": run(CAST, seen=TORCH),
            "a size that matters": run(CAST, seen=TORCH, casts=casts(ns=40)),
        },
    ),
    "channels last": Case(
        "copy",
        run(COPY, device=0, seen=TORCH, kernels=[kernels("layout", 4, "nchwToNhwcKernel", 500)]),
        500,
        {
            "such kernels": run(COPY, device=0, seen=TORCH, kernels=[kernels("layout", 4)]),
            "a size that matters": run(
                COPY, device=0, seen=TORCH, kernels=[kernels("layout", 4, "nchwToNhwcKernel", 40)]
            ),
        },
    ),
    "keep the layout": Case(
        "copy",
        run(COPY, device=0, seen=replace(TORCH, moved=(MOVED,))),
        700,
        {
            "a copy that was asked for": run(
                COPY, device=0, seen=replace(TORCH, moved=(replace(MOVED, within="aten::cat"),))
            ),
            "of no recurrent layer": run(
                COPY, device=0, seen=replace(TORCH, moved=(MOVED,), relaid=(RELAID,))
            ),
            "an op": run(COPY, device=0, seen=replace(TORCH, moved=(replace(MOVED, within=None),))),
        },
    ),
    "workers": Case(
        "input",
        run(INPUT, seen=TORCH, ops=[op(SINGLE_LOADER, 1)]),
        9_000_000,
        {
            "a loader": run(INPUT, seen=TORCH),
            "more than handing over takes": run(
                replace(INPUT, ns=1_000_000), seen=TORCH, ops=[op(SINGLE_LOADER, 1)]
            ),
        },
    ),
    "prefetch": Case(
        "input",
        run(INPUT, seen=TENSORFLOW, ops=[op("IteratorGetNext:IteratorGetNext", 1)]),
        9_000_000,
        {
            "a dataset": run(INPUT, seen=TENSORFLOW),
            "TensorFlow": run(INPUT, seen=TORCH, ops=[op("IteratorGetNext:IteratorGetNext", 1)]),
        },
    ),
    "input beside the step": Case(
        "input",
        run(INPUT, seen=TORCH),
        9_000_000,
        {
            "no loader": run(INPUT, seen=TORCH, ops=[op(WORKERS, 1)]),
            "a program of the user's": run(INPUT, facts=NN_LSTM),
        },
    ),
    "event sooner": Case(
        "queued",
        run(QUEUED, device=0, seen=replace(TORCH, queued=(WAIT,))),
        500,
        {
            "a wait": run(QUEUED, device=0, seen=TORCH),
            "a known wait": run(
                QUEUED, device=0, seen=replace(TORCH, queued=(replace(WAIT, within=None),))
            ),
        },
    ),
    "launch ahead": Case(
        "queued",
        run(
            QUEUED, device=0, seen=replace(TORCH, run_dry=(Fact("cudaStreamSynchronize", 800, 9),))
        ),
        800,
        {
            "several calls": run(
                QUEUED,
                device=0,
                seen=replace(TORCH, run_dry=(Fact("cudaEventSynchronize", 800, 1),)),
            ),
        },
    ),
    "fuse elementwise ops": Case(
        "elementwise",
        run(TANH, device=0, seen=TORCH, tally=tally(pointwise=[9] * 100)),
        900,
        {
            "ten of them": run(TANH, device=0, seen=TORCH, tally=tally(pointwise=[9] * 9)),
            "a GPU": run(TANH, seen=TORCH, tally=tally(pointwise=[9] * 100)),
            "nothing compiled": run(
                TANH,
                device=0,
                seen=TORCH,
                tally=tally(pointwise=[9] * 100),
                kernels=[kernels("pointwise", 50, "triton_poi_0")],
            ),
        },
    ),
    "record frames": Case(
        "Python",
        run(replace(PYTHON, name="ProfilerStep"), device=0, seen=TORCH),
        None,
        {
            "a GPU": run(replace(PYTHON, name="ProfilerStep"), seen=TORCH),
            "no frames": run(
                replace(PYTHON, name="ProfilerStep"),
                replace(PYTHON, ns=1, name="train.py(9): load"),
                device=0,
                seen=TORCH,
            ),
        },
    ),
    **{
        name: Case(
            "dispatch",
            run(DISPATCH, seen=TORCH, layers=[off_library(**facts)]),
            900,
            {
                "the reason": run(DISPATCH, seen=TORCH, layers=[off_library()]),
                "no library": run(
                    DISPATCH, seen=TORCH, layers=[off_library(library="oneDNN", **facts)]
                ),
                "a CPU": run(DISPATCH, device=0, seen=TORCH, layers=[off_library(**facts)]),
            },
        )
        for name, facts in (
            ("float32", {"dtype": "float64"}),
            ("float32 instead of bfloat16", {"dtype": "bfloat16"}),
            ("project afterwards", {"projection": 16}),
            ("LSTM on a CPU", {"cell": "gru"}),
        )
    },
    "sparse gradient": Case(
        "matmul",
        run(MM, seen=replace(TORCH, dense_tables=(DenseTable(100, 10, 500),))),
        450,
        {
            "few rows": run(MM, seen=replace(TORCH, dense_tables=(DenseTable(100, 30, 500),))),
            "a dense gradient": run(MM, seen=TORCH),
        },
    ),
    "detach the state": Case(
        "matmul",
        run(MM, seen=replace(TORCH, growing=Growing(44, 84, 500))),
        500,
        {"grows": run(MM, seen=TORCH)},
    ),
    "wait beside the step": Case(
        "waiting",
        run(replace(PYTHON, name=None, part="waiting")),
        900,
        {"waits": run(PYTHON)},
    ),
    "look inside": Case(
        "Python",
        run(PYTHON, seen=TORCH),
        900,
        {
            "a name": run(replace(PYTHON, name=None), seen=TORCH),
            "no step marker": run(replace(PYTHON, name="ProfilerStep"), seen=TORCH),
            "no phase": run(replace(PYTHON, name="forward"), seen=TORCH),
            "not the framework's": run(replace(PYTHON, name="Optimizer.step#SGD.step")),
            "no wait": run(replace(PYTHON, name="$api.py:3165 try_to_block"), seen=JAX),
            "none of Inductor": run(
                replace(PYTHON, name="/tmp/torchinductor_x/ab/cab.py(9): call"), seen=TORCH
            ),
            "none of the profiler": run(replace(PYTHON, name="$profiler.py:1 stop_trace")),
        },
    ),
    "TF32": Case(
        "matmul",
        run(MM, device=0, seen=TORCH, kernels=[kernels("gemm", 9, "ampere_sgemm_128x64_tn", 700)]),
        612,  # tensor cores are at most eight times as fast
        {
            "float32 products": run(
                MM,
                device=0,
                seen=TORCH,
                kernels=[kernels("gemm", 9, "ampere_fp16_s16816gemm", 700)],
            ),
            "such a GPU": run(
                MM, device=0, seen=TORCH, kernels=[kernels("gemm", 9, "volta_sgemm_128x64", 700)]
            ),
            "TF32 off": run(
                MM,
                device=0,
                facts={**NN_LSTM, "tf32": True},
                kernels=[kernels("gemm", 9, "ampere_sgemm_128x64_tn", 700)],
            ),
        },
    ),
    "cuDNN's CTC": Case(
        "CTC",
        run(CTC_KERNEL, device=0, seen=TORCH),
        900,
        {"PyTorch's kernels": run(replace(CTC_KERNEL, name="ctcAlpha"), device=0, seen=TORCH)},
    ),
    "allocate once": Case(
        "allocation",
        run(ALLOC, device=0, seen=replace(TORCH, later_allocs=(LATER,))),
        400,
        {"warm steps": run(ALLOC, device=0, seen=TORCH)},
    ),
    "even out the ranks": Case(
        "communication",
        run(NCCL, device=0, straggler=straggler(800)),
        800,
        {
            "a late rank": run(NCCL, device=0),
            "a wait for it": run(NCCL, device=0, straggler=straggler(0)),
            "one late rank": run(NCCL, device=0, straggler=replace(straggler(800), state="none")),
        },
    ),
    "group by length": Case(
        "communication",
        run(NCCL, device=0, straggler=replace(straggler(800), state="none", moves=True)),
        800,
        {
            "ranks that take turns": run(
                NCCL, device=0, straggler=replace(straggler(800), state="none")
            ),
            "waits": run(NCCL, device=0, straggler=replace(straggler(0), state="none", moves=True)),
        },
    ),
    "overlap communication": Case(
        "communication",
        run(NCCL, replace(MM, ns=300), device=0, seen=TORCH),
        300,
        {
            "work beside it": run(NCCL, device=0, seen=TORCH),
            "enough of it": run(NCCL, replace(MM, ns=30), device=0, seen=TORCH),
        },
    ),
    "keep it compiled": Case(
        "dispatch",
        run(CALLING, facts=GAVE_UP, seen=TORCH, ops=[LOOKS]),
        None,
        {
            "a limit": run(CALLING, facts=AGAIN, seen=TORCH, ops=[LOOKS]),
            "no compiled code": run(
                CALLING, facts=GAVE_UP, seen=TORCH, ops=[LOOKS, op("Torch-Compiled Region: 0/1", 1)]
            ),
            "a call of the function": run(CALLING, facts=GAVE_UP, seen=TORCH),
        },
    ),
    "no anomaly mode": Case(
        "elementwise",
        run(TANH, seen=TORCH, ops=GRADIENTS),
        None,
        {
            "every node": run(TANH, seen=TORCH, ops=[GRADIENTS[0], op("aten::isnan", 29, 400)]),
            "a backward pass": run(TANH, seen=TORCH, ops=GRADIENTS[1:]),
        },
    ),
    "keep data on the GPU": Case(
        "copy",
        run(TRANSFER, device=0, seen=TORCH, copies=moved("pinned")),
        900,
        {
            "a GPU": run(TRANSFER, seen=TORCH, copies=moved("pinned")),
            "not pageable": run(TRANSFER, device=0, seen=TORCH, copies=moved("pageable")),
            "most of the copies": run(
                TRANSFER, COPY, COPY, device=0, seen=TORCH, copies=moved("pinned")
            ),
        },
    ),
    "no debugging settings": Case(
        "matmul",
        run(MM, SYNC, device=0, seen=replace(TORCH, blocking_launches=20)),
        900,
        {
            "launches that wait": run(MM, SYNC, device=0, seen=TORCH),
            "a setting that slows": run(
                MM, device=0, seen=TORCH, facts={"settings": {"environment": {"LD_PRELOAD": "x"}}}
            ),
        },
    ),
    "leave memory unfilled": Case(
        "dispatch",
        run(DISPATCH, seen=replace(TORCH, filled=(FILLED,))),
        300,
        {"filling": run(DISPATCH, seen=TORCH)},
    ),
    "larger batch": Case(
        "launch",
        series(seen=replace(Seen(), gaps=SERIES)),
        None,
        {
            "kernels shorter than gaps": series(seen=Seen(gaps=replace(SERIES, kernel_ns=8))),
            "usual gaps": series(seen=Seen(gaps=replace(SERIES, usual_ns=440))),
            "no long call": series(
                contributor("idle", "alloc", 600, "cudaMalloc"), seen=Seen(gaps=SERIES)
            ),
            "no graph": series(seen=Seen(gaps=SERIES, graph=True)),
        },
    ),
    "fill the GPU": Case(
        "matmul",
        run(MM, device=0, seen=Seen(small=GRIDS)),
        None,
        {
            "half of the time": run(
                MM, device=0, seen=Seen(small=(GRIDS[0], replace(GRIDS[1], ns=49)))
            ),
            "half of the multiprocessors": run(
                MM, device=0, seen=Seen(small=(GRIDS[0], replace(GRIDS[1], blocks=67)))
            ),
            "of this kind": run(
                MM, device=0, seen=Seen(small=(GRIDS[0], replace(GRIDS[1], category="optimizer")))
            ),
        },
    ),
    "as many threads as CPUs": Case(
        "matmul",
        run(MM, facts={**NN_LSTM, "affinity": [0, 1], "settings": {"intra_op_threads": 8}}),
        None,
        {
            "more threads": run(
                MM, facts={**NN_LSTM, "affinity": [0, 1], "settings": {"intra_op_threads": 2}}
            ),
            "known CPUs": run(MM, facts={**NN_LSTM, "settings": {"intra_op_threads": 8}}),
            "a CPU": run(
                MM,
                device=0,
                facts={**NN_LSTM, "affinity": [0, 1], "settings": {"intra_op_threads": 8}},
            ),
        },
    ),
    "flush denormals": Case(
        "slower calls",
        run(MM, facts={**NN_LSTM, "denormals_flushed": False}),
        None,
        {
            "not flushed": run(MM, facts={**NN_LSTM, "denormals_flushed": True}),
            "known": run(MM, facts=NN_LSTM),
            "a CPU": run(MM, device=0, facts={**NN_LSTM, "denormals_flushed": False}),
        },
        fast=run(replace(MM, ns=300), facts={**NN_LSTM, "denormals_flushed": True}),
    ),
    "settings of the faster run": Case(
        "slower calls",
        run(MM, facts={**NN_LSTM, "settings": {"onednn": False}}),
        None,
        {
            "differs": run(MM, facts={**NN_LSTM, "settings": {"onednn": True}}),
            "known": run(MM, facts=NN_LSTM),
            "of no other remedy": run(MM, facts={**NN_LSTM, "settings": {"anomaly_mode": True}}),
        },
        fast=run(
            replace(MM, ns=300),
            facts={**NN_LSTM, "settings": {"onednn": True, "anomaly_mode": False}},
        ),
    ),
}


def test_every_row_has_a_case_and_a_fact_without_which_it_does_not_match() -> None:
    assert {remedy.name for remedy in TABLE} == CASES.keys()
    assert all(case.lacking for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_advised_under_its_condition(name: str) -> None:
    case, row = CASES[name], next(r for r in TABLE if r.name == name)
    given = the(name, case.kind, case.slow, case.fast)
    assert given.saves_ns == case.saves_ns
    assert given.condition == row.condition
    assert given.source in row.sources
    assert given.framework == (case.slow.framework if row.frameworks else None)
    assert ("saves" not in NOTES.get(name, {})) <= (given.saves_ns is None)


@pytest.mark.parametrize(
    ("name", "fact"), [(name, fact) for name, case in CASES.items() for fact in case.lacking]
)
def test_a_row_does_not_match_if_one_fact_is_missing(name: str, fact: str) -> None:
    case = CASES[name]
    assert name not in names(case.kind, case.lacking[fact], case.fast)


@pytest.mark.parametrize("name", [r.name for r in TABLE if r.frameworks])
def test_a_row_of_a_framework_is_for_no_other(name: str) -> None:
    case = CASES[name]
    for framework in (None, "mxnet"):
        info = replace_framework(case.slow, framework)
        assert name not in names(case.kind, info, case.fast)


@pytest.mark.parametrize(
    ("name", "framework", "site"),
    [
        ("keep one type", "torch", "docs.pytorch.org"),
        ("keep one type", "tensorflow", "www.tensorflow.org"),
        ("keep one type", "jax", "docs.jax.dev"),
        ("keep one type", None, "docs.pytorch.org"),
        ("trace once", "torch", "docs.pytorch.org"),
        ("trace once", "jax", "docs.jax.dev"),
        ("allocate once", "tensorflow", "www.tensorflow.org"),
        ("larger batch", "jax", "github.com/keras-team"),
    ],
)
def test_a_row_for_any_framework_cites_the_one_at_hand(
    name: str, framework: str | None, site: str
) -> None:
    case = CASES[name]
    slow = replace_framework(case.slow, framework)
    assert the(name, case.kind, slow, case.fast).source.startswith(f"https://{site}/")


def test_a_larger_batch_for_a_gpu_that_is_not_filled_is_no_reason_between_two_runs() -> None:
    slow = run(MM, device=0, seen=Seen(small=GRIDS))
    seen = the("fill the GPU", "matmul", slow).seen
    assert "66 thread blocks" in seen
    assert "132 multiprocessors" in seen
    fast = run(replace(MM, ns=90), device=0)
    assert "fill the GPU" not in names("matmul", slow, fast)


def replace_framework(slow: StepProfile, framework: str | None) -> StepProfile:
    info = msgspec.structs.replace(slow.info, framework=None)
    return replace(slow, info=info, seen=replace(slow.seen, framework=framework))


#: Words of a catalogue that nobody can read: fronted conditions, and "what" for a noun.
UNCLEAR = re.compile(r"(?i)^(?:where|of|what|from|in)\b|\b(?:of which|what \w+s out|such as are)\b")


def test_every_row_is_for_kinds_that_exist_and_says_all_of_itself() -> None:
    for row in TABLE:
        assert set(row.kinds) <= set(causes.KINDS)
        assert row.condition
        assert not UNCLEAR.search(row.cause)
        assert not UNCLEAR.search(row.fix)
        assert len(row.fix) <= 100
        assert all(source.startswith("https://") for source in row.sources)
        assert row.sources
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert NOTES.keys() <= {row.name for row in TABLE}


def test_a_fix_that_saves_too_little_is_not_advised() -> None:
    for ns, fits in ((50, True), (49, False)):
        slow = run(COPY, contributor("busy", "gemm", 100, "mm"), device=0, seen=TORCH,
                   copies=copies("pageable", ns))  # fmt: skip
        assert ("pin memory" in names("copy", slow)) == fits


def test_a_fix_saves_no_more_than_its_finding_takes() -> None:
    slow = run(COPY, device=0, seen=TORCH, copies=copies("pageable", 5_000))
    assert [a.saves_ns for a in advice("copy", slow)] == [900]


# Two runs of one implementation: what both have is no reason why one of them is slower.


def test_twins_get_no_advice_on_what_both_do() -> None:
    slow, fast = (
        run(replace(MM, ns=ns), facts=BY_HAND, tally=MATMULS, device=0) for ns in (900, 300)
    )
    assert names("matmul", slow, fast) == set()
    other = run(replace(FUSED, ns=300), facts=NN_LSTM, device=0)
    expected = {"layer in one op", "input matmul before the loop"}
    assert expected <= names("matmul", slow, other)


def test_a_graph_is_advised_by_an_option_of_lstmprof_for_its_own_rows() -> None:
    assert "--cuda-graph" in the("CUDA graph", "launch", series(facts=NN_LSTM)).fix
    assert "torch.compile" in the("CUDA graph", "launch", series()).fix


@pytest.mark.parametrize(("others_ns", "fits"), [(800, True), (801, False)])
def test_small_programs_are_worth_a_jit_where_they_are_half_of_a_hosts_dispatch(
    others_ns: int, fits: bool
) -> None:
    dispatch = [replace(DISPATCH, ns=800), replace(DISPATCH, ns=others_ns, name="f")]
    called = (replace(SMALL[0], ns=700), replace(SMALL[1], ns=600))
    slow = run(*dispatch, seen=replace(JAX, programs=SMALL, called=called))
    assert ("jit the whole" in names("dispatch", slow)) == fits


@pytest.mark.parametrize(("step_ns", "is_whole"), [(5_000, True), (5, False)])
def test_small_programs_beside_a_jitted_step_are_to_move_into_it(
    step_ns: int, is_whole: bool
) -> None:
    """The step is one program already, and a data loader calls the others; a helper is no step."""
    step = Fact("PjitFunction(train_step)", step_ns, 1)
    called = (step, replace(SMALL[0], ns=700), replace(SMALL[1], ns=600))
    slow = run(replace(DISPATCH, ns=800), seen=replace(JAX, programs=(step, *SMALL), called=called))
    advice = the("jit the whole", "dispatch", slow)
    assert ("jax.jit around" not in advice.fix) == is_whole
    assert ("train_step" in advice.fix) == is_whole
    assert advice.cause.endswith("train_step") == is_whole


def test_gates_with_a_path_each_save_as_much_as_gates_with_one_path() -> None:
    cell = "jit(f)/jvp(RNN_0)/while/body/closed_call/LSTMCell_0"
    paths = {f"{cell}/{side}{gate}/dot_general": 5 for side in "ih" for gate in "ifgo"}
    case = CASES["gates together"]
    given = the("gates together", case.kind, with_paths(JAX, paths, layers=[SEPARATE]))
    assert given.saves_ns == case.saves_ns


def test_on_a_device_small_programs_are_weighed_by_their_launches_alone() -> None:
    seen = replace(JAX, gaps=SERIES, programs=tuple(replace(p, ns=1) for p in SMALL))
    assert "jit the whole" in names("dispatch", series(replace(DISPATCH, ns=100), seen=seen))


def test_twins_get_advice_on_a_setting_that_differs() -> None:
    slow, fast = (
        run(
            replace(LAUNCH, ns=ns),
            device=0,
            facts={**NN_LSTM, "cuda_graph": graph},
            seen=with_gaps(),
        )
        for ns, graph in ((900, False), (300, True))
    )
    assert names("launch", slow, fast) >= {"CUDA graph"}
    both = replace(fast, info=slow.info)
    assert "CUDA graph" in names("launch", slow, replace(both, seen=Seen()))
    assert "CUDA graph" not in names("launch", slow, both)


def test_more_threads_than_cpus_are_named_though_the_faster_has_as_many() -> None:
    crowd = {"affinity": [0, 1], "settings": {"intra_op_threads": 8}}
    slow, fast = run(MM, facts={**BY_HAND, **crowd}), run(FUSED, facts={**NN_LSTM, **crowd})
    seen = the("as many threads as CPUs", "matmul", slow, fast).seen
    assert "8 threads" in seen
    assert "2 CPUs" in seen


def test_of_twins_only_what_the_slower_has_more_of_is_saved() -> None:
    def casting(count: int, ns: int) -> StepProfile:
        return run(
            replace(CAST, ns=ns, count=count),
            replace(MM, ns=900),
            facts=NN_LSTM,
            casts=casts(count, ns),
        )

    slow = casting(60, 700)
    expected = [("do it once", 680), ("keep one type", 680)]
    assert [(a.name, a.saves_ns) for a in advice("cast", slow, casting(30, 20))] == expected
    assert names("cast", slow, casting(30, 200)) == {"do it once"}


def test_profiles_of_unknown_origin_are_taken_for_twins() -> None:
    slow, fast = (
        run(replace(MM, ns=ns), seen=TORCH, ops=ops(aten__lstm_cell=9)) for ns in (900, 300)
    )
    assert names("matmul", slow, fast) == set()
    assert "layer in one op" in names("matmul", slow, replace(fast, tables={}))


def test_what_the_same_implementation_does_more_often_is_named() -> None:
    case = CASES["do it once"]
    seen = the("do it once", case.kind, case.slow, case.fast).seen
    assert seen.startswith("aten::mm runs 6 times per step")
    unknown = [profile(*one.contributors, facts={}) for one in (case.slow, case.fast) if one]
    assert "do it once" not in names("matmul", *unknown)


# What is said, and to whom.


def test_a_hand_written_cell_gets_the_layer_in_one_op_and_one_matmul_of_all_inputs() -> None:
    slow = run(MM, facts=BY_HAND, tally=MATMULS, device=0)
    fast = run(FUSED, facts=NN_LSTM, device=0)
    layer = the("layer in one op", "matmul", slow, fast)
    assert layer.implementation == "torch-nn-lstm"
    assert "torch.nn.LSTM" in layer.fix
    seen = the("input matmul before the loop", "matmul", slow, fast).seen
    assert seen.startswith("5.1 matmuls per time step, but only 2")
    alone = run(MM, facts={**BY_HAND, "mode": "forward"}, tally=MATMULS, device=0)
    assert "only 1" in the("input matmul before the loop", "matmul", alone).seen


@pytest.mark.parametrize("name", ["theano::for{cpu,l0}", "theano::forall_inplace,cpu,l0}"])
def test_a_loop_of_theano_gets_pytensor_and_no_mode_that_theano_lacks(name: str) -> None:
    calls = [op(name, 2), op("theano::Dot22", 80)]
    slow = run(DISPATCH, seen=Seen(framework="theano"), ops=calls)
    given = the("Scan as a whole", "dispatch", slow)
    assert "2 times" in given.seen
    assert "PyTensor" in given.fix
    assert "JAX" not in given.fix


@pytest.mark.parametrize(
    ("name", "device", "form", "advised"),
    [
        ("torch-lstmcell-fused", None, "cell op", True),
        ("torch-nn-lstm", None, "layer op", False),
        ("tf-lstmblockcell", 0, "cell op", True),
        ("tf1-lstmblockcell", 0, "cell op", True),
        ("tf1-lstmblockcell", None, "cell op", False),
        ("keras-lstm", None, "loop", False),
        ("keras-lstm", 0, "layer op", False),
    ],
)
def test_one_op_a_layer_is_advised_to_rows_that_run_cells_if_it_is_faster(
    name: str, device: int | None, form: str, advised: bool
) -> None:
    facts = {**OURS, "framework": implementations.find(name).framework, "implementation": name}
    slow = run(MM, facts=facts, device=device)
    assert cells.form_of(slow) == form
    assert ("layer in one op" in names("matmul", slow)) == advised


@pytest.mark.parametrize(
    ("slow", "fast", "row"),
    [
        (TF_BY_HAND, "tf-lstmblockfusedcell", "layer in one op"),
        ({**BY_HAND, "workload": {**WORKLOAD, "cell": "gru"}}, "torch-nn-lstm", "layer in one op"),
        (BY_HAND, "torch-compile", "fused cell"),
    ],
)
def test_what_is_no_faster_on_a_cpu_in_general_is_advised_only_beside_a_faster_run(
    slow: dict[str, Any], fast: str, row: str
) -> None:
    counts = tally(pointwise=[9] * 100)
    one = run(TANH, facts=slow, tally=counts)
    faster = run(replace(TANH, ns=90), facts={**slow, "implementation": fast}, tally=counts)
    other = run(replace(TANH, ns=90), facts={**slow, "implementation": "torch-haste"})
    assert the(row, "elementwise", one, faster).implementation == fast
    assert row not in names("elementwise", one, other)
    assert row not in names("elementwise", one)


def test_the_rows_that_are_advised_run_a_layer_in_one_op_there() -> None:
    for (framework, where), (name, _, _) in cells._ONE_OP.items():
        row = implementations.find(name)
        assert (row.framework, row.form_on(where)) == (framework, "layer op")
        assert where not in row.refusals()


def test_the_form_of_a_profile_made_elsewhere_is_in_its_ops() -> None:
    def with_op(name: str) -> StepProfile:
        return run(MM, seen=TORCH, ops=[op("aten::mm", 9), op(name, 9)])

    by_cell = with_op("aten::lstm_cell")
    given = the("layer in one op", "matmul", by_cell)
    assert "unless an input depends on an earlier output" in given.fix
    assert given.implementation is None
    in_loop = with_op("forward/rnn/while/basic_lstm_cell/MatMul:MatMul")
    layer = run(contributor("busy", "rnn", 100, "aten::_cudnn_rnn"), seen=TORCH)
    forms = [cells.form_of(one) for one in (by_cell, in_loop, layer, run(MM, seen=TORCH))]
    assert forms == ["cell op", "loop", "layer op", None]


@pytest.mark.parametrize(
    ("name", "advised"),
    [
        ("torch-lstmcell-basic", True),
        ("torch-lstmcell-fused", False),
        ("torch-nn-lstm", False),
        ("tf-basiclstmcell", False),
        ("keras-lstm-mode1", False),
        ("jax-scan", True),
    ],
)
def test_only_who_writes_the_cell_can_hoist_its_products(name: str, advised: bool) -> None:
    facts = {**OURS, "framework": implementations.find(name).framework, "implementation": name}
    slow = run(DISPATCH, facts=facts, tally=MATMULS)
    assert ("input matmul before the loop" in names("dispatch", slow)) == advised


def test_no_layer_op_is_advised_for_cells_of_trees() -> None:
    def fix(facts: Mapping[str, Any], *layers: Mapping[str, Any]) -> str:
        slow = run(MM, facts=facts, seen=TORCH, layers=list(layers))
        (given,) = (a for a in advice("matmul", slow) if a.name != "fuse the cell")
        return given.fix

    assert "torch.nn.LSTM" not in fix(TREE, IN_TREES)
    assert "trees" not in fix({}, IN_TREES)
    varied = fix({}, IN_TREES, {**IN_TREES, "cells": 5})
    assert "torch.nn.LSTM" in varied
    assert "trees" in varied  # loops of several lengths may also be trees


@pytest.mark.parametrize(
    ("implementation", "xla", "device", "fits"),
    [
        ("tf-lstmcell", False, 0, True),
        ("tf-lstmcell", True, 0, False),
        ("tf-lstmblockcell", False, 0, False),
        ("tf-lstmcell", False, None, False),  # no faster on a CPU
    ],
)
def test_xla_is_offered_on_a_gpu_to_rows_that_it_compiles(
    implementation: str, xla: bool, device: int | None, fits: bool
) -> None:
    facts = {**TF_BY_HAND, "implementation": implementation, "xla": xla}
    assert ("XLA" in names("dispatch", run(DISPATCH, facts=facts, device=device))) == fits


def test_on_a_cpu_only_a_loop_of_keras_is_to_be_unrolled() -> None:
    def advised(scope: str, looping_ns: int = 700) -> list[Advice]:
        loop = {f"{scope}/MatMul:MatMul": 40.0}
        seen = replace(TENSORFLOW, looping_ns=looping_ns)
        slow = with_paths(seen, loop, TANH, ops=[op(name, 40) for name in loop])
        assert "XLA" not in names("elementwise", slow)
        return [each for each in advice("dispatch", slow) if each.name == "XLA"]

    (given,) = advised("lstm/while/lstm_cell")
    assert "unroll=True" in given.fix
    assert (given.saves_ns, given.at_most) == (700, True)
    assert not advised("lstm/while/lstm_cell", 80)  # less than 5 % of the step
    assert not advised("rnn/while/basic_lstm_cell")
    ops_of_loop = [op("lstm/while/lstm_cell/MatMul:MatMul", 40)]
    for kind, slow in (("dispatch", DISPATCH), ("matmul", MM)):
        assert "layer in one op" not in names(kind, run(slow, seen=TENSORFLOW, ops=ops_of_loop))
    assert "XLA" not in names("dispatch", run(DISPATCH, seen=TENSORFLOW))


def test_xla_is_not_offered_to_a_function_that_is_traced_in_every_step() -> None:
    retraced = Seen(compiled=(Fact("tf.function-graph_building", 1, 1),), compiled_steps=5)
    assert "XLA" not in names("dispatch", run(DISPATCH, facts=TF_BY_HAND, seen=retraced))


@pytest.mark.parametrize(
    ("names", "unmet"),
    [
        (["lstm/while/lstm_cell/MatMul:MatMul"], []),
        (["lstm/while/lstm_cell/hard_sigmoid/Relu6:Relu6"], ["recurrent_activation='sigmoid'"]),
        (["lstm/while/lstm_cell/Relu:Relu"], ["activation='tanh'"]),
        (["rnn/while/basic_lstm_cell/Relu:Relu"], []),
        (["gru/while/gru_cell/dropout/random_uniform:R"], ["recurrent_dropout=0"]),
        (["model/lstm_cell_7/MatMul:MatMul"], ["unroll=False"]),
    ],
)
def test_the_condition_of_kerass_cudnn_path_that_fails_is_named(
    names: list[str], unmet: list[str]
) -> None:
    rows = [op(n, 1) for n in names]
    slow = run(DISPATCH, device=0, seen=TENSORFLOW, ops=rows)
    assert keras.unmet_by_keras(slow) == unmet
    fixes = [a.fix for a in advice("dispatch", slow) if a.name == "Keras on cuDNN"]
    assert [all(want in fix for want in unmet) for fix in fixes] == [True] * bool(unmet)
    assert keras.unmet_by_keras(run(DISPATCH, seen=TENSORFLOW, ops=rows)) == []


def test_what_cudnns_persistent_kernels_would_need() -> None:
    case = CASES["persistent kernels"]
    given = the("persistent kernels", case.kind, case.slow)
    needs = (
        "use float16 (this layer uses float32), use a multiple of 128 hidden units (this layer has "
        "320) and use a multiple of 128 inputs (this layer has 123)"
    )
    assert given.fix.endswith(needs)


@pytest.mark.parametrize(
    ("call", "runtime", "numbers"),
    [
        (FIRST, "CUDA", ["the first cudaLaunchKernel took 0.8 µs", "under 1 µs"]),
        (replace(FIRST, count=4), "CUDA", ["cudaLaunchKernel took 0.2 µs"]),
        (
            replace(FIRST, name="hipLaunchKernel", median_ns=4_000),
            "HIP",
            ["the first hipLaunchKernel took 0.8 µs", "4.0 µs"],
        ),
        (Fact("cuModuleLoadData", 800, 1), "CUDA", ["cuModuleLoadData took 0.8 µs"]),
    ],
)
def test_the_call_that_starts_a_runtime_is_named(
    call: Fact, runtime: str, numbers: list[str]
) -> None:
    slow = run(START, seen=loading(call), device=0)
    given = the("profile later", "initialisation", slow)
    assert given.cause.startswith(runtime)
    assert all(number in given.seen for number in numbers)


def test_a_first_call_after_other_steps_is_the_profilers_start() -> None:
    after = replace(loading(FIRST), steps_before=15)
    given = the("profile later", "initialisation", run(START, seen=after, device=0))
    assert given.cause.startswith("the profiler starts up")
    loads = Fact("cuModuleLoadData", 800, 1)
    loaded = replace(loading(loads), steps_before=15)
    slow = run(START, seen=loaded, device=0)
    assert the("profile later", "initialisation", slow).cause.startswith("CUDA starts up")


@pytest.mark.parametrize(
    ("call", "site"), [("cudaLaunchKernel", "docs.nvidia.com"), ("hipLaunchKernel", "rocm.docs")]
)
def test_how_a_runtime_is_initialised_is_cited_from_its_maker(call: str, site: str) -> None:
    slow = run(START, seen=loading(replace(FIRST, name=call)), device=0)
    assert the("profile later", "initialisation", slow).source.startswith(f"https://{site}")


@pytest.mark.parametrize(
    ("kernel", "wrapper", "word"),
    [
        ("AllGather_RING_LL", "FullyShardedDataParallel.forward", "forward_prefetch=True"),
        ("ReduceScatter_Sum", "FSDP::post_backward_reshard", "forward_prefetch=True"),
        ("AllReduce_Sum_f32", "FullyShardedDataParallel.forward", "overlaps with computation"),
        ("AllReduce_Sum_f32", "DistributedDataParallel.forward", "bucket_cap_mb"),
        ("AllReduce_Sum_f32", "aten::mm", "overlaps with computation"),
        ("SendRecv", "DistributedDataParallel.forward", "overlaps with computation"),
    ],
)
def test_a_kind_of_parallelism_is_named_only_if_the_profile_shows_it(
    kernel: str, wrapper: str, word: str
) -> None:
    calls = replace(NCCL, name=f"ncclDevKernel_{kernel}")
    slow = run(calls, replace(MM, ns=300), device=0, seen=TORCH, ops=[op(wrapper, 1)])
    assert word in the("overlap communication", "communication", slow).fix


def test_a_wait_for_another_rank_is_no_communication_to_overlap() -> None:
    slow = run(NCCL, replace(MM, ns=900), device=0, seen=TORCH)
    assert the("overlap communication", "communication", slow).saves_ns == 900
    waits = replace(slow, straggler=straggler(700))
    assert the("overlap communication", "communication", waits).saves_ns == 200
    assert the("even out the ranks", "communication", waits).saves_ns == 700


def test_how_not_to_trace_again_depends_on_the_framework() -> None:
    words = {"torch": "TORCH_LOGS=recompiles", "tensorflow": "reduce_retracing=True"}
    words |= {"jax": "JAX_EXPLAIN_CACHE_MISSES", "other": "shapes and types constant"}
    for framework, word in words.items():
        compiled = Seen(framework=framework, compiled=(Fact("compile_fx", 9, 1),), compiled_steps=3)
        given = the("trace once", "compile", run(COMPILING, seen=replace(compiled, shapes=SHAPES)))
        assert word in given.fix
        assert all(part in given.seen for part in ("in 3 steps", "aten::mm", "[[2,3]] and [[4,3]]"))
        once = run(COMPILING, seen=replace(compiled, compiled_steps=1))
        assert "warm-up" in the("trace once", "compile", once).fix


@pytest.mark.parametrize(
    ("framework", "change", "why", "fix"),
    [
        (
            "jax",
            {"changed": "shape", "argument": "text", "before": "(8, 10)", "after": "(8, 11)"},
            "the shape of text changed from (8, 10) to (8, 11)",
            "keep the shape of text constant",
        ),
        (
            "tensorflow",
            {"changed": "value", "argument": "epoch", "before": "3", "after": "4"},
            "epoch changed from 3 to 4",
            "pass epoch as a ",
        ),
        (
            "jax",
            {"changed": "function"},
            "the script creates the function anew",
            "call jax.jit on train once, before the loop",
        ),
        (
            "jax",
            {"changed": "dtype", "argument": "x", "before": "float32", "after": "bfloat16"},
            "the dtype of x changed from float32 to bfloat16",
            "keep the dtype of x constant",
        ),
        (
            "tensorflow",
            {"changed": "structure", "argument": "x"},
            "the number of arrays in x changed",
            "keep the structure of x constant",
        ),
    ],
)
def test_what_changed_before_a_function_is_compiled_again_is_named_with_its_own_fix(
    framework: str, change: dict[str, str], why: str, fix: str
) -> None:
    compiled = (Fact("backend_compile", 800, 1, "PjitFunction(train)"),)
    facts = {"recompiled": [{"function": name, "times": 9, **change} for name in ("train", "test")]}
    shown = Seen(framework=framework, compiled=compiled, compiled_steps=3)
    given = the("trace once", "compile", run(COMPILING, facts=facts, seen=shown))
    assert given.cause == f"train is compiled again: {why}"
    assert given.seen.endswith("in 3 steps")
    assert given.fix.startswith(fix)
    once = replace(shown, compiled_steps=1)
    single = replace(run(COMPILING, facts=facts, seen=once), marked=True, steps=1)
    assert the("trace once", "compile", single).fix == given.fix
    others = {"recompiled": [{"function": "test", "times": 9, **change}]}
    unknown = the("trace once", "compile", run(COMPILING, facts=others, seen=shown))
    assert not unknown.fix.startswith(fix)


@pytest.mark.parametrize(("step_ns", "named"), [(300, True), (200, False)])
def test_a_new_shape_explains_what_jax_compiles_for_itself_unless_this_takes_much_longer(
    step_ns: int, named: bool
) -> None:
    compiled = (
        Fact("backend_compile", 900, 1, "PjitFunction(_normal)"),
        Fact("backend_compile", step_ns - 10, 1, "PjitFunction(train_step)"),
        Fact("trace_to_jaxpr", 100, 1, "PjitFunction(_normal)"),
        Fact("trace_to_jaxpr", 10, 1, "PjitFunction(train_step)"),
    )
    shape = {"changed": "shape", "argument": "x", "before": "(8, 9)", "after": "(8, 10)"}
    facts = {"recompiled": [{"function": "train_step", "times": 9, **shape}]}
    seen = Seen(framework="jax", compiled=compiled, compiled_steps=3)
    document = alone(run(COMPILING, facts=facts, seen=seen))
    cause = "train_step is compiled again: the shape of x changed from (8, 9) to (8, 10)"
    assert (document.verdict.cause == cause) == named


@pytest.mark.parametrize(
    ("change", "why", "fix"),
    [
        (
            {"changed": "size", "argument": "dimension 0 of x", "before": "3", "after": "4"},
            "the size of dimension 0 of x changed from 3 to 4",
            "keep the size of dimension 0 of x constant",
        ),
        (CHANGED, "self.epoch is no longer 7", "make self.epoch a tensor"),
        (
            {"changed": "length", "argument": "xs", "before": "2"},
            "the length of xs is no longer 2",
            "",
        ),
        (
            {"changed": "type", "argument": "rate"},
            "the type of rate changed",
            "keep the type of rate",
        ),
        ({"changed": "object", "argument": "fn"}, "fn is another object", "create fn once"),
        (
            {"changed": "function"},
            "the script creates the function anew",
            "create what torch.compile compiles",
        ),
        (
            {"changed": "guard", "before": "GLOBAL_STATE changed: grad_mode"},
            "a condition of the compiled code does not hold: GLOBAL_STATE changed: grad_mode",
            "keep the condition true",
        ),
    ],
)
def test_the_guard_that_failed_before_torch_compiled_again_is_named_with_its_own_fix(
    change: dict[str, str], why: str, fix: str
) -> None:
    others = {"function": "loss_of", "times": 1, "changed": "dtype", "argument": "scores"}
    facts = {"recompiled": [others, {"function": "Model.forward", "times": 9, **change}]}
    shown = Seen(framework="torch", compiled=(Fact("compile_fx", 9, 1),), compiled_steps=3)
    given = the("trace once", "compile", run(COMPILING, facts=facts, seen=shown))
    assert given.cause == f"Model.forward is compiled again: {why}"
    assert given.fix.startswith(fix or "keep the length of xs constant")


@pytest.mark.parametrize("layer", ["nn.Module: LSTM lstm", "keras.layers.LSTM lstm"])
def test_the_python_of_a_loop_of_cells_is_no_function_to_look_into(layer: str) -> None:
    python = contributor("idle", "python", 900, layer)
    assert "look inside" in names("Python", run(python, seen=TORCH))
    assert "look inside" not in names("Python", run(python, seen=TORCH, layers=[LAYER]))


def test_a_function_that_torch_compile_gave_up_is_the_cause_with_the_fix_for_what_changed() -> None:
    verdict = alone(run(CALLING, facts=GAVE_UP, seen=TORCH, ops=[LOOKS])).verdict
    assert verdict.fixes[0].name == "keep it compiled"
    assert verdict.cause == "torch.compile gave up on Model.forward: self.epoch is no longer 7"
    assert verdict.fixes[0].fix.startswith("make self.epoch a tensor")
    assert "8 times" in verdict.fixes[0].seen


def test_a_function_that_one_of_several_steps_compiles_is_named() -> None:
    compiled = (
        Fact("PjRtCpuClient::Compile", 900, 1),
        Fact("backend_compile", 800, 1, "PjitFunction(decode)"),
    )
    seen = Seen(framework="jax", compiled=compiled, compiled_steps=1)
    slow = replace(run(COMPILING, seen=seen), marked=True, steps=10)
    advice = the("trace once", "compile", slow)
    assert advice.cause == "decode is traced or compiled in 1 of 10 profiled steps"
    assert "call decode once" in advice.fix


def test_a_graph_needs_the_few_values_that_a_step_reads_outside_it() -> None:
    asked = series(seen=replace(with_gaps(), read=(Fact("aten::is_nonzero", 9, 1),)))
    assert "aten::is_nonzero" in the("CUDA graph", "launch", asked).fix


@pytest.mark.parametrize(
    ("variables", "device", "words"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, 0, "CUDA_LAUNCH_BLOCKING=1 is set"),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, 0, ""),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, None, ""),
        ({"LD_PRELOAD": "/usr/lib/libasan.so.8"}, None, "LD_PRELOAD=/usr/lib/libasan.so.8 is set"),
        ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}, None, ""),
        (
            {"PYTHONMALLOC": "debug", "PYTHONDEVMODE": "1"},
            None,
            "PYTHONDEVMODE=1 and PYTHONMALLOC=debug are set",
        ),
    ],
)
def test_variables_of_debuggers_are_named(
    variables: dict[str, str], device: int | None, words: str
) -> None:
    facts = {"settings": {"environment": variables}}
    given = advice("matmul", run(MM, device=device, seen=TORCH, facts=facts))
    assert [a.seen for a in given if a.name == "no debugging settings"] == (
        [words] if words else []
    )


def test_many_values_lead_the_verdict_though_most_of_their_time_is_no_wait() -> None:
    reads = replace(TORCH, read=(READ,))
    slow = run(DISPATCH, SYNC, MM, device=0, seen=reads)
    verdict = alone(slow).verdict
    assert verdict.cause.startswith("the host reads a value (aten::item) 40 times per step")
    assert verdict.fixes[0].saves_ns == READ.ns
    few = replace(reads, read=(replace(READ, ns=300),))
    assert "ask for no value" not in names("dispatch", run(DISPATCH, MM, device=0, seen=few))
    # one value at the end of a step is no cause of its launches
    once = replace(reads, read=(replace(READ, count=1),))
    assert "ask for no value" not in names("dispatch", run(DISPATCH, device=0, seen=once))


def test_values_that_an_optimizer_keeps_on_the_cpu_do_not_prevent_a_graph() -> None:
    assert "CUDA graph" in names("launch", series(ops=ops(aten__item=12)))


def test_steps_are_mentioned_only_if_steps_are_marked() -> None:
    slow = CASES["ask for no value"].slow
    assert "40 times per step" in the("ask for no value", "sync", slow).seen
    assert "40 times" in the("ask for no value", "sync", replace(slow, marked=False)).seen
    for case in CASES.values():
        if case.fast is None:
            unmarked = advice(case.kind, replace(case.slow, marked=False))
            assert not [a.seen for a in unmarked if "per step" in a.seen]


def test_no_whole_template_is_quoted() -> None:
    kernel = "void at::native::elementwise_kernel<" + 40 * "at::detail::Array<char*, 2>, " + ">"
    slow = run(QUEUED, device=0, seen=replace(TORCH, queued=(replace(WAIT, name=kernel),)))
    seen = the("event sooner", "queued", slow).seen
    assert seen.startswith("elementwise_kernel<Array<char*, 2>, Array")
    assert len(seen) < 150


def test_work_behind_a_function_of_the_host_gets_its_own_cause_and_fix() -> None:
    event, function = (
        the("event sooner", "queued", run(QUEUED, device=0, seen=replace(TORCH, queued=(wait,))))
        for wait in (WAIT, CALLBACK)
    )
    assert event.cause != function.cause
    assert "thread" in function.fix
    assert function.saves_ns == 500


def test_a_loader_with_workers_may_be_faster_without_them() -> None:
    for ns, word in ((9_000_000, "more workers"), (900_000, "num_workers=0")):
        given = the(
            "workers", "input", run(replace(INPUT, ns=ns), seen=TORCH, ops=[op(WORKERS, 1)])
        )
        assert word in given.fix
        assert given.saves_ns is None


def test_weights_that_are_shared_cannot_be_flattened() -> None:
    calls = [op("aten::_cudnn_rnn", 2)]
    seen = replace(TORCH, weights=(WEIGHTS,))
    apart, shared = (
        the("flatten_parameters", "copy", run(COPY, seen=one, ops=calls))
        for one in (seen, replace(seen, flattens=True))
    )
    assert apart.saves_ns == shared.saves_ns == 400
    assert "share no weights" in shared.fix
    assert apart.fix != shared.fix


def test_denormals_show_by_matmuls_that_are_slow_at_one_place_of_a_step() -> None:
    slow = run(MM, TANH, seen=replace(TORCH, slowing=Slow("aten::mm", 500, 9, 700)))
    given = the("flush denormals", "matmul", slow)
    assert given.saves_ns == 500
    assert "aten::mm" in given.seen
    assert "flush denormals" not in names("elementwise", slow)


def test_indexing_in_a_loop_of_known_length_is_found_without_shapes() -> None:
    for count, fits in ((20, True), (1, False)):
        seen = replace(TORCH, indexed=(INDEXED,))
        slow = run(TANH, facts=NN_LSTM, seen=seen, ops=[op("aten::select_backward", count)])
        assert ("unbind before the loop" in names("elementwise", slow)) == fits


def test_indexing_is_a_loop_where_no_shapes_are_known_and_it_is_done_often() -> None:
    unknown = replace(TORCH, selected=None, indexed=(INDEXED,))
    for count, fits in ((25, True), (8, False)):
        slow = run(TANH, seen=unknown, ops=[op("aten::select_backward", count, 300)])
        assert ("unbind before the loop" in names("elementwise", slow)) == fits


def test_what_adds_the_gradients_of_indexing_up_is_addressed_too() -> None:
    indexed = (replace(INDEXED, ns=700), Fact("aten::select", 50, 25))
    calls = [op("aten::select_backward", 25, 300)]
    slow = run(TANH, seen=replace(TORCH, selected=25, indexed=indexed), ops=calls)
    assert remedies(findings(None, slow)[0])[0].saves_ns == 700 + 50


def test_what_indexing_takes_is_of_the_kinds_of_its_row_at_most() -> None:
    calls = [op("aten::select_backward", 25, 300)]
    for ns, saves in ((TANH.ns + 1, TANH.ns + 1), (9**9, TANH.ns + COPY.ns)):
        seen = replace(TORCH, selected=25, indexed=(replace(INDEXED, ns=ns),))
        every = findings(None, run(MM, TANH, COPY, seen=seen, ops=calls))
        (finding,) = [one for one in every if one.kind == causes.MEMORY]
        assert remedies(finding)[0].saves_ns == saves


def test_what_another_form_takes_instead_is_subtracted() -> None:
    slow = run(TANH, seen=replace(TORCH, scripted=(replace(NODE, ns=800),)))
    (given,) = advice("elementwise", slow)
    assert given.gain == "saves about 0.001 ms, minus the time of nn.LSTM's backward pass"
    assert alone(slow).verdict.cause == given.cause


@pytest.mark.parametrize("ours", [True, False])
def test_a_layer_called_once_per_time_step_is_the_cause(ours: bool) -> None:
    case = CASES["whole sequence in one call"]
    slow = (
        replace(case.slow, marked=True)
        if ours
        else run(MM, seen=TORCH, layers=[{**ONE_STEP, "time_steps": None}])
    )
    verdict = alone(slow).verdict
    assert verdict.cause.startswith("20 aten::lstm calls per step")
    assert ("one time step" in verdict.cause) == ours
    assert verdict.fixes[0].name == "whole sequence in one call"
    # the calls may be sequences, if the profile does not show that they are time steps
    assert ("batch" in verdict.fixes[0].fix) != ours


def test_a_cause_that_must_come_first_does_so_though_its_saving_is_unknown() -> None:
    rows = [*GRADIENTS, op("aten::select_backward", 25)]
    slow = run(
        TANH, seen=replace(TORCH, selected=25, indexed=(replace(INDEXED, ns=800),)), ops=rows
    )
    verdict = alone(slow).verdict
    assert verdict.fixes[0].name == "no anomaly mode"
    assert verdict.cause == verdict.fixes[0].cause
    assert verdict.bottleneck == "elementwise"


@pytest.mark.parametrize(("others_ns", "is_cause"), [(400, True), (1_000, False)])
def test_a_runtime_that_starts_is_the_cause_if_nothing_takes_longer(
    others_ns: int, is_cause: bool
) -> None:
    others = replace(LAUNCH, ns=others_ns)
    verdict = alone(run(START, others, seen=loading(FIRST), device=0)).verdict
    assert verdict.cause.startswith("CUDA starts up") == is_cause
    assert (verdict.bottleneck == "initialisation") == is_cause


@pytest.mark.parametrize(
    ("cell", "layer"), [("aten::gru_cell", "GRU"), ("aten::rnn_tanh_cell", "RNN")]
)
def test_a_cell_gets_its_own_layer_and_on_a_cpu_only_if_it_is_mostly_calls(
    cell: str, layer: str
) -> None:
    calls = [op("aten::mm", 99), op(cell, 60)]
    on_gpu = run(MM, seen=TORCH, ops=calls, device=0)
    assert f"torch.nn.{layer}:" in the("layer in one op", "matmul", on_gpu).fix
    assert "layer in one op" not in names("matmul", run(MM, seen=TORCH, ops=calls))
    called = run(replace(DISPATCH, ns=MM.ns), MM, seen=TORCH, ops=calls)
    assert f"torch.nn.{layer}:" in the("layer in one op", "matmul", called).fix
    ours = {**BY_HAND, "workload": {**WORKLOAD, "cell": layer.lower()}}
    given = the("layer in one op", "matmul", run(MM, facts=ours, device=0))
    assert given.implementation == "torch-nn-lstm"
    assert f"torch.nn.{layer}:" in given.fix


def test_a_layer_op_that_only_an_lstm_has_is_advised_to_no_other_cell() -> None:
    loop = [op("forward/rnn/while/gru_cell/MatMul:MatMul", 30)]
    assert names("matmul", run(MM, seen=TENSORFLOW, ops=loop)) == set()
    on_device = run(replace(MM, name="k"), seen=TENSORFLOW, ops=loop, device=0)
    assert "keras.layers.GRU" in the("layer in one op", "matmul", on_device).fix


@pytest.mark.parametrize("cell", ["gru", "rnn", "of a stranger"])
def test_a_cell_gets_no_row_that_refuses_it(cell: str) -> None:
    ours = {**TF_BY_HAND, "workload": {**WORKLOAD, "cell": cell}}
    given = advice("matmul", run(replace(MM, name="k"), facts=ours, device=0))
    rows = {a.implementation for a in given}
    assert ("tf-cudnnlstm" in rows) == (cell == "of a stranger")


def test_memory_is_pinned_for_a_gpu_alone() -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    loader = [{**op(name, 1), "kind": "range"}]
    for device in (None, 0):
        slow = run(INPUT, seen=TORCH, ranges=loader, ops=[], device=device)
        assert ("pin_memory" in the("workers", "input", slow).fix) == (device is not None)


def test_a_cause_of_several_kinds_names_the_verdicts_cause() -> None:
    packed = (Fact("aten::lstm", 720, 1.0),)
    found = alone(run(MM, seen=replace(TORCH, packed=packed), ops=[]))
    assert found.verdict.cause == found.verdict.fixes[0].cause
    assert (found.remedies[0].name, found.remedies[0].saves_ns) == ("pad instead of pack", 720)


@pytest.mark.parametrize("device", [None, 0])
@pytest.mark.parametrize("padding", [None, "front", "behind"])
def test_padding_at_the_end_is_advised_if_that_helps(
    padding: str | None, device: int | None
) -> None:
    slow = with_paths(TENSORFLOW, MASKED, facts={"padding": padding}, device=device)
    given = the("pad at the end", "dispatch", slow)
    assert ("padding='post'" in given.fix) == (device is not None and padding != "behind")
    assert "similar length" in given.fix
    assert ("sequences are padded" in given.seen) == (padding is not None)


@pytest.mark.parametrize("kind", ["dispatch", "matmul", "elementwise", "launch"])
def test_padding_comes_first_if_the_choices_by_a_mask_were_too_short_to_be_recorded(
    kind: str,
) -> None:
    loop = {"m/lstm/while/lstm_cell/MatMul:MatMul": 40.0}
    ops = [op(name, 40) for name in loop]
    parts = (MM, TANH, LAUNCH)
    padded = with_paths(TENSORFLOW, loop, *parts, ops=ops, facts={"padding": "front"})
    first, *others = advice(kind, padded)
    assert first.name == "pad at the end"
    assert "at the front" in first.seen
    assert "layer in one op" not in {one.name for one in others}
    unknown = with_paths(TENSORFLOW, loop, *parts, ops=ops)
    assert "pad at the end" not in names(kind, unknown)
    pooled = run(MM, TANH, LAUNCH, DISPATCH, seen=TENSORFLOW, facts={"padding": "front"})
    assert "pad at the end" not in names(kind, pooled)


def test_a_run_of_which_nothing_is_known_gets_no_advice() -> None:
    for one in (MM, TANH, DISPATCH, PYTHON, LAUNCH, QUEUED, SYNC, CAST, COPY, ALLOC):
        unnamed = replace(one, name=None)
        assert all(e.remedies == () for e in alone(profile(unnamed)).findings)


def test_a_graph_saves_of_all_waits_for_the_host_what_is_in_usual_gaps() -> None:
    slow = series(replace(DISPATCH, ns=100), replace(LAUNCH, ns=100), replace(PYTHON, ns=100))
    graphs = [a.saves_ns for a in advice("dispatch", slow) if a.name == "CUDA graph"]
    assert graphs == [700]


def test_what_advice_saves_is_shown_if_it_is_known() -> None:
    (known,) = advice("queued", CASES["event sooner"].slow)
    assert known.text == f"{known.sentence} (saves up to 0.001 ms)"
    assert replace(known, saves_ns=None).text == known.sentence
    assert replace(known, gain_ns=2_000_000, measured_with="jax-scan").gain == (
        "saves 2.0 ms, measured with jax-scan"
    )


def test_advice_is_given_once() -> None:
    slow = run(MM, TANH, DISPATCH, facts=BY_HAND)
    fast = run(contributor("busy", "rnn", 100, "aten::lstm"), facts={**OURS, "implementation": "x"})
    said = [a.sentence for e in compare(slow, fast).findings for a in e.remedies]
    assert len(said) == len(set(said)) > 0


def test_json_has_all_of_an_advice() -> None:
    found = alone(CASES["event sooner"].slow).to_dict()["findings"][0]["remedies"]
    keys = {"name", "cause", "fix", "seen", "condition", "framework", "saves_ns", "source"}
    keys |= {"implementation", "instead", "measured_ns", "measured_with", "gain_ns", "at_most"}
    assert [(set(one), one["saves_ns"], one["framework"]) for one in found] == [(keys, 500, None)]


def test_a_cause_of_most_of_the_step_is_the_verdicts() -> None:
    for ns, named in ((1000, True), (800, False)):
        slow = run(MM, TANH, seen=replace(TORCH, packed=(replace(CALLS, ns=ns),)))
        cause = next(row.cause for row in TABLE if row.name == "pad instead of pack")
        assert (alone(slow).verdict.cause == cause) == named


def test_autocast_in_a_profile_made_elsewhere_is_a_mistake_of_loops_of_cells_alone() -> None:
    cell = run(CAST, seen=TORCH, casts=casts(), ops=[op("aten::lstm_cell", 60)])
    assert "60 casts" in the("cast once before the loop", "cast", cell).seen
    few = run(CAST, seen=TORCH, casts=casts(7), ops=[op("aten::lstm_cell", 60)])
    images = run(CAST, seen=TORCH, casts=casts(), ops=[op("aten::conv2d", 60)])
    for other in (few, images):
        assert "cast once before the loop" not in names("cast", other)


@pytest.mark.parametrize(
    ("implementation", "words"),
    [("jax-scan", "the layer"), ("keras-lstm", None), ("jax-cudnn", None), ("torch-nn-lstm", None)],
)
def test_a_layer_that_a_row_loops_over_is_known_by_the_row(
    implementation: str, words: str | None
) -> None:
    assert scans.scanned(profile(facts={"implementation": implementation})) == words

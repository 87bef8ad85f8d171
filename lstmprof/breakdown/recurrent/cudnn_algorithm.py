"""The algorithm that a framework requests from cuDNN for a layer, a device and a pass.

The standard algorithm launches a matmul and an elementwise kernel per time step. A persistent
kernel keeps the recurrent weights on the chip over all time steps. The sources are the frameworks'
code (``PYTORCH``, ``TENSORFLOW``, ``JAX``), not measurements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lstmprof.events import DeviceFacts

STANDARD, STATIC, SMALL_H, DYNAMIC = (
    "standard",
    "persist_static",
    "persist_static_small_h",
    "persist_dynamic",
)
#: Name of cuDNN in the layer table.
CUDNN = "cuDNN"
#: Source for PyTorch: ``get_algo`` in aten/src/ATen/native/cudnn/RNN.cpp at commit 00fc08aa616f,
#: which calls ``use_rnn_persist_small_h``, ``use_persist_common_heuristics`` and
#: ``use_persist_device_heuristics``. Commit 357b8267a5eb, which still supported cuDNN 8, had the
#: same conditions, but required cuDNN 8.2.1 for the kernel for few hidden units.
PYTORCH = "PyTorch, RNN.cpp at 00fc08aa"
#: Source for TensorFlow: tensorflow/core/kernels/cudnn_rnn_ops.cc at commit 057f8c812fb0. CudnnRNN
#: and CudnnRNNV3 (Keras 3) use the default algorithm. CudnnRNNV2 times all algorithms that cuDNN
#: can run. The default is the standard algorithm, and no op can request the kernel for few hidden
#: units: ``ToCudnnRNNAlgo`` in xla/stream_executor/cuda/cuda_dnn.cc at 744e2bfa5e7a.
TENSORFLOW = "TensorFlow, cudnn_rnn_ops.cc at 057f8c81"
#: Source for JAX: jaxlib/gpu/rnn_kernels.cc at commit 176dd925bbb9 (``jax.experimental.rnn``).
JAX = "JAX, rnn_kernels.cc at 176dd925"

LSTM, GRU, RNN_TANH, RNN_RELU = MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = "float16", "bfloat16", "float32", "float64"

#: Cell → most hidden units (forward, backward) with which PyTorch requests cuDNN's kernel for few
#: hidden units. Source: ``use_rnn_persist_small_h``.
SMALL_HIDDEN = {LSTM: (192, 128), GRU: (192, 128), RNN_TANH: (384, 256), RNN_RELU: (384, 256)}
#: Largest number of hidden units for the persistent static kernel, and divisor of hidden units and
#: inputs. Source: ``use_persist_common_heuristics``.
MOST_HIDDEN, TILE = 1024, 128
#: Limits of the static kernel on compute capability 8.0 and later: a batch size of at most 128, and
#: at least 98 multiprocessors. Source: ``use_persist_device_heuristics``.
MOST_BATCH, FEWEST_MULTIPROCESSORS = 128, 98
#: Pairs (fewest time steps, largest batch size) that allow the static kernel on compute capability
#: 7.x, except 7.5.
_VOLTA_STEPS = ((10, 32), (20, 96), (40, 128))
_VOLTA_SLOW = (80, 112)
#: Limits for plain RNN cells on compute capability 8.0 and later: the static kernel needs a smaller
#: batch size or fewer hidden units.
_PLAIN_BATCH, _PLAIN_HIDDEN = 96, 896


@dataclass(frozen=True)
class Layer:
    """The properties of a recurrent layer that decide the algorithm (None: unknown)."""

    framework: str | None = None  # torch, tensorflow, jax or cudnn (no framework)
    mode: str | None = LSTM
    dtype: str | None = None
    time_steps: int | None = None
    batch: int | None = None
    inputs: int | None = None
    hidden: int | None = None
    layers: int | None = None
    directions: int | None = None
    packed: bool | None = None  # sequences of different lengths
    projection: int | None = None  # width of the projected output, or 0
    op: str | None = None  # TensorFlow's op, such as CudnnRNNV3


@dataclass(frozen=True)
class Gpu:
    """A GPU or MIG slice."""

    sm: int | None = None  # 80: compute capability 8.0
    multiprocessors: int | None = None


def gpu_of(facts: DeviceFacts | None) -> Gpu:
    if facts is None:
        return Gpu()
    major, _, minor = (facts.compute_capability or "").partition(".")
    numeric = major.isdecimal() and minor.isdecimal()
    return Gpu(10 * int(major) + int(minor) if numeric else None, facts.multiprocessors)


@dataclass(frozen=True)
class Refusal:
    """Why a framework does not request ``algorithm``."""

    algorithm: str
    condition: str
    needs: tuple[str, ...]  # one phrase per unmet condition, such as "use 20 time steps"

    @property
    def need(self) -> str:
        return self.needs[0]


@dataclass(frozen=True)
class Choice:
    """The algorithm that a framework requests from cuDNN, and why not another."""

    algorithm: str | None
    refusals: tuple[Refusal, ...]
    unknown: str | None  # the fact that the choice depends on
    source: str

    def refusal_of(self, algorithm: str) -> Refusal | None:
        return next((r for r in self.refusals if r.algorithm == algorithm), None)


def algorithm(layer: Layer, gpu: Gpu, forward: bool) -> Choice:
    if layer.framework == "torch":
        return _by_torch(layer, gpu, forward)
    if layer.framework == "tensorflow":
        return _by_tensorflow(layer.op)
    if layer.framework == "jax":
        return _always_standard("JAX", JAX)
    if layer.framework == "cudnn":
        return _always_standard("this call", "CUDNN_RNN_ALGO_STANDARD")
    return Choice(None, (), "framework", "")


@dataclass(frozen=True)
class _Condition:
    """A condition for an algorithm, and the change that fulfils the condition."""

    name: str
    facts: tuple[str, ...]  # names of the values that ``holds`` gets
    holds: Callable[..., bool]
    need: str  # phrase with places such as ``{batch}``


_CAPABILITY = ("compute capability",)
_COMMON = (
    _Condition(
        "no projection",
        ("projection",),
        lambda width: width == 0,
        "omit the projection (this layer projects to {projection} units)",
    ),
    _Condition(
        "not packed",
        ("packed",),
        lambda packed: not packed,
        "use sequences of one length (these are packed)",
    ),
)
_SMALL = (
    _Condition(
        "not double",
        ("dtype",),
        lambda dtype: dtype != FLOAT64,
        "use an element type other than float64",
    ),
    _Condition(
        "compute capability 6.0",
        _CAPABILITY,
        lambda sm: sm >= 60,
        "use a GPU of compute capability 6.0 or later (this GPU has {capability})",
    ),
    _Condition(
        "few hidden units",
        ("hidden", "small hidden"),
        lambda hidden, most: hidden <= most,
        "use at most {small hidden} hidden units for the {pass} pass (this layer has {hidden:,})",
    ),
)
_LARGE = (
    _Condition(
        "float16",
        ("dtype",),
        lambda dtype: dtype == FLOAT16,
        "use float16 (this layer uses {dtype})",
    ),
    _Condition(
        "one layer",
        ("layers",),
        lambda layers: layers == 1,
        "use one layer per call (this call has {layers})",
    ),
    _Condition(
        "hidden at most 1024",
        ("hidden",),
        lambda hidden: hidden <= MOST_HIDDEN,
        f"use at most {MOST_HIDDEN:,} hidden units (this layer has {{hidden:,}})",
    ),
    _Condition(
        "one direction",
        ("directions",),
        lambda directions: directions == 1,
        "use one direction (this layer is bidirectional)",
    ),
    _Condition(
        "hidden a multiple of 128",
        ("hidden",),
        lambda hidden: hidden % TILE == 0,
        f"use a multiple of {TILE} hidden units (this layer has {{hidden:,}})",
    ),
    _Condition(
        "inputs a multiple of 128",
        ("inputs",),
        lambda inputs: inputs % TILE == 0,
        f"use a multiple of {TILE} inputs (this layer has {{inputs:,}})",
    ),
    _Condition(
        "compute capability 7.0",
        _CAPABILITY,
        lambda sm: sm >= 70,
        "use a GPU of compute capability 7.0 or later (this GPU has {capability})",
    ),
)
_VOLTA = (
    _Condition(
        "not Turing",
        _CAPABILITY,
        lambda sm: sm != 75,
        "use a GPU whose compute capability is not {capability}",
    ),
    _Condition(
        "batch 8 or a multiple of 16",
        ("batch",),
        lambda batch: batch == 8 or (batch % 16 == 0 and batch not in _VOLTA_SLOW),
        "use a batch size of 8, or a multiple of 16 except 80 and 112 (this batch size is "
        "{batch:,})",
    ),
    _Condition(
        "enough time steps",
        ("time steps", "batch"),
        lambda steps, batch: any(steps >= least and batch <= n for least, n in _VOLTA_STEPS),
        "{length needed}",
    ),
)
_AMPERE = (
    _Condition(
        "98 multiprocessors",
        ("multiprocessors",),
        lambda multiprocessors: multiprocessors >= FEWEST_MULTIPROCESSORS,
        f"use a GPU with {FEWEST_MULTIPROCESSORS} multiprocessors or more (this GPU or MIG slice "
        "has {multiprocessors})",
    ),
    _Condition(
        "not compute capability x.6",
        _CAPABILITY,
        lambda sm: sm % 10 != 6,
        "use a GPU whose compute capability is not {capability}",
    ),
    _Condition("not GRU", ("mode",), lambda mode: mode != GRU, "use an LSTM (this layer is a GRU)"),
    _Condition(
        "batch a multiple of 8",
        ("batch",),
        lambda batch: batch % 8 == 0,
        "use a batch size that is a multiple of 8 (this batch size is {batch:,})",
    ),
    _Condition(
        "batch at most 128",
        ("batch",),
        lambda batch: batch <= MOST_BATCH,
        f"use a batch size of at most {MOST_BATCH} (this batch size is {{batch:,}})",
    ),
    _Condition(
        "plain cells small",
        ("hidden", "batch", "mode"),
        lambda hidden, batch, mode: (
            mode in (LSTM, GRU) or batch < _PLAIN_BATCH or hidden < _PLAIN_HIDDEN
        ),
        f"use a batch size under {_PLAIN_BATCH}, or fewer than {_PLAIN_HIDDEN} hidden units (this "
        "layer has batch size {batch:,} and {hidden:,} hidden units)",
    ),
)


def _by_torch(layer: Layer, gpu: Gpu, forward: bool) -> Choice:
    refusals = []
    facts = _facts(layer, gpu, forward)
    major = (gpu.sm or 0) // 10
    further = _AMPERE if major > 7 else _VOLTA if major == 7 else ()
    for name, conditions in ((SMALL_H, _SMALL), (STATIC, (*_LARGE, *further))):
        failed, unknown = [], []
        for condition in (*_COMMON, *conditions):
            values = [facts[fact] for fact in condition.facts]
            if None in values:
                unknown.append(condition)
            elif not condition.holds(*values):
                failed.append(condition)
        if failed:
            needs = tuple(condition.need.format(**facts) for condition in failed)
            refusals.append(Refusal(name, failed[0].name, needs))
        elif unknown:
            return Choice(None, tuple(refusals), unknown[0].facts[0], PYTORCH)
        else:
            return Choice(name, tuple(refusals), None, PYTORCH)
    return Choice(STANDARD, tuple(refusals), None, PYTORCH)


def _facts(layer: Layer, gpu: Gpu, forward: bool) -> dict[str, Any]:
    """Return the values on which PyTorch's conditions depend."""
    small_hidden = SMALL_HIDDEN.get(layer.mode or "")
    return {
        **{name.replace("_", " "): value for name, value in vars(layer).items()},
        "compute capability": gpu.sm,
        "capability": f"{(gpu.sm or 0) // 10}.{(gpu.sm or 0) % 10}",
        "multiprocessors": gpu.multiprocessors,
        "small hidden": small_hidden and small_hidden[0 if forward else 1],
        "pass": "forward" if forward else "backward",
        "length needed": _length_needed(layer),
    }


def _length_needed(layer: Layer) -> str:
    batch = layer.batch or 0
    least = next((least for least, most in _VOLTA_STEPS if batch <= most), None)
    if least is None:
        return f"use a batch size of at most {MOST_BATCH} (this batch size is {batch:,})"
    return (
        f"use {least} time steps or more for batch size {batch} (this layer has {layer.time_steps})"
    )


def _by_tensorflow(op: str | None) -> Choice:
    if op is None:
        return Choice(None, (), "op", TENSORFLOW)
    if re.search(r"CudnnRNN(?:Backprop)?V2", op):
        return Choice(
            None, (), "the algorithm that TensorFlow's benchmark finds fastest", TENSORFLOW
        )
    name = "TensorFlow's CudnnRNN" + ("V3" if "V3" in op else "")
    return _always_standard(name, TENSORFLOW)


def _always_standard(caller: str, source: str) -> Choice:
    need = f"use PyTorch's layer ({caller} always requests the standard algorithm)"
    return Choice(STANDARD, (Refusal(STATIC, "caller", (need,)),), None, source)


#: Kernel names → possible algorithms, from published profiles; the first match counts.
_ALGORITHMS_OF_KERNELS = (
    (re.compile(r"(?i)RNN_?blockPersist"), (SMALL_H,)),
    (re.compile(r"(?i)RNN_persist"), (STATIC, DYNAMIC)),
    (re.compile(r"(?i)persist\w*rnn|rnn\w*persist"), (STATIC, SMALL_H, DYNAMIC)),
    (
        re.compile(r"(?i)elemWiseRNNcell|(?:LSTM|GRU|RNN)_?elementWise_fp|elementWise_bp1"),
        (STANDARD,),
    ),
)


def algorithms_of_kernels(kernels: Iterable[str]) -> tuple[str, ...]:
    """Return the algorithms to which the kernels of one call may belong."""
    names = list(kernels)
    for pattern, algorithms in _ALGORITHMS_OF_KERNELS:
        if any(pattern.search(name) for name in names):
            return algorithms
    return ()

"""What keeps a recurrent layer from the fast kernels of cuDNN.

Which kernels a layer gets is told by ``breakdown.recurrent.cudnn_algorithm``, forward and backward
apart, and held against the names of those that ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lstmprof.breakdown.recurrent.cudnn_algorithm import (
    BFLOAT16,
    CUDNN,
    FLOAT16,
    FLOAT32,
    GRU,
    LSTM,
    RNN_TANH,
    SMALL_H,
    STANDARD,
    STATIC,
    Choice,
    Gpu,
    Layer,
    algorithm,
    gpu_of,
)
from lstmprof.diagnose.causes import GEMM, LAUNCH, MEMORY
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import TORCH, Remedy, Told
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import listed

_DTYPES = {"fp32": FLOAT32, "tf32": FLOAT32, "amp-fp16": FLOAT16, "amp-bf16": BFLOAT16}
_CELLS = {"lstm": LSTM, "gru": GRU, "rnn": RNN_TANH}
_MODES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


@dataclass(frozen=True)
class Run:
    """One pass of a layer on cuDNN: what was ``asked`` for, what its kernels are of.

    ``seen`` is None where nothing tells.
    """

    way: str
    asked: Choice
    seen: str | None

    @property
    def standard(self) -> bool:
        """Whether the standard algorithm ran; where kernels do not tell, what was asked for."""
        return (self.seen or self.asked.algorithm) == STANDARD

    @property
    def refused(self) -> bool:
        """Whether cuDNN ran its standard kernels where persistent ones were asked for."""
        return self.standard and self.asked.algorithm not in (STANDARD, None)


@dataclass(frozen=True)
class OnCudnn:
    """A recurrent layer on cuDNN, and its passes."""

    layer: Layer
    passes: tuple[Run, ...]

    @property
    def words(self) -> str:
        """``LSTM, 256 hidden units, batch 60, float16``."""
        layer = self.layer
        known = (
            _MODES.get(layer.mode or ""),
            None if layer.hidden is None else f"{layer.hidden:,} hidden units",
            None if layer.batch is None else f"batch {layer.batch:,}",
            layer.dtype,
        )
        return ", ".join(word for word in known if word)


def layers_on_cudnn(profile: StepProfile) -> list[OnCudnn]:
    """The layers that PyTorch runs on cuDNN, as the profile shows them, else as it was captured."""
    if profile.device is None or profile.framework != "torch":
        return []
    gpu = gpu_of(profile.info.device_facts.get(str(profile.device)))
    rows = [row for row in profile.rows("layers") if row["library"] == CUDNN and row["hidden"]]
    return [_of_row(row, gpu) for row in rows] or list(_of_capture(profile, gpu))


def _of_row(row: dict[str, Any], gpu: Gpu) -> OnCudnn:
    names = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "dtype", "packed")
    layer = Layer(
        framework="torch",
        mode=row["cell"],
        projection=row["projection"] or 0,
        op=row["op"],
        **{name: row[name] for name in names},
    )
    return OnCudnn(layer, tuple(_passes(layer, gpu, row)))


def _passes(layer: Layer, gpu: Gpu, row: dict[str, Any]) -> Iterator[Run]:
    yield Run("forward", algorithm(layer, gpu, True), row["algorithm_seen"])
    if row["backward_ns"] is not None:
        yield Run("backward", algorithm(layer, gpu, False), row["backward_algorithm_seen"])


def _of_capture(profile: StepProfile, gpu: Gpu) -> Iterator[OnCudnn]:
    """The one layer of a run that lstmprof captured, where its profile has no shapes."""
    info, workload = profile.info, profile.info.workload
    if info.framework != "torch" or info.kernels_used != CUDNN or not workload:
        return
    persists = any(c.part == "rnn" and c.family == "persistent" for c in profile.contributors)
    layer = Layer(
        framework="torch",
        mode=_CELLS.get(workload.cell or "lstm"),
        dtype=_DTYPES.get(str(info.precision)),
        time_steps=workload.time_steps,
        batch=workload.batch,
        inputs=workload.features,
        hidden=workload.hidden,
        layers=workload.layers,
        directions=2 if workload.bidirectional else 1,
        packed=bool(workload.variable_length),
        projection=0,
    )
    ways = ("forward",) if info.mode == "forward" else ("forward", "backward")
    if not persists:
        runs = (Run(way, algorithm(layer, gpu, way == "forward"), None) for way in ways)
        yield OnCudnn(layer, tuple(runs))


def persistent_kernels(f: Finding) -> Told | None:
    """cuDNN took its standard kernels: which of the persistent ones' conditions fail."""
    layer_ns = sum(c.ns for c in f.contributors if "rnn" in (c.part, c.purpose))
    sentence = next(filter(None, map(_standard, layers_on_cudnn(f.slow))), None)
    return Told(sentence, layer_ns) if sentence and layer_ns else None


def _standard(on: OnCudnn) -> str | None:
    runs = [run for run in on.passes if run.standard]
    refused = [run for run in runs if run.refused]
    if refused:
        return _refused(on, refused)
    needs = _needs(runs)
    if not needs:
        return None
    return (
        f"cuDNN runs this layer ({on.words}) on its standard kernels in the "
        f"{listed([run.way for run in runs])} pass; PyTorch asks for persistent ones with {needs}"
    )


def _refused(on: OnCudnn, runs: list[Run]) -> str:
    other = " (float16 has such kernels)" if on.layer.dtype == BFLOAT16 else ""
    return (
        f"PyTorch asks cuDNN for {runs[0].asked.algorithm} in the "
        f"{listed([run.way for run in runs])} pass of this layer ({on.words}), and the standard "
        f"kernels ran: this cuDNN has not taken it{other}"
    )


def _needs(runs: list[Run]) -> str:
    """What persistent kernels would need: the large ones, or the small ones of each pass."""
    large = [r.needs for run in runs if (r := run.asked.refusal_of(STATIC))]
    small = [r.needs for run in runs if (r := run.asked.refusal_of(SMALL_H))]
    ways = [listed(list(large[0]))] if large else []
    others = list(dict.fromkeys(need for needs in small for need in needs))
    if others and not (large and set(others) <= set(large[0])):
        ways.append(listed(others))
    return ", or with ".join(ways)


PERSISTENT_KERNELS = Remedy(
    name="persistent kernels",
    cause="cuDNN runs its standard kernels, time step by time step, where persistent ones would do",
    condition="cuDNN's standard kernels ran in a pass, by their names or, where these do not tell, "
    "by PyTorch's conditions, of which one is not met: element type, hidden units, inputs, batch, "
    "time steps, layers, directions, packing, projection, device",
    kinds=(GEMM, MEMORY, LAUNCH),
    saves="the layer's kernels, or their launches",
    frameworks=TORCH,
    decide=persistent_kernels,
    sources=(
        "https://github.com/pytorch/pytorch/blob/00fc08aa616fbdec70496aebee034ac90b083ff4/"
        "aten/src/ATen/native/cudnn/RNN.cpp",
        "https://github.com/pytorch/pytorch/pull/62143",
        "https://github.com/pytorch/pytorch/pull/43165",
        "https://github.com/pytorch/pytorch/pull/59830",
    ),
)

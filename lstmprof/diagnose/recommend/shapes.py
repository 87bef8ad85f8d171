"""Find the network that a run or the command-line options describe.

The network of a profile of another tool is its slowest recurrent layer. Such a profile must contain
the shapes of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lstmprof import workloads
from lstmprof.base.errors import UsageError
from lstmprof.base.numbers import listed, percent
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.recurrent.network import dtype_named
from lstmprof.capture.own.passes import MOST_FOR_SHAPES
from lstmprof.capture.request import CaptureRequest, check_device
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.diagnose.roofline import workload_of
from lstmprof.workloads import GATES, Workload
from lstmprof.workloads.studies import NAMED

LAYERS = "layers"
GIVE_SIZES = "give --hidden, --batch and --time-steps"
RECORD = "record the shapes of inputs (torch.profiler: record_shapes=True)"
#: Data type of a layer → precision of a capture of this layer.
_PRECISIONS = {"float32": "fp32", "float16": "amp-fp16", "bfloat16": "amp-bf16"}
_CELLS = {"rnn_tanh": "rnn", **{name: name for name in GATES}}


@dataclass(frozen=True)
class Shape:
    """A network and its conditions, such as precision and device."""

    workload: Workload
    precision: str
    mode: str
    device: str
    framework: str | None
    threads: int | None = None
    seed: int = 0
    layer: Mapping[str, Any] | None = None  # row of the layer table with the sizes

    @property
    def words(self) -> str:
        """Return the network as text: ``1×320, batch 64, 100 time steps of 123 inputs``."""
        w = self.workload
        both = " bidirectional" if w.bidirectional else ""
        cell = "" if w.cell == "lstm" else f" {w.cell.upper()}"
        return (
            f"{w.layers}×{w.hidden}{both}{cell}, batch {w.batch}, {w.time_steps} time steps of "
            f"{w.features} inputs"
        )


def shape_of(breakdown: Breakdown) -> Shape:
    """Return the network that a run computes, or raise UsageError."""
    info = breakdown.run.info
    workload = workload_of(info)
    if workload is not None and info.mode is not None:
        device = info.device or "cpu"
        return Shape(
            workload,
            info.precision or "fp32",
            info.mode,
            device,
            info.framework,
            info.threads if device == "cpu" else None,
            info.seed or 0,
        )
    row = slowest_layer(breakdown)
    if row is None:
        raise UsageError(
            f"{breakdown.run.name}: the network is unknown, because no recurrent layer was "
            "recognised",
            GIVE_SIZES,
        )
    return _shape_of_layer(row, breakdown)


def slowest_layer(breakdown: Breakdown) -> Mapping[str, Any] | None:
    rows: list[dict[str, Any]] = breakdown.table(LAYERS).to_pylist()
    # if the number of calls is unknown, ``call_ns`` is already the sum over all calls
    return max(rows, key=lambda row: call_ns(row) * (row["calls"] or 1), default=None)


def call_ns(row: Mapping[str, Any]) -> float:
    return (row["forward_ns"] or 0.0) + (row["backward_ns"] or 0.0)


def _shape_of_layer(row: Mapping[str, Any], breakdown: Breakdown) -> Shape:
    name, info = breakdown.run.name, breakdown.run.info
    needed = ("cell", "time_steps", "batch", "inputs", "hidden", "dtype")
    unknown = [column for column in needed if row[column] is None]
    if unknown:
        sizes = listed(column.replace("_", " ") for column in unknown)
        are = "is" if len(unknown) == 1 else "are"
        fault = f"{name}: {sizes} of the layer {row['op']} {are} unknown"
        if info.shapes_cost is not None and info.shapes_cost > MOST_FOR_SHAPES:
            longer = percent(info.shapes_cost)
            raise UsageError(
                f"{fault}, because lstmprof did not record input shapes: recording shapes "
                f"makes a step {longer} longer",
                GIVE_SIZES,
            )
        raise UsageError(fault, RECORD)
    cell = _CELLS.get(row["cell"])
    precision = _PRECISIONS.get(dtype_named(row["dtype"]) or "")
    for what, why in (
        (cell is None, f"{row['cell']} cells"),
        (row["projection"] is not None, "a projection"),
        (precision is None, f"{row['dtype']} numbers"),
    ):
        if what:
            raise UsageError(f"{name}: its layer has {why}, which no implementation supports")
    assert cell is not None
    assert precision is not None
    directions = row["directions"] or 1
    workload = Workload(
        f"layer-{row['layers'] or 1}x{row['hidden']}-b{row['batch']}-t{row['time_steps']}"
        f"-d{row['inputs']}" + ("-bi" if directions == 2 else ""),
        row["layers"] or 1,
        row["hidden"],
        directions == 2,
        row["batch"],
        row["time_steps"],
        row["inputs"],
        directions * row["hidden"],
        "mean",
        optimizer="sgd",
        cell=cell,
        head=False,
    )
    mode = "forward" if row["backward_ns"] is None else "train"
    device = info.device or ("cuda:0" if info.device_names else "cpu")
    return Shape(workload, precision, mode, device, row["framework"], layer=row)


def is_here(device: str) -> bool:
    """Return whether this machine has a device of this type (CPU or GPU)."""
    return device == "cpu" or bool(cuda_devices())


def request_of(
    shape: Shape | None,
    sizes: Mapping[str, Any],
    conditions: Mapping[str, Any],
    progress: Callable[[str], None],
) -> CaptureRequest:
    """Return a request to capture the network; its implementation is a placeholder."""
    sizes = {name: value for name, value in sizes.items() if value is not None}
    wished: dict[str, Any] = {k: value for k, value in conditions.items() if value is not None}
    if shape is None and not sizes:
        raise UsageError(
            "no network is described", "give --like, or --hidden, --batch and --time-steps"
        )
    if shape is not None and sizes:
        raise UsageError(
            "--like already sets the sizes of the network", "omit --like, or omit the size options"
        )
    if shape is None:
        network = workloads.with_overrides(NAMED[0], **sizes)
    else:
        network = shape.workload
        names = ("precision", "mode", "device", "threads", "seed")
        run_sizes = {name: getattr(shape, name) for name in names}
        if not is_here(shape.device) and "device" not in wished:
            progress("the run used a GPU, which this machine lacks; measuring on the CPU")
            run_sizes["device"] = "cpu"
        wished = {**run_sizes, **wished}
    request = CaptureRequest("torch-nn-lstm", network, peaks=False, **wished)
    check_device(request)  # once, not for every candidate
    return request

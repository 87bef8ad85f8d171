"""Kineto documents of recurrent layers on a GPU, written event by event as torch.profiler does.

A training step is ops on the host, each of which may launch kernels; these run on one stream, one
after the other. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lstmprof as lp
from lstmprof.diagnose.remedies import Advice

Event = dict[str, Any]
Kernels = Sequence[tuple[str, float]]

PID, MAIN, AUTOGRAD, STREAM = 100, 100, 101, 7
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}
A100 |= {"numSms": 108, "warpSize": 32}
A30 = {**A100, "name": "NVIDIA A30", "numSms": 56}
P100 = {**A100, "name": "Tesla P100-PCIE-16GB", "computeMajor": 6, "numSms": 56}
V100 = {**A100, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "numSms": 80}
MI300 = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4}
MI300 |= {"numSms": 304, "warpSize": 64}


class Document:
    """A profile that grows by ops."""

    def __init__(self, device: Event) -> None:
        self.device = device
        self.events: list[Event] = []
        self.host_us = self.device_us = 10.0
        self.numbers = iter(range(1, 1_000_000))

    def step(self, number: int, *, since_us: float) -> None:
        """A step from ``since_us`` until the device is done."""
        self.host_us = max(self.host_us, self.device_us) + 5
        name = f"ProfilerStep#{number}"
        self._add("user_annotation", name, since_us, self.host_us - since_us, MAIN, {})
        self.host_us += 5

    def op(
        self,
        name: str,
        shapes: Sequence[Any] = (),
        dtypes: Sequence[str] = (),
        kernels: Kernels = (),
        inside: Sequence[dict[str, Any]] = (),
        calls: Sequence[tuple[str, float]] = (),
        **args: Any,
    ) -> None:
        """An op, the ops ``inside`` it, its runtime ``calls`` and its launches."""
        number, start_us = next(self.numbers), self.host_us
        thread = args.pop("thread", MAIN)
        self.host_us += 1
        for one in inside:
            self.op(**{"thread": thread, **one})
        for call, dur_us in calls:
            self._add("cuda_runtime", call, self.host_us, dur_us, thread, {"External id": number})
            self.host_us += dur_us
        for kernel, dur_us in kernels:
            self._launch(kernel, dur_us, thread, number)
        self.host_us += 1
        recorded = {"Input Dims": list(shapes), "Input type": list(dtypes)} if shapes else {}
        args = {"External id": number, **recorded, **args}
        self._add("cpu_op", name, start_us, self.host_us - start_us, thread, args)

    def _launch(self, kernel: str, dur_us: float, thread: int, number: int) -> None:
        correlation = next(self.numbers)
        ids = {"External id": number, "correlation": correlation}
        launch = "hipLaunchKernel" if self.device["warpSize"] == 64 else "cudaLaunchKernel"
        self._add("cuda_runtime", launch, self.host_us, 0.5, thread, ids)
        start_us = max(self.device_us, self.host_us + 1)
        on = {**ids, "device": 0, "stream": STREAM}
        self._add("kernel", kernel, start_us, dur_us, STREAM, on, pid=0)
        self.host_us += 1
        self.device_us = start_us + dur_us

    def _add(
        self, cat: str, name: str, ts: float, dur: float, tid: int, args: Event, pid: int = PID
    ) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
        self.events.append({**event, "args": args})

    def written(self, path: Path) -> Path:
        """The file."""
        content = {
            "schemaVersion": 1,
            "deviceProperties": [self.device],
            "record_shapes": 1,
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "traceEvents": self.events,
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def advice(self, folder: Path) -> dict[str, Advice]:
        """The advice that ``diagnose`` gives, by name."""
        (diagnosis,) = lp.diagnose([lp.read(self.written(folder / "trace.json"))])
        return {advice.name: advice for advice in diagnosis.remedies}


def half(kernel: str) -> str:
    """The name of a kernel of cuDNN for float16."""
    return f"void {kernel}<__half, __half, float, 1, 128>(int, int, __half const*)"


#: The kernels of one time step of the standard algorithm, and those of a persistent one.
STANDARD = (("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn", 8.0), (half("elemWiseRNNcell"), 4.0))
STANDARD_BACKWARD = (
    ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nt", 8.0),
    (half("LSTM_elementWise_bp1"), 4.0),
)
SMALL = ((half("RNN_blockPersist_fp_LSTM_HMMA"), 40.0),)
SMALL_BACKWARD = ((half("RNN_blockPersist_bp_LSTM_HMMA"), 60.0),)


def training(
    device: Event,
    *,
    hidden: int,
    batch: int,
    inputs: int | None = None,
    time_steps: int = 10,
    layers: int = 1,
    directions: int = 1,
    dtype: str = "c10::Half",
    kernels: Kernels | None = None,
    backward: Kernels | None = None,
) -> Document:
    """Two steps of training of nn.LSTM on cuDNN; with no kernels given those of the standard."""
    inputs = inputs or hidden
    units, document = layers * directions, Document(device)
    state = [units, batch, hidden]
    widths = [inputs if layer == 0 else directions * hidden for layer in range(layers)]
    weights = [
        shape
        for width in widths
        for _ in range(directions)
        for shape in ([4 * hidden, width], [4 * hidden, hidden], [4 * hidden], [4 * hidden])
    ]
    data = [time_steps, batch, inputs]
    outer = [data, [state, state], weights, [], [], [], [], [], []]
    inner = [data, weights, [], [sum(map(_elements, weights))], state, state]
    first = STANDARD * time_steps * units if kernels is None else kernels
    second = STANDARD_BACKWARD * time_steps * units if backward is None else backward
    for number in (1, 2):
        since_us = document.host_us
        layer = {"name": "aten::_cudnn_rnn", "shapes": inner, "dtypes": [dtype] * 6}
        sequence = {"Sequence number": number, "Fwd thread id": 0}
        document.op(
            "aten::lstm",
            outer,
            [dtype, "TensorList", "TensorList"],
            inside=[{**layer, "kernels": first, **sequence}],
        )
        made = {"Sequence number": number, "Fwd thread id": 1, "thread": AUTOGRAD}
        document.op(
            "autograd::engine::evaluate_function: CudnnRnnBackward0",
            inside=[
                {
                    "name": "CudnnRnnBackward0",
                    "inside": [{"name": "aten::_cudnn_rnn_backward", "kernels": second}],
                    **made,
                }
            ],
            **made,
        )
        document.step(number, since_us=since_us)
    return document


def _elements(shape: Sequence[int]) -> int:
    return shape[0] * (shape[1] if len(shape) == 2 else 1)

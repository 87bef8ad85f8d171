"""The step loop for OpenVINO, with its performance counters of nodes.

A counter is a node's mean time over all runs so far, in whole microseconds. The time of run n is
n · mean(n) − (n − 1) · mean(n − 1), with an error of n µs. Gaps between nodes are not measured, and
appear at the end of a call.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import onnx

from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.loops import _cpu, onnx as _onnx
from lstmprof.capture.worker.loops.onnx import OP, NodeEvent
from lstmprof.capture.worker.machine.host import thread_count
from lstmprof.capture.worker.shapes import inputs_of_tensors

# block OpenVINO's telemetry, which forks a process to report the import to OpenVINO's makers
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
openvino = importlib.import_module("openvino")

DEVICE = "CPU"
#: Precision -> OpenVINO's name of the type in which its CPU plugin computes.
HINTS = {"fp32": "f32", "amp-bf16": "bf16"}
#: Functions for CPUs. NumPy's matmul measures the peak rate: OpenVINO's needs a graph.
device_of, set_threads, product, copy = _cpu.device_of, _cpu.set_threads, _cpu.product, _cpu.copy


class Engine(NamedTuple):
    compiled: Any
    request: Any
    profiled: bool


class Trainer(_onnx.Trainer):
    profiler = "OpenVINO's counters"

    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request, device)
        self.core = openvino.Core()
        self.hint = HINTS[request.precision]
        able = self.core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
        if self.hint == "bf16" and "BF16" not in able:
            raise CaptureError("OpenVINO has no bfloat16 on this CPU", "use --precision fp32")
        self.counters = NodeCounters()

    def engine(self, profiled: bool) -> Engine:
        options = {
            "INFERENCE_PRECISION_HINT": self.hint,
            "INFERENCE_NUM_THREADS": thread_count(),
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # keep the worker's CPU affinity
            "CPU_DENORMALS_OPTIMIZATION": not self.request.keep_denormals,
            "PERF_COUNT": profiled,
        }
        compiled = self.core.compile_model(self.core.read_model(self.model), DEVICE, options)
        self.counters = NodeCounters()
        return Engine(compiled, compiled.create_infer_request(), profiled)

    def run(self, engine: Engine, names: Sequence[str]) -> List[Any]:
        results = engine.request.infer(self.fed, share_inputs=True, share_outputs=True)
        return [results[engine.compiled.output(name)] for name in names]

    def copied(self, outcome: Any) -> float:
        """Read the loss and the counters before the next run overwrites both."""
        calls = [event for event in self.ranges if event.name == "program"]
        if self.running.profiled and calls:
            self.counters.read(self.running.request.profiling_info, calls[-1])
        return float(outcome)

    def settled(self, engine: Engine) -> None:
        """Store the counters of the first runs, which get no events in the profile."""
        self.counters.inputs = inputs_of(engine.compiled)
        self.counters.begin(engine.request.profiling_info, _onnx.SETTLING)

    def nodes(self, engine: Engine) -> Sequence[NodeEvent]:
        return self.counters.events

    def settings(self) -> Dict[str, Any]:
        return {
            "matmul_precision": self.hint,
            "intra_op_threads": thread_count(),
            "inter_op_threads": 1,
        }

    def facts(self) -> Dict[str, Any]:
        version = openvino.__version__.partition("-")[0]
        versions = {"openvino": version, "onnx": onnx.__version__, "cuda": None}
        return dict(super().facts(), versions=versions, backend=DEVICE)


class NodeCounters:
    """Computes the time of each node in each run from OpenVINO's counters."""

    def __init__(self) -> None:
        self.events: List[NodeEvent] = []
        self.inputs: Mapping[str, Dict[str, Any]] = {}
        self._runs = 0
        self._totals_ns: Dict[str, int] = {}

    def begin(self, infos: Sequence[Any], runs: int) -> None:
        """Store the nodes' total times in the first runs, which get no events."""
        self._runs = runs
        self._totals_ns = {info.node_name: runs * mean_ns(info) for info in infos}

    def read(self, infos: Sequence[Any], call: NodeEvent) -> None:
        """Add one event per node, for one more run, which took place during ``call``."""
        self._runs += 1
        at_ns = call.start_ns
        for info in infos:
            total_ns = self._runs * mean_ns(info)
            took_ns = max(total_ns - self._totals_ns.get(info.node_name, 0), 0)
            self._totals_ns[info.node_name] = total_ns
            end_ns = min(at_ns + took_ns, call.end_ns)
            if end_ns > at_ns:
                facts = self.inputs.get(info.node_name, {})
                self.events.append(event_of(info, at_ns, end_ns, facts))
            at_ns = end_ns


def mean_ns(info: Any) -> int:
    """Return the mean time of a node's runs so far."""
    took = info.real_time
    return int(1000 * (took.days * 86_400_000_000 + took.seconds * 1_000_000 + took.microseconds))


def inputs_of(compiled: Any) -> Dict[str, Dict[str, Any]]:
    """Return the shapes and types of each node's inputs, as in torch.profiler's JSON."""
    nodes = compiled.get_runtime_model().get_ops()
    return {node.get_friendly_name(): _inputs(node) for node in nodes}


def _inputs(node: Any) -> Dict[str, Any]:
    tensors = [
        (_static(tensor.get_partial_shape()), tensor.get_element_type().get_type_name())
        for tensor in node.inputs()
    ]
    _, shapes, dtypes = inputs_of_tensors("", tensors)
    return {"Input Dims": shapes, "Input type": dtypes}


def _static(shape: Any) -> Optional[List[int]]:
    return None if shape.is_dynamic else list(shape.to_shape())


def event_of(info: Any, start_ns: int, end_ns: int, inputs: Mapping[str, Any]) -> NodeEvent:
    facts = {"node": info.node_name, "kernel": info.exec_type, **inputs}
    return NodeEvent(OP, "openvino::" + info.node_type, start_ns, end_ns, facts)


def out_of_memory(error: BaseException) -> bool:
    return "bad_alloc" in str(error) or "Failed to allocate" in str(error)

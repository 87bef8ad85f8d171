"""Common code of the step loops of engines that run an ONNX graph (forward only).

The loss is part of the graph: its nodes are named ``loss/…``. The engine's own profiler times the
nodes. The trace has torch.profiler's format, which lstmprof and Perfetto read.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.machine.host import cpu_facts
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.implementations import onnx
from lstmprof.workloads import Workload

LOSS = "loss/"
#: Number of runs before the profile, in which an engine allocates memory.
SETTLING = 2

RANGE, OP = "user_annotation", "cpu_op"


class NodeEvent(NamedTuple):
    """One event of a trace, with times of time.time_ns."""

    category: str  # RANGE or OP
    name: str
    start_ns: int
    end_ns: int
    facts: Dict[str, Any]


def loss_nodes(workload: Workload, graph: onnx.Graph, outputs: str) -> str:
    """Add the mean loss to the graph; return the name of its output."""
    if workload.loss == "mean":
        return graph.node("ReduceMean", LOSS + "mean", outputs, keepdims=0)
    if workload.loss == "mse":
        off = graph.node("Sub", LOSS + "off", outputs, "targets")
        squared = graph.node("Mul", LOSS + "squared", off, off)
        return graph.node("ReduceMean", LOSS + "mean", squared, keepdims=0)
    scores = graph.node("LogSoftmax", LOSS + "scores", outputs, axis=-1)
    right = graph.node("GatherElements", LOSS + "right", scores, "targets", axis=-1)
    mean = graph.node("ReduceMean", LOSS + "mean", right, keepdims=0)
    return graph.node("Neg", LOSS + "negated", mean)


def data(workload: Workload, batch: Any) -> Dict[str, Any]:
    """Return the arrays for the graph's inputs: ``{"inputs": …, "targets": …}``."""
    dtype = np.int64 if workload.vocabulary else np.float32
    fed = {"inputs": np.ascontiguousarray(batch.inputs, dtype)}
    if workload.variable_length:
        fed["lengths"] = batch.lengths.astype(np.int32)
    if workload.loss == "ce":
        fed["targets"] = batch.targets.astype(np.int64)[..., None]
    if workload.loss == "mse":
        fed["targets"] = batch.targets.astype(np.float32)
    return fed


class Trainer(loops.Trainer):
    """One ONNX graph with its data, run by an engine such as ONNX Runtime."""

    def __init__(self, request: CaptureRequest, device: str) -> None:
        super().__init__(request)
        self.request, self.device = request, device
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        self.fed = data(self.workload, workloads.batch(self.workload, request.seed))
        graph = onnx.Graph()
        self.outputs = self.implementation.forward(self.module, graph)
        self.loss_name = loss_nodes(self.workload, graph, self.outputs)
        self.model = onnx.serialized(graph, self.fed, [self.outputs, self.loss_name])
        self.running: Any = None  # the first step builds it, as in other loops
        self.ranges: List[NodeEvent] = []

    def engine(self, profiled: bool) -> Any:
        """Create an engine that runs the graph and, if ``profiled``, times its nodes."""
        raise NotImplementedError

    def nodes(self, engine: Any) -> Sequence[NodeEvent]:
        """Return one event per recorded run of a node."""
        raise NotImplementedError

    def settled(self, engine: Any) -> None:
        """Prepare for recording, after the engine's first runs, which are not recorded."""

    def run(self, engine: Any, names: Sequence[str]) -> List[Any]:
        """Run one forward pass; return the outputs of these names."""
        raise NotImplementedError

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            if self.running is None:
                self.running = self.engine(False)
            with ranges("program"):
                return self.run(self.running, [self.loss_name])[0]

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[List[NodeEvent]]:
        """Run steps with an engine that times nodes; fill the yielded list at the end."""
        plain, self.running = self.running, self.engine(True)
        for _ in range(SETTLING):
            self.run(self.running, [self.loss_name])
        self.settled(self.running)
        events: List[NodeEvent] = []
        self.ranges = []
        began_ns = time.time_ns()
        try:
            yield events
            recorded = [node for node in self.nodes(self.running) if node.start_ns >= began_ns]
            events += self.ranges + phases(recorded, self.ranges) + recorded
        finally:
            self.running = plain

    @contextlib.contextmanager
    def _range(self, name: str) -> Iterator[None]:
        start_ns = time.time_ns()
        yield
        self.ranges.append(NodeEvent(RANGE, name, start_ns, time.time_ns(), {}))

    def annotated(self, number: int) -> Ranges:
        return self._range

    def written(self, session: List[NodeEvent], folder: str) -> Tuple[str, str]:
        raw = os.path.join(folder, "trace.json")
        write(session, raw)
        return raw, self.row.name + ".trace.json"

    def facts(self) -> Dict[str, Any]:
        return cpu_facts()


def phases(nodes: Sequence[NodeEvent], ranges: Sequence[NodeEvent]) -> List[NodeEvent]:
    """Return the ranges ``forward`` and ``loss`` of each call of the engine."""
    calls = [event for event in ranges if event.name == "program"]
    return [
        phase
        for call in calls
        for phase in _phases([n for n in nodes if call.start_ns <= n.start_ns < call.end_ns])
    ]


def _phases(nodes: Sequence[NodeEvent]) -> List[NodeEvent]:
    ranges: List[NodeEvent] = []
    for node in sorted(nodes, key=lambda event: event.start_ns):
        phase = "loss" if str(node.facts["node"]).startswith(LOSS) else "forward"
        if ranges and ranges[-1].name == phase:
            ranges[-1] = ranges[-1]._replace(end_ns=node.end_ns)
        else:
            ranges.append(NodeEvent(RANGE, phase, node.start_ns, node.end_ns, {}))
    return ranges


def write(events: Sequence[NodeEvent], path: str) -> None:
    """Write events as torch.profiler's JSON."""
    base_ns = min((event.start_ns for event in events), default=0)
    rows = [
        {
            **{"ph": "X", "cat": event.category, "name": event.name},
            **{"pid": os.getpid(), "tid": os.getpid()},
            **{"ts": (event.start_ns - base_ns) / 1000},
            **{"dur": (event.end_ns - event.start_ns) / 1000, "args": event.facts},
        }
        for event in events
    ]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schemaVersion": 1, "baseTimeNanoseconds": base_ns, "traceEvents": rows}, file)

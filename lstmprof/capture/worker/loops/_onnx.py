"""What the loops of engines that run an ONNX graph forward share: its loss, its data, its trace.

A step is one call of the engine, which returns the loss: the graph has the loss's nodes behind the
network's, called ``loss/…``. Arrays of NumPy need no transfer, so that the host's only ranges are
``step`` and ``program``. The engine's own profiler tells the nodes: they are written as
torch.profiler writes operators, called by their engine (``onnxruntime::LSTM``), which every reader
of lstmprof and Perfetto knows; ``forward`` and ``loss`` are ranges around the nodes of these names.
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
from lstmprof.capture.worker.host import cpu_facts
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.implementations import onnx
from lstmprof.workloads import Workload

LOSS = "loss/"
#: Runs of a profiled engine before the first that counts: they allocate its memory
SETTLING = 2

RANGE, OP = "user_annotation", "cpu_op"


class NodeEvent(NamedTuple):
    """One event of a trace; times of time.time_ns."""

    category: str  # RANGE or OP
    name: str
    start_ns: int
    end_ns: int
    facts: Dict[str, Any]


def loss_nodes(workload: Workload, graph: onnx.Graph, outputs: str) -> str:
    """The mean loss over the batch; its name. ``targets`` as ``data`` feeds them."""
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
    """What the graph is fed: ``inputs``, and ``lengths`` and ``targets`` where it reads them.

    Classes stand in an axis of their own, as GatherElements takes them.
    """
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
    """One graph with its weights and data.

    A loop's own has ``engine(profiled)``, which returns a call that runs the graph on what it is
    fed and returns ``outputs``, and ``nodes(engine)``: what it recorded since it was made.
    """

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
        self.running: Any = None  # the first step builds it, as elsewhere
        self.ranges: List[NodeEvent] = []

    def engine(self, profiled: bool) -> Any:
        """The graph, ready to run."""
        raise NotImplementedError

    def nodes(self, engine: Any) -> Sequence[NodeEvent]:
        """What ``engine`` recorded."""
        raise NotImplementedError

    def settled(self, engine: Any) -> None:
        """Called before the first run that is recorded."""

    def run(self, engine: Any, names: Sequence[str]) -> List[Any]:
        """The outputs of these names, of one forward pass."""
        raise NotImplementedError

    def step(self, ranges: Ranges) -> Any:
        """One forward pass; the loss."""
        with ranges("step"):
            if self.running is None:
                self.running = self.engine(False)
            with ranges("program"):
                return self.run(self.running, [self.loss_name])[0]

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[List[NodeEvent]]:
        """A profiled engine in place of the timed one; the events that it has at the end."""
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
        """Ranges among the events."""
        return self._range

    def written(self, session: List[NodeEvent], folder: str) -> Tuple[str, str]:
        """The events as a trace."""
        raw = os.path.join(folder, "trace.json")
        write(session, raw)
        return raw, self.row.name + ".trace.json"

    def facts(self) -> Dict[str, Any]:
        """What run.json says of the device; the loop's own adds ``versions`` and ``backend``."""
        return cpu_facts()


def phases(nodes: Sequence[NodeEvent], ranges: Sequence[NodeEvent]) -> List[NodeEvent]:
    """In each call, of ``ranges``, a range around the network's nodes and one around the loss's.

    Engines rename and add nodes: what is not called by the loss is the network's.
    """
    calls = [event for event in ranges if event.name == "program"]
    return [phase for call in calls for phase in _phases([n for n in nodes if _holds(call, n)])]


def _holds(call: NodeEvent, node: NodeEvent) -> bool:
    return call.start_ns <= node.start_ns < call.end_ns


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
    """The trace as JSON, dated."""
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

"""The step loop for ONNX Runtime, with its own profiler.

Profiled steps use a second session, because ONNX Runtime profiles a session from its beginning.
Times are whole microseconds, so a node below 1 µs has length 0.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Dict, List, Sequence

import onnx
import onnxruntime

from lstmprof.capture.worker.loops import _cpu, onnx as _onnx
from lstmprof.capture.worker.loops.onnx import OP, NodeEvent
from lstmprof.capture.worker.machine.host import thread_count

PROVIDER = "CPUExecutionProvider"
#: Suffix that ONNX Runtime appends to a node's name.
SUFFIX = "_kernel_time"
#: Functions for CPUs. NumPy's matmul measures the peak rate: ONNX Runtime's needs a graph.
device_of, set_threads, product, copy = _cpu.device_of, _cpu.set_threads, _cpu.product, _cpu.copy


class Trainer(_onnx.Trainer):
    profiler = "ONNX Runtime's own"

    def engine(self, profiled: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = thread_count(), 1
        options.use_deterministic_compute = self.request.deterministic
        flushed = "0" if self.request.keep_denormals else "1"
        options.add_session_config_entry("session.set_denormal_as_zero", flushed)
        if profiled:
            options.enable_profiling = True
            options.profile_file_prefix = os.path.join(tempfile.mkdtemp(), "profile")
        return onnxruntime.InferenceSession(self.model, options, providers=[PROVIDER])

    def run(self, engine: Any, names: Sequence[str]) -> List[Any]:
        outputs: List[Any] = engine.run(list(names), self.fed)
        return outputs

    def nodes(self, engine: Any) -> Sequence[NodeEvent]:
        """End the session's profile; return its nodes."""
        start_ns = engine.get_profiling_start_time_ns()
        path = engine.end_profiling()
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        os.remove(path)
        os.rmdir(os.path.dirname(path))
        return [event_of(e, start_ns) for e in content if e.get("name", "").endswith(SUFFIX)]

    def settings(self) -> Dict[str, Any]:
        return {
            "deterministic": self.request.deterministic,
            "intra_op_threads": thread_count(),
            "inter_op_threads": 1,
        }

    def facts(self) -> Dict[str, Any]:
        versions = {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__, "cuda": None}
        return dict(super().facts(), versions=versions, backend=PROVIDER)


def event_of(entry: Dict[str, Any], start_ns: int) -> NodeEvent:
    args = entry["args"]
    inputs = [item for described in args.get("input_type_shape", ()) for item in described.items()]
    began_ns = start_ns + 1000 * entry["ts"]
    facts = {
        "node": entry["name"][: -len(SUFFIX)],
        "Input Dims": [shape for _, shape in inputs],
        "Input type": [dtype for dtype, _ in inputs],
    }
    name = "onnxruntime::{}".format(args["op_name"])
    return NodeEvent(OP, name, began_ns, began_ns + 1000 * entry["dur"], facts)


def out_of_memory(error: BaseException) -> bool:
    return "bad_alloc" in str(error) or "Failed to allocate memory" in str(error)

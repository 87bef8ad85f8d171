"""TensorFlow 1's tracing of session runs, and facts about framework and device.

A traced ``Session.run`` returns the times of the graph's nodes. TensorFlow's ``timeline`` writes
the nodes of all runs to one Chrome trace.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import step_stats_pb2
from tensorflow.python.client import device_lib, timeline

from lstmprof.base.errors import CaptureError
from lstmprof.capture.worker.machine import host
from lstmprof.capture.worker.machine.settings import denormal_numbers, denormals
from lstmprof.capture.worker.profilers import Profiler, keras_version
from lstmprof.capture.worker.profiling import Ranges

#: Name in run.json; not ``tensorflow``, because lstmprof's advice differs for TensorFlow 1.
FRAMEWORK = "tensorflow1"
#: Category and process name of the ranges that lstmprof adds to TensorFlow's events.
RANGE, PROCESS = "lstmprof", "lstmprof"
_DEVICE_NAME = re.compile(r"name: ([^,]+)")


class SessionTrace:
    """The traced ``Session.run`` calls and the ranges of one profiler session."""

    def __init__(self) -> None:
        self.runs: List[Any] = []  # RunMetadata
        self.ranges: List[Tuple[str, int, int]] = []  # (name, start, end) in ns since 1970

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        start_ns = time.time_ns()
        yield
        self.ranges.append((name, start_ns, time.time_ns()))

    def options(self) -> Dict[str, Any]:
        """Return the arguments of ``Session.run`` that trace a run."""
        metadata = tf.RunMetadata()
        self.runs.append(metadata)
        return {
            "options": tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
            "run_metadata": metadata,
        }

    def write(self, path: str) -> None:
        """Write all runs and ranges as a Chrome trace."""
        drawn = timeline.Timeline(self._step_stats())
        text = drawn.generate_chrome_trace_format(show_dataflow=False, show_memory=False)
        document = json.loads(text)
        document["traceEvents"] += self._range_events(document["traceEvents"])
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)

    def _step_stats(self) -> Any:
        """Join the statistics of all runs, so that each device occurs once."""
        devices: Dict[str, Any] = {}
        together = step_stats_pb2.StepStats()
        for metadata in self.runs:
            for device in metadata.step_stats.dev_stats:
                if device.device not in devices:
                    devices[device.device] = together.dev_stats.add(device=device.device)
                devices[device.device].node_stats.extend(device.node_stats)
        return together

    def _range_events(self, drawn: List[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
        """Yield the ranges as Chrome trace events of a separate process."""
        pid = 1 + max((event["pid"] for event in drawn), default=0)
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": PROCESS}}
        for name, start_ns, end_ns in self.ranges:
            start_us, end_us = start_ns // 1000, -(-end_ns // 1000)
            place = {"ph": "X", "cat": RANGE, "name": name, "pid": pid, "tid": 0}
            arguments = {"pid": os.getpid()}
            yield dict(place, ts=start_us, dur=end_us - start_us, args=arguments)


class Tensorflow1Profiler(Profiler):
    profiler = "RunMetadata"
    device = "cpu"
    has_known_cost = False

    def __init__(self) -> None:
        self.trace: Optional[SessionTrace] = None

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[SessionTrace]:
        self.trace = trace = SessionTrace()
        try:
            yield trace
        finally:
            self.trace = None

    def annotated(self, number: int) -> Ranges:
        assert self.trace is not None
        return self.trace.range

    def written(self, session: SessionTrace, folder: str) -> Tuple[str, str]:
        os.makedirs(folder, exist_ok=True)
        raw = os.path.join(folder, "timeline.json")
        session.write(raw)
        return raw, self.title + ".timeline.json"

    def settings(self) -> Dict[str, Any]:
        threads = host.thread_count()
        return {
            "intra_op_threads": threads,
            "inter_op_threads": threads,
            "framework_denormals": self._denormals() if self.device == "cpu" else None,
        }

    def _denormals(self) -> Any:
        """Return how TensorFlow treats denormals, by running one op in the session."""
        numbers = denormal_numbers()
        given = tf.placeholder(tf.float32, numbers.shape)
        return denormals(tf.get_default_session().run(given * 2.0, {given: numbers}))

    def facts(self) -> Dict[str, Any]:
        return {
            "framework": FRAMEWORK,
            "device": self.device,
            "device_name": None if self.device == "cpu" else _gpu_name(),
            "device_memory_bytes": None,
            "threads": host.thread_count(),
            "versions": {
                "tensorflow": tf.__version__,
                "keras": keras_version(),
                "cuda": None,
                "cudnn": None,
            },
        }


def _gpu_name() -> Optional[str]:
    """Return the GPU's name, such as ``Tesla V100-SXM2-16GB``."""
    for device in device_lib.list_local_devices():
        match = _DEVICE_NAME.search(device.physical_device_desc)
        if device.device_type == "GPU" and match:
            return match.group(1)
    return None


def config(device: str) -> Any:
    threads = host.thread_count()
    made = tf.ConfigProto(intra_op_parallelism_threads=threads)
    made.inter_op_parallelism_threads = threads
    if device == "cpu":
        made.device_count["GPU"] = 0
    else:
        made.gpu_options.visible_device_list = device.partition(":")[2]
    return made


def sees_gpu(device: str) -> bool:
    if not tf.test.is_built_with_cuda():
        return False
    try:
        with tf.Session(graph=tf.Graph(), config=config(device)) as session:
            return any(each.device_type == "GPU" for each in session.list_devices())
    except tf.errors.InvalidArgumentError:  # no GPU has this number
        return False


def refuse_unless_tensorflow_1() -> None:
    if not tf.__version__.startswith("1."):
        raise CaptureError(
            "the implementation needs TensorFlow 1, but {1} has tensorflow {0}".format(
                tf.__version__, sys.executable
            ),
            "use --era tensorflow-1.15.5",
        )

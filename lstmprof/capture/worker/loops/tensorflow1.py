"""The step loop for TensorFlow 1, and for Keras on TensorFlow 1.

A training step is one ``session.run``. The phases of a step are name scopes, and the backward pass
is ``gradients/…``. The first step completes the graph, which counts as compile time.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from lstmprof import workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.request import CaptureRequest, wanted
from lstmprof.capture.worker import loops, shapes
from lstmprof.capture.worker.loops import laid, lengths_of, targets_of
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.capture.worker.machine.peaks import Run
from lstmprof.capture.worker.profilers import tensorflow1 as profilers
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.capture.worker.shapes import inputs_of
from lstmprof.implementations import FRAMEWORKS
from lstmprof.workloads import Workload


def device_of(requested: str) -> str:
    profilers.refuse_unless_tensorflow_1()
    if requested == "cpu" or (requested == "auto" and not cuda_devices()):
        return "cpu"
    device = "cuda:0" if requested == "auto" else requested
    if profilers.sees_gpu(device):
        return device
    if requested == "auto":
        return "cpu"
    raise CaptureError(
        "device {} is not available to tensorflow {}".format(requested, tf.__version__),
        "give --device cpu, or install the CUDA libraries that this TensorFlow was built for",
    )


def set_threads(threads: int) -> None:
    """Do nothing: each session sets its own number of threads."""


def refuse_unless_possible(request: CaptureRequest) -> None:
    """Raise an error if a request needs more than Keras on TensorFlow 1 offers."""
    refuses = FRAMEWORKS[profilers.FRAMEWORK]
    for need in wanted(request):
        if need in refuses:
            raise CaptureError(
                "{} does not support {} on tensorflow {}: {}".format(
                    request.implementation, need, tf.__version__, refuses[need]
                ),
                "omit it, or use a TensorFlow 2",
            )


class Fed:
    """A network in the graph, with the arrays to feed to the placeholders."""

    def __init__(self, module: Any, workload: Workload, time_major: bool, seed: int) -> None:
        batch: Any = workloads.batch(workload, seed)
        self.workload, self.time_major = workload, time_major
        self.feed: Dict[Any, Any] = {}
        arrays = laid(batch.inputs, time_major), *lengths_of(workload, batch)
        given = [self._placeholder(array) for array in arrays]
        with tf.name_scope("forward"):
            self.outputs = module(*given)
        self._targets = targets_of(workload, batch, time_major)

    def _placeholder(self, array: Any) -> Any:
        node = tf.placeholder(array.dtype, array.shape)
        self.feed[node] = array
        return node

    def loss(self) -> Any:
        """Add the mean loss to the graph."""
        targets = [self._placeholder(array) for array in self._targets]
        with tf.name_scope("loss"):
            return loss_of(self.workload, self.outputs, targets, self.time_major)


class Trainer(profilers.Tensorflow1Profiler, loops.Trainer):
    def __init__(self, request: CaptureRequest, device: str) -> None:
        refuse_unless_possible(request)
        loops.Trainer.__init__(self, request)
        profilers.Tensorflow1Profiler.__init__(self)
        self.device = device
        self.session = tf.Session(config=profilers.config(device))
        self.session.__enter__()  # never left, because weights are set in this session
        self.module = self.implementation.build(self.workload)
        time_major = self.implementation.TIME_MAJOR
        self.fed = Fed(self.module, self.workload, time_major, request.seed)
        self.session.run(tf.global_variables_initializer())
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        self.optimizer = optimizer_of(self.workload)
        self.fetches: Optional[List[Any]] = None  # the first step adds them to the graph

    def _made(self) -> List[Any]:
        """Add a step's nodes to the graph, and return the nodes to fetch."""
        loss = self.fed.loss()
        if self.forward_only:
            return [loss]
        variables = list(self.implementation.parameters(self.module).values())
        there = set(tf.global_variables())
        gradients = tf.gradients(loss, variables)
        with tf.name_scope("optimizer"):
            update = self.optimizer.apply_gradients(list(zip(gradients, variables)))
        own = [variable for variable in tf.global_variables() if variable not in there]
        self.session.run(tf.variables_initializer(own))
        return [loss, update]

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            if self.fetches is None:
                self.fetches = self._made()
            options = {} if self.trace is None else self.trace.options()
            with ranges("program"):
                return self.session.run(self.fetches, self.fed.feed, **options)[0]

    def shapes(self, folder: str) -> Iterator[shapes.OpInputs]:
        """Read input shapes from the graph, because TensorFlow 1's timeline has none."""
        return inputs_of(tf.get_default_graph().get_operations())


def optimizer_of(workload: Workload) -> Any:
    """Return an optimizer that applies each dense gradient by one fused kernel."""
    if workload.optimizer == "sgd":
        return tf.train.GradientDescentOptimizer(workload.learning_rate)
    return tf.train.AdamOptimizer(workload.learning_rate)


def loss_of(workload: Workload, outputs: Any, targets: List[Any], time_major: bool) -> Any:
    if workload.loss == "mean":
        return tf.reduce_mean(outputs)
    if workload.loss == "ce":
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets[0], logits=outputs)
    elif workload.loss == "mse":
        losses = tf.square(outputs - targets[0])
    else:
        # move the blank class from first, as in lstmprof's workloads, to last, as in TensorFlow 1
        blank_last = tf.concat([outputs[:, :, 1:], outputs[:, :, :1]], 2)
        labels = _sparse(targets[0] - 1)
        losses = tf.nn.ctc_loss(labels, blank_last, targets[1], time_major=time_major)
    return tf.reduce_mean(losses)


def _sparse(labels: Any) -> Any:
    """Return labels for CTC as a sparse tensor with constant indices."""
    shape = labels.shape.as_list()
    places = np.argwhere(np.ones(shape, bool))
    return tf.SparseTensor(places, tf.reshape(labels, [-1]), shape)


def product(size: int, device: str, dtype: str) -> Run:
    def node() -> Any:
        numbers = (tf.cast(tf.random_uniform([size, size]), dtype) for _ in range(2))
        return tf.matmul(*map(tf.Variable, numbers))

    return _repeated(device, node)


def copy(buffer: int, device: str) -> Run:
    count = buffer // 4

    def node() -> Any:
        source, target = (tf.Variable(tf.ones([count])) for _ in range(2))
        return tf.assign(target, source)

    return _repeated(device, node)


def _repeated(device: str, node: Any) -> Run:
    """Return a function that computes a node repeatedly in a separate session."""
    graph = tf.Graph()
    session = tf.Session(graph=graph, config=profilers.config(device))
    with graph.as_default():
        work = node().op
        session.run(tf.global_variables_initializer())

    def run(times: int) -> None:
        for _ in range(times):
            session.run(work)

    return run


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, tf.errors.ResourceExhaustedError)

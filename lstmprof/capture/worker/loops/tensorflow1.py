"""The step loop for TensorFlow 1, and for Keras on TensorFlow 1: a graph and a session.

A training step is one ``session.run`` of the loss and the optimizer's update, with the batch as its
feed. The session copies the batch, so inside ``step`` the only range is ``program``, around the
run. The first step adds loss, gradients and optimizer to the graph, and the session's first run
optimises the graph; both count as compile time. The phases are name scopes of the graph
(``forward``, ``loss``, ``optimizer``; ``gradients/…`` is the backward pass). TensorFlow's threads
flush denormals.
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
    """Return the device to run on: ``cpu`` or ``cuda:N``."""
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
    """Do nothing: each session has its own setting (``profilers.tensorflow1.config``)."""


def refuse_unless_possible(request: CaptureRequest) -> None:
    """Raise an error if Keras's ``request`` needs more than TensorFlow 1, its backend, can do."""
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
    """A network's nodes for outputs and loss, placeholders for the batch, and arrays to feed."""

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
        """Return the mean loss, with the targets as placeholders."""
        targets = [self._placeholder(array) for array in self._targets]
        with tf.name_scope("loss"):
            return loss_of(self.workload, self.outputs, targets, self.time_major)


class Trainer(profilers.Tensorflow1Profiler, loops.Trainer):
    """One implementation with its weights, data and optimizer in one session."""

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
        self.fetches: Optional[List[Any]] = None  # the first step creates them

    def _made(self) -> List[Any]:
        """Add the nodes of a step to the graph; return [loss], in training [loss, update]."""
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
        """Run one step; return the loss."""
        with ranges("step"):
            if self.fetches is None:
                self.fetches = self._made()
            options = {} if self.trace is None else self.trace.options()
            with ranges("program"):
                return self.session.run(self.fetches, self.fed.feed, **options)[0]

    def shapes(self, folder: str) -> Iterator[shapes.OpInputs]:
        """Yield the inputs of ops from the graph, because the timeline has none."""
        return inputs_of(tf.get_default_graph().get_operations())


def optimizer_of(workload: Workload) -> Any:
    """Return the optimizer; it runs one fused kernel for each variable whose gradient is dense."""
    if workload.optimizer == "sgd":
        return tf.train.GradientDescentOptimizer(workload.learning_rate)
    return tf.train.AdamOptimizer(workload.learning_rate)


def loss_of(workload: Workload, outputs: Any, targets: List[Any], time_major: bool) -> Any:
    """Return the mean loss over the batch; outputs are (batch, classes), or one per time step.

    ``targets`` come from ``targets_of``. For CTC, TensorFlow expects the blank as the last class;
    in a workload the blank is the first class.
    """
    if workload.loss == "mean":
        return tf.reduce_mean(outputs)
    if workload.loss == "ce":
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets[0], logits=outputs)
    elif workload.loss == "mse":
        losses = tf.square(outputs - targets[0])
    else:
        blank_last = tf.concat([outputs[:, :, 1:], outputs[:, :, :1]], 2)
        labels = _sparse(targets[0] - 1)
        losses = tf.nn.ctc_loss(labels, blank_last, targets[1], time_major=time_major)
    return tf.reduce_mean(losses)


def _sparse(labels: Any) -> Any:
    """Return ``labels`` (batch, labels) as a sparse tensor with constant indices, for CTC."""
    shape = labels.shape.as_list()
    places = np.argwhere(np.ones(shape, bool))
    return tf.SparseTensor(places, tf.reshape(labels, [-1]), shape)


def product(size: int, device: str, dtype: str) -> Run:
    """Return a function that multiplies two matrices (size, size) a given number of times."""

    def node() -> Any:
        numbers = (tf.cast(tf.random_uniform([size, size]), dtype) for _ in range(2))
        return tf.matmul(*map(tf.Variable, numbers))

    return _repeated(device, node)


def copy(buffer: int, device: str) -> Run:
    """Return a function that copies ``buffer`` bytes a given number of times."""
    count = buffer // 4

    def node() -> Any:
        source, target = (tf.Variable(tf.ones([count])) for _ in range(2))
        return tf.assign(target, source)

    return _repeated(device, node)


def _repeated(device: str, node: Any) -> Run:
    """Return a function that computes the node ``node()`` repeatedly, in its own session."""
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
    """Return whether ``error`` is TensorFlow's out-of-memory error."""
    return isinstance(error, tf.errors.ResourceExhaustedError)

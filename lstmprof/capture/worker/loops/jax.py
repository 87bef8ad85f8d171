"""The step loop for JAX, with JAX's profiler.

A training step is one jitted function. Its phases are named scopes, which the profile shows in the
HLO, not in events.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import loops
from lstmprof.capture.worker.machine import driver
from lstmprof.capture.worker.machine.host import thread_count
from lstmprof.capture.worker.machine.peaks import Run
from lstmprof.capture.worker.profilers import jax as profilers
from lstmprof.capture.worker.profiling import Ranges
from lstmprof.capture.worker.users_file import Arrays, Step, UsersFile
from lstmprof.workloads import Workload

#: Precision -> JAX's name; ``tensorfloat32`` (Precision.HIGH) uses TF32 if the GPU has TF32.
PRODUCTS = {"fp32": "highest", "tf32": "tensorfloat32"}

Parameters = Dict[str, Any]
Data = Tuple[Any, ...]


def device_of(requested: str) -> str:
    if requested == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return requested
    return driver.chosen(requested, driver.jax_sees)


def _gpus() -> List[Any]:
    try:
        return list(jax.devices("gpu"))
    except RuntimeError:  # no such platform
        return []


def set_threads(threads: int) -> None:
    """Do nothing, because XLA starts one thread for each CPU of the process."""


class Trainer(profilers.JaxProfiler, loops.Trainer):
    def __init__(self, request: CaptureRequest, device: str) -> None:
        jax.config.update("jax_default_matmul_precision", PRODUCTS[request.precision])
        super().__init__(request)
        self.device_name = device
        self.number = 0 if device == "cpu" else int(device.partition(":")[2])
        self.device = (jax.devices("cpu") if device == "cpu" else _gpus())[self.number]
        jax.config.update("jax_default_device", self.device)
        self.module = self.implementation.build(self.workload)
        self.implementation.load(self.module, workloads.weights(self.workload, request.seed))
        parameters = self.implementation.parameters(self.module)
        state = initial_state(self.workload, parameters)
        self.state = jax.device_put(state, self.device)
        self.loss_of = self.checked(loss_of)
        self.inputs, self.targets = self._data(request.seed)
        body = self._forward_step if self.forward_only else self._train_step
        # donate the state, so that XLA may reuse the memory of weights and optimizer state
        self.function = jax.jit(body, donate_argnums=0)

    def _data(self, seed: int) -> Tuple[Data, Data]:
        """Return ((inputs, lengths), targets) as 32-bit arrays."""
        batch: Any = workloads.batch(self.workload, seed)
        time_major = self.implementation.TIME_MAJOR
        dtype = np.int32 if self.workload.vocabulary else np.float32
        inputs = loops.laid(batch.inputs.astype(dtype), time_major)
        lengths = loops.lengths_of(self.workload, batch)
        return (inputs, *lengths), targets_of(self.workload, batch, time_major)

    def _loss(self, parameters: Parameters, inputs: Data, targets: Data) -> Any:
        with jax.named_scope("forward"):
            outputs = self.implementation.apply(self.module, parameters, *inputs)
        with jax.named_scope("loss"):
            return self.loss_of(self.workload, outputs, targets, self.implementation.TIME_MAJOR)

    def _forward_step(self, state: Any, inputs: Data, targets: Data) -> Any:
        return state, self._loss(state["parameters"], inputs, targets)

    def _train_step(self, state: Any, inputs: Data, targets: Data) -> Any:
        loss, gradients = jax.value_and_grad(self._loss)(state["parameters"], inputs, targets)
        with jax.named_scope("optimizer"):
            return updated(self.workload, state, gradients), loss

    def step(self, ranges: Ranges) -> Any:
        with ranges("step"):
            with ranges("input"):
                inputs, targets = jax.device_put((self.inputs, self.targets), self.device)
            with ranges("program"):
                outcome = self.function(self.state, inputs, targets)
                self.state, loss = jax.block_until_ready(outcome)
        return loss

    def threads(self) -> int:
        """Return the number of XLA's threads: one per CPU of the worker."""
        return thread_count()


def product(size: int, device: str, dtype: str) -> Run:
    left, right = (jax.random.uniform(jax.random.PRNGKey(n), (size, size)) for n in range(2))
    return _repeated(lambda a, b: a @ b, left, right)


def copy(buffer: int, device: str) -> Run:
    return _repeated(lambda a: a.copy(), jnp.ones(buffer, jnp.int8))


def _repeated(work: Callable[..., Any], *operands: Any) -> Run:
    compiled = jax.jit(work)

    def run(times: int) -> None:
        for _ in range(times):
            output = compiled(*operands)
        output.block_until_ready()

    return run


def out_of_memory(error: BaseException) -> bool:
    message = str(error)
    return "RESOURCE_EXHAUSTED" in message or "Out of memory" in message


#: Finite number that stands for log 0, because the gradient of logaddexp(-inf, -inf) is NaN.
LOG_ZERO = -1e30


def loss_of(workload: Workload, outputs: Any, targets: Tuple[Any, ...], time_major: bool) -> Any:
    if workload.loss == "mean":
        return jnp.mean(outputs)
    if workload.loss == "mse":
        return jnp.mean(jnp.square(outputs - targets[0]))
    scores = jax.nn.log_softmax(outputs)
    if workload.loss == "ce":
        return -jnp.mean(jnp.take_along_axis(scores, targets[0][..., None], axis=-1))
    return -jnp.mean(_log_likelihoods(scores if time_major else scores.swapaxes(0, 1), *targets))


def _log_likelihoods(scores: Any, labels: Any, lengths: Any) -> Any:
    """Return log p(labels), shaped (batch,), from scores (time, batch, classes).

    JAX has no CTC loss. Source: A. Graves et al., "Connectionist temporal classification" (2006),
    equations 6–8.
    """
    batch, symbols = labels.shape[0], 2 * labels.shape[1] + 1
    spelled = jnp.zeros((batch, symbols), labels.dtype).at[:, 1::2].set(labels)  # 0: blank
    skips = (spelled[:, 2:] != 0) & (spelled[:, 2:] != spelled[:, :-2])
    may_skip = jnp.pad(skips, ((0, 0), (2, 0)))
    emitted = jnp.take_along_axis(scores, spelled[None], axis=2)
    start = jnp.where(jnp.arange(symbols) < 2, emitted[0], LOG_ZERO)

    def forward(sums: Any, step: Tuple[Any, Any]) -> Tuple[Any, None]:
        t, label_scores = step
        two = jnp.where(may_skip, _shifted(sums, 2), LOG_ZERO)
        reached = label_scores + jnp.logaddexp(jnp.logaddexp(sums, _shifted(sums, 1)), two)
        return jnp.where((t < lengths)[:, None], reached, sums), None

    times = jnp.arange(1, scores.shape[0])
    sums, _ = jax.lax.scan(forward, start, (times, emitted[1:]))
    return jnp.logaddexp(sums[:, -1], sums[:, -2])


def _shifted(sums: Any, places: int) -> Any:
    """Shift ``sums``, shaped (batch, symbols), right by ``places``; fill with log 0."""
    return jnp.pad(sums[:, :-places], ((0, 0), (places, 0)), constant_values=LOG_ZERO)


def targets_of(workload: Workload, batch: Any, time_major: bool) -> Tuple[Any, ...]:
    dtype = np.float32 if workload.loss == "mse" else np.int32
    return tuple(t.astype(dtype) for t in loops.targets_of(workload, batch, time_major))


#: Adam's decays of the gradients' mean and mean square, and epsilon, as in torch.optim.Adam.
MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8


def initial_state(workload: Workload, parameters: Parameters) -> Dict[str, Any]:
    """Return copies of the parameters, with the optimizer's initial state."""
    copies = {name: np.array(array) for name, array in parameters.items()}
    if workload.optimizer == "sgd":
        return {"parameters": copies}
    zeros = {name: np.zeros_like(array) for name, array in copies.items()}
    return {"parameters": copies, "means": zeros, "squares": zeros, "count": np.float32(0)}


def updated(workload: Workload, state: Any, gradients: Parameters) -> Dict[str, Any]:
    if workload.optimizer == "sgd":
        rate, parameters = workload.learning_rate, state["parameters"]
        return {"parameters": {name: parameters[name] - rate * g for name, g in gradients.items()}}
    return _after_adam(workload, state, gradients)


def _after_adam(workload: Workload, state: Any, gradients: Parameters) -> Dict[str, Any]:
    """Update the state by Adam (Kingma and Ba, 2014, algorithm 1), without optax."""
    count = state["count"] + 1
    means, squares, parameters = {}, {}, {}
    for name, gradient in gradients.items():
        means[name] = MEAN_DECAY * state["means"][name] + (1 - MEAN_DECAY) * gradient
        squares[name] = SQUARE_DECAY * state["squares"][name] + (1 - SQUARE_DECAY) * gradient**2
        mean = means[name] / (1 - MEAN_DECAY**count)
        root = jnp.sqrt(squares[name] / (1 - SQUARE_DECAY**count))
        change = workload.learning_rate * mean / (root + EPSILON)
        parameters[name] = state["parameters"][name] - change
    return {"parameters": parameters, "means": means, "squares": squares, "count": count}


class UsersNetwork:
    """A user's network: a function, and its tree of parameters as a flat dict."""

    def __init__(self, parameters: Any, function: Any) -> None:
        self.function = function
        self.set(parameters)

    def set(self, parameters: Any) -> None:
        paths, self.structure = jax.tree_util.tree_flatten_with_path(parameters)
        self.leaves = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in paths}

    def tree(self, arrays: Mapping[str, Any]) -> Any:
        """Rebuild the tree of parameters from a flat dict."""
        return jax.tree_util.tree_unflatten(self.structure, [arrays[name] for name in self.leaves])


class File(UsersFile):
    """A user's file that defines a JAX network as (parameters, function)."""

    def fault(self, network: Any) -> Optional[str]:
        if isinstance(network, (tuple, list)) and len(network) == 2 and callable(network[1]):
            return None
        return "a {}, not a pair: parameters, and a function of parameters and inputs".format(
            type(network).__name__
        )

    def build(self, workload: Workload) -> UsersNetwork:
        return UsersNetwork(*super().build(workload))

    def load(self, network: UsersNetwork, weights: Mapping[str, Any]) -> None:
        """Set the parameters that the file's function ``load`` returns, if there is one."""
        if self.claims:
            network.set(self.module.load(network.tree(network.leaves), weights))

    def parameters(self, network: UsersNetwork) -> Arrays:
        return dict(network.leaves)

    values = parameters

    def apply(self, network: UsersNetwork, arrays: Arrays, inputs: Any, lengths: Any = None) -> Any:
        """Compute the outputs, as a pure function of the parameters."""
        arguments = () if lengths is None else (lengths,)
        return network.function(network.tree(arrays), inputs, *arguments)

    def first_step(
        self, network: UsersNetwork, workload: Workload, batch: Any, device: str
    ) -> Step:
        """Run the first step in strict float32."""
        targets = targets_of(workload, batch, self.TIME_MAJOR)
        inputs = batch.inputs.astype(np.int32 if workload.vocabulary else np.float32)
        lengths = loops.lengths_of(workload, batch)

        def loss_and_outputs(arrays: Arrays) -> Any:
            outputs = self.apply(network, arrays, inputs, *lengths)
            self.refuse_unless_shaped(workload, outputs)
            return loss_of(workload, outputs, targets, self.TIME_MAJOR), outputs

        with jax.default_matmul_precision("highest"):
            step = jax.jit(jax.value_and_grad(loss_and_outputs, has_aux=True))
            (loss, outputs), gradients = step(network.leaves)
        return (
            float(loss),
            np.asarray(outputs),
            {name: np.asarray(g) for name, g in gradients.items()},
        )

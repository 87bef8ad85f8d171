"""A file of the user's that builds, for JAX, parameters and a function of them and of inputs."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import jax
import numpy as np

from lstmprof.capture.worker.files import Arrays, Step, UsersFile
from lstmprof.capture.worker.loops.jax import loss_of, targets_of
from lstmprof.workloads import Workload


class Network:
    """``leaves`` of the tree of parameters by their paths, and how to put them together again."""

    def __init__(self, parameters: Any, function: Any) -> None:
        self.function = function
        self.set(parameters)

    def set(self, parameters: Any) -> None:
        """Take other parameters."""
        paths, self.structure = jax.tree_util.tree_flatten_with_path(parameters)
        self.leaves = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in paths}

    def tree(self, arrays: Mapping[str, Any]) -> Any:
        """The tree in which each leaf is the array of its path."""
        return jax.tree_util.tree_unflatten(self.structure, [arrays[name] for name in self.leaves])


class File(UsersFile):
    """The loop calls ``apply``."""

    def fault(self, network: Any) -> Optional[str]:
        """Where it is no pair."""
        if isinstance(network, (tuple, list)) and len(network) == 2 and callable(network[1]):
            return None
        return "a {}, not a pair: parameters, and a function of parameters and inputs".format(
            type(network).__name__
        )

    def build(self, workload: Workload) -> Network:
        """The pair as the loop takes it."""
        return Network(*super().build(workload))

    def load(self, network: Network, weights: Mapping[str, Any]) -> None:
        """Set what the file's ``load`` returns."""
        if self.claims:
            network.set(self.module.load(network.tree(network.leaves), weights))

    def parameters(self, network: Network) -> Arrays:
        """Path -> array."""
        return dict(network.leaves)

    values = parameters

    def apply(self, network: Network, arrays: Arrays, inputs: Any, lengths: Any = None) -> Any:
        """The outputs as a pure function of ``arrays``."""
        told = () if lengths is None else (lengths,)
        return network.function(network.tree(arrays), inputs, *told)

    def first_step(self, network: Network, workload: Workload, batch: Any, device: str) -> Step:
        """Jitted, in JAX's strictest float32."""
        targets = targets_of(workload, batch, self.TIME_MAJOR)
        inputs = batch.inputs.astype(np.int32 if workload.vocabulary else np.float32)
        lengths = (batch.lengths.astype(np.int32),) if workload.variable_length else ()

        def loss_and_outputs(arrays: Arrays) -> Any:
            outputs = self.apply(network, arrays, inputs, *lengths)
            self.refuse_unless_shaped(workload, outputs)
            return loss_of(workload, outputs, targets, self.TIME_MAJOR), outputs

        with jax.default_matmul_precision("highest"):
            step = jax.jit(jax.value_and_grad(loss_and_outputs, has_aux=True))
            (loss, outputs), gradients = step(network.leaves)
        outputs = np.asarray(outputs)
        if workload.every_step and not self.TIME_MAJOR:
            outputs = outputs.swapaxes(0, 1)
        return float(loss), outputs, {name: np.asarray(g) for name, g in gradients.items()}

"""The losses and the optimizer of the cuDNN loop, by cuDNN's own operations on tensors.

cuDNN has no automatic differentiation: a loss writes its gradient where the network's backward
reads it. Tensors have four dimensions, as these operations expect. Source: cuDNN's documentation of
cudnnReduceTensor, cudnnOpTensor, cudnnScaleTensor and cudnnAddTensor.
"""

from __future__ import annotations

from typing import Any, Tuple, Union

import numpy as np

from lstmprof.implementations.cudnn import _api as api
from lstmprof.implementations.cudnn._libraries import Call
from lstmprof.implementations.cudnn._runtime import Buffer


class Mean:
    """The mean of all outputs: their gradients are the same number, written once."""

    def __init__(self, network: Any, training: bool) -> None:
        outputs = network.outputs
        if training:
            network.d_outputs.set(np.full(outputs.shape, 1 / outputs.size, np.float32))
        self.result = network.buffer((1,))
        self.enqueue, self.held = reduction(
            network, api.CUDNN_REDUCE_TENSOR_AVG, outputs.address, outputs.shape, self.result
        )

    def upload(self) -> None:
        """Nothing: there are no targets."""

    def backward(self) -> None:
        """Nothing: the gradient is there."""

    def value(self) -> float:
        """The loss last enqueued, once it is computed."""
        return float(self.result.array()[0])


class SquaredError:
    """The mean of (outputs − targets)², of the last time step or of every one.

    Its ``enqueue`` leaves the difference where ``backward`` scales it to the gradient; that of the
    other time steps stays zero.
    """

    def __init__(self, network: Any, training: bool, targets: Any) -> None:
        self.targets = network.buffer(targets.shape)
        self.upload = self.targets.upload(targets)
        self.result = network.buffer((1,))
        held = network.d_outputs if training else network.buffer(network.outputs.shape)
        unseen = network.outputs.bytes - self.targets.bytes  # the last time step stands at the end
        difference, shape = held.address + unseen, self.targets.shape
        self._subtract = subtraction(
            network, network.outputs.address + unseen, self.targets.address, difference, shape
        )
        norm = api.CUDNN_REDUCE_TENSOR_NORM2
        self._reduce, space = reduction(network, norm, difference, shape, self.result)
        self.held = held, space
        self.backward = network.cudnn.bound(
            "cudnnScaleTensor",
            {
                "handle": network.handle,
                "yDesc": network.cudnn.tensor(four(shape)),
                "y": difference,
                "alpha": api.scalar(2 / self.targets.size),
            },
        )

    def enqueue(self) -> None:
        """The difference and its norm."""
        self._subtract()
        self._reduce()

    def value(self) -> float:
        """The loss last enqueued, once it is computed."""
        norm, count = float(self.result.array()[0]), int(self.targets.size)
        return norm * norm / count


Loss = Union[Mean, SquaredError]


def loss_of(network: Any, training: bool, targets: Any) -> Loss:
    """The loss of ``network``'s workload: ``mean`` or ``mse``."""
    if network.workload.loss == "mean":
        return Mean(network, training)
    return SquaredError(network, training, targets)


def sgd(network: Any) -> Call:
    """One step of SGD over the whole weight space: w − rate · gradient."""
    described = network.cudnn.tensor(four(network.weights.shape))
    call: Call = network.cudnn.bound(
        "cudnnAddTensor",
        {
            "handle": network.handle,
            "alpha": api.scalar(-network.workload.learning_rate),
            **{"aDesc": described, "A": network.gradients.address},
            "beta": api.scalar(1),
            **{"cDesc": described, "C": network.weights.address},
        },
    )
    return call


def four(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """``shape`` in four dimensions."""
    return (1,) * (4 - len(shape)) + shape


def subtraction(network: Any, a: int, b: int, into: int, shape: Tuple[int, ...]) -> Call:
    """``into`` = a − b; addresses of packed tensors of ``shape``."""
    operation = network.cudnn.created("OpTensorDescriptor")
    network.cudnn.call(
        "cudnnSetOpTensorDescriptor",
        opTensorDesc=operation,
        opTensorOp=api.CUDNN_OP_TENSOR_ADD,
        opTensorCompType=api.CUDNN_DATA_FLOAT,
        opTensorNanOpt=api.CUDNN_PROPAGATE_NAN,
    )
    described = network.cudnn.tensor(four(shape))
    call: Call = network.cudnn.bound(
        "cudnnOpTensor",
        {
            **{"handle": network.handle, "opTensorDesc": operation},
            **{"alpha1": api.scalar(1), "aDesc": described, "A": a},
            **{"alpha2": api.scalar(-1), "bDesc": described, "B": b},
            **{"beta": api.scalar(0), "cDesc": described, "C": into},
        },
    )
    return call


def reduction(
    network: Any, operation: int, a: int, shape: Tuple[int, ...], into: Buffer
) -> Tuple[Call, Buffer]:
    """``into`` (one number) = all of the packed tensor ``a``, reduced; and the space it needs."""
    cudnn = network.cudnn
    descriptor = cudnn.created("ReduceTensorDescriptor")
    cudnn.call(
        "cudnnSetReduceTensorDescriptor",
        reduceTensorDesc=descriptor,
        reduceTensorOp=operation,
        reduceTensorCompType=api.CUDNN_DATA_FLOAT,
        reduceTensorNanOpt=api.CUDNN_PROPAGATE_NAN,
        reduceTensorIndices=api.CUDNN_REDUCE_TENSOR_NO_INDICES,
        reduceTensorIndicesType=api.CUDNN_32BIT_INDICES,
    )
    arguments = {
        **{"handle": network.handle, "reduceTensorDesc": descriptor},
        **{"indices": None, "indicesSizeInBytes": 0},
        **{"alpha": api.scalar(1), "aDesc": cudnn.tensor(four(shape)), "A": a},
        **{"beta": api.scalar(0), "cDesc": cudnn.tensor(four((1,))), "C": into.address},
    }
    size = cudnn.read_size("cudnnGetReductionWorkspaceSize", "sizeInBytes", arguments)
    space = network.buffer((size,), np.uint8)
    spaced = dict(arguments, workspace=space.address, workspaceSizeInBytes=space.bytes)
    return cudnn.bound("cudnnReduceTensor", spaced), space

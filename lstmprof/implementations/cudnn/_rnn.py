"""What cuDNN is told of a recurrent network, and where it puts the network's weights.

Source: cuDNN's documentation of cudnnSetRNNDescriptor_v8, cudnnSetRNNDataDescriptor and
cudnnGetRNNWeightParams; jaxlib's gpu/rnn_kernels.cc for the choices that the documentation leaves.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Iterator, List, Tuple

from lstmprof.errors import CaptureError
from lstmprof.implementations.cudnn import _api as api
from lstmprof.implementations.cudnn._api import Cudnn
from lstmprof.implementations.cudnn._runtime import Buffer
from lstmprof.workloads import GATES, Workload

CELLS = {"lstm": api.CUDNN_LSTM, "gru": api.CUDNN_GRU, "rnn": api.CUDNN_RNN_TANH}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where ``rows`` of the weight called ``name`` lie in the weight space, one after the other."""

    name: str
    rows: slice
    start: int  # in float32 numbers
    size: int

    @property
    def numbers(self) -> slice:
        """Its numbers in the weight space."""
        return slice(self.start, self.start + self.size)


def rnn_descriptor(cudnn: Cudnn, handle: int, w: Workload, tf32: bool) -> int:
    """The network of ``w``, by the standard algorithm, without dropout."""
    dropout = cudnn.created("DropoutDescriptor")
    cudnn.call(
        "cudnnSetDropoutDescriptor",
        dropoutDesc=dropout,
        handle=handle,
        dropout=0.0,
        states=None,
        stateSizeInBytes=0,
        seed=0,
    )
    descriptor = cudnn.created("RNNDescriptor")
    cudnn.call(
        "cudnnSetRNNDescriptor_v8",
        rnnDesc=descriptor,
        algo=api.CUDNN_RNN_ALGO_STANDARD,
        cellMode=CELLS[w.cell],
        biasMode=api.CUDNN_RNN_DOUBLE_BIAS,
        dirMode=api.CUDNN_BIDIRECTIONAL if w.bidirectional else api.CUDNN_UNIDIRECTIONAL,
        inputMode=api.CUDNN_LINEAR_INPUT,
        dataType=api.CUDNN_DATA_FLOAT,
        mathPrec=api.CUDNN_DATA_FLOAT,
        mathType=api.CUDNN_DEFAULT_MATH if tf32 else api.CUDNN_FMA_MATH,
        inputSize=w.features,
        hiddenSize=w.hidden,
        projSize=w.hidden,  # as large: no projection
        numLayers=w.layers,
        dropoutDesc=dropout,
        auxFlags=api.CUDNN_RNN_PADDED_IO_ENABLED,
    )
    return descriptor


def data_descriptor(cudnn: Cudnn, w: Workload, width: int) -> int:
    """Of (time, batch, width): every sequence is of full length, so that nothing is filled."""
    descriptor = cudnn.created("RNNDataDescriptor")
    cudnn.call(
        "cudnnSetRNNDataDescriptor",
        rnnDataDesc=descriptor,
        dataType=api.CUDNN_DATA_FLOAT,
        layout=api.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
        maxSeqLength=w.time_steps,
        batchSize=w.batch,
        vectorSize=width,
        seqLengthArray=api.int_array([w.time_steps] * w.batch),
        paddingFill=None,
    )
    return descriptor


def places(cudnn: Cudnn, handle: int, rnn: int, w: Workload, space: Buffer) -> List[Place]:
    """Of every shared weight, gate by gate, in ``space``; b_R has no shared name and is left out.

    Raises:
        CaptureError: cuDNN has another shape there than its documentation says.
    """
    seeker = _Seeker(cudnn, handle, rnn, space)
    return [place for slot in _slots(w) for place in seeker.places(w, *slot)]


def _slots(w: Workload) -> Iterator[Tuple[int, str, int]]:
    """(pseudo-layer, suffix of the shared names, inputs) of every layer and direction."""
    for layer in range(w.layers):
        inputs = w.directions * w.hidden if layer else w.features
        for direction, suffix in enumerate(("", "_reverse")[: w.directions]):
            yield w.directions * layer + direction, "_l{}{}".format(layer, suffix), inputs


class _Seeker:
    """Asks cuDNN where a linear layer lies."""

    def __init__(self, cudnn: Cudnn, handle: int, rnn: int, space: Buffer) -> None:
        self.cudnn, self.space = cudnn, space
        self.described = {"mDesc": cudnn.created("TensorDescriptor")}
        self.described["bDesc"] = cudnn.created("TensorDescriptor")
        self.asked = {
            "handle": handle,
            "rnnDesc": rnn,
            "weightSpaceSize": space.bytes,
            "weightSpace": space.address,
        }

    def places(self, w: Workload, pseudo: int, suffix: str, inputs: int) -> Iterator[Place]:
        """Of one pseudo-layer: of every gate W and b_W, then R."""
        gates = GATES[w.cell]
        for gate in range(gates):
            rows = slice(gate * w.hidden, (gate + 1) * w.hidden)
            matrix, bias = self.linear_layer(pseudo, gate, w.hidden, inputs)
            yield Place("weight_ih" + suffix, rows, *matrix)
            yield Place("bias" + suffix, rows, *bias)
            matrix, _ = self.linear_layer(pseudo, gates + gate, w.hidden, w.hidden)
            yield Place("weight_hh" + suffix, rows, *matrix)

    def linear_layer(
        self, pseudo: int, number: int, hidden: int, inputs: int
    ) -> Tuple[Tuple[int, int], Tuple[int, int]]:
        """(start, size) of its matrix and of its bias, in float32 numbers."""
        matrix, bias = ctypes.c_void_p(), ctypes.c_void_p()
        self.cudnn.call(
            "cudnnGetRNNWeightParams",
            pseudoLayer=pseudo,
            linLayerID=number,
            mAddr=ctypes.byref(matrix),
            bAddr=ctypes.byref(bias),
            **self.asked,
            **self.described,
        )
        sizes = [self.cudnn.tensor_size(self.described[name]) for name in ("mDesc", "bDesc")]
        if sizes != [hidden * inputs, hidden] or not (matrix.value and bias.value):
            raise CaptureError(
                "cudnnGetRNNWeightParams: linear layer {} of pseudo-layer {} has {} weights and"
                " {} biases, not {} and {}".format(number, pseudo, *sizes, hidden * inputs, hidden)
            )
        first, second = (matrix.value - self.space.address, bias.value - self.space.address)
        return (first // 4, sizes[0]), (second // 4, sizes[1])

"""cuDNN 9 through ctypes: the functions, constants and descriptors that cudnn-direct uses.

Prototypes are those of cudnn_graph.h, cudnn_ops.h and cudnn_adv.h (9.28); a test compares them with
installed headers. Source of descriptors and weight positions: cuDNN's documentation of
cudnnSetRNNDescriptor_v8, cudnnSetRNNDataDescriptor and cudnnGetRNNWeightParams; jaxlib's
gpu/rnn_kernels.cc.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, ClassVar, Iterator, List, Mapping, Sequence, Tuple

from lstmprof.base.errors import CaptureError
from lstmprof.implementations.cudnn._runtime import CUDNN, Buffer, Library, Runtime, loaded
from lstmprof.workloads import GATES, Workload

CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
CUDNN_DATA_FLOAT = 0
CUDNN_DEFAULT_MATH = 0
CUDNN_FMA_MATH = 3
CUDNN_PROPAGATE_NAN = 1
CUDNN_OP_TENSOR_ADD = 0
CUDNN_REDUCE_TENSOR_AVG = 5
CUDNN_REDUCE_TENSOR_NORM2 = 7
CUDNN_REDUCE_TENSOR_NO_INDICES = 0
CUDNN_32BIT_INDICES = 0
CUDNN_RNN_ALGO_STANDARD = 0
CUDNN_RNN_TANH = 1
CUDNN_LSTM = 2
CUDNN_GRU = 3
CUDNN_RNN_DOUBLE_BIAS = 2
CUDNN_UNIDIRECTIONAL = 0
CUDNN_BIDIRECTIONAL = 1
CUDNN_LINEAR_INPUT = 0
CUDNN_RNN_PADDED_IO_ENABLED = 1
CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0
CUDNN_FWD_MODE_INFERENCE = 0
CUDNN_FWD_MODE_TRAINING = 1
CUDNN_WGRAD_MODE_ADD = 0
CUDNN_DIM_MAX = 8

_SPACES = "workSpaceSize:z workSpace reserveSpaceSize:z reserveSpace"

CELLS = {"lstm": CUDNN_LSTM, "gru": CUDNN_GRU, "rnn": CUDNN_RNN_TANH}


class Cudnn(Library):
    """The functions of libcudnn that lstmprof calls, and the CUDA runtime of libcudnn."""

    prototypes: ClassVar[Mapping[str, str]] = {
        "cudnnCreate": "handle",
        "cudnnCreateTensorDescriptor": "tensorDesc",
        "cudnnSetTensorNdDescriptor": "tensorDesc dataType:i nbDims:i dimA strideA",
        "cudnnGetTensorNdDescriptor": "tensorDesc nbDimsRequested:i dataType nbDims dimA strideA",
        "cudnnCreateDropoutDescriptor": "dropoutDesc",
        "cudnnSetDropoutDescriptor": (
            "dropoutDesc handle dropout:f states stateSizeInBytes:z seed:q"
        ),
        "cudnnCreateRNNDescriptor": "rnnDesc",
        "cudnnSetRNNDescriptor_v8": (
            "rnnDesc algo:i cellMode:i biasMode:i dirMode:i inputMode:i dataType:i mathPrec:i"
            " mathType:i inputSize:i hiddenSize:i projSize:i numLayers:i dropoutDesc auxFlags:u"
        ),
        "cudnnCreateRNNDataDescriptor": "rnnDataDesc",
        "cudnnSetRNNDataDescriptor": (
            "rnnDataDesc dataType:i layout:i maxSeqLength:i batchSize:i vectorSize:i"
            " seqLengthArray paddingFill"
        ),
        "cudnnGetRNNWeightSpaceSize": "handle rnnDesc weightSpaceSize",
        "cudnnGetRNNTempSpaceSizes": (
            "handle rnnDesc fwdMode:i xDesc workSpaceSize reserveSpaceSize"
        ),
        "cudnnGetRNNWeightParams": (
            "handle rnnDesc pseudoLayer:i weightSpaceSize:z weightSpace linLayerID:i"
            " mDesc mAddr bDesc bAddr"
        ),
        "cudnnRNNForward": (
            "handle rnnDesc fwdMode:i devSeqLengths xDesc x yDesc y hDesc hx hy cDesc cx cy"
            " weightSpaceSize:z weightSpace " + _SPACES
        ),
        "cudnnRNNBackwardData_v8": (
            "handle rnnDesc devSeqLengths yDesc y dy xDesc dx hDesc hx dhy dhx cDesc cx dcy dcx"
            " weightSpaceSize:z weightSpace " + _SPACES
        ),
        "cudnnRNNBackwardWeights_v8": (
            "handle rnnDesc addGrad:i devSeqLengths xDesc x hDesc hx yDesc y"
            " weightSpaceSize:z dweightSpace " + _SPACES
        ),
        "cudnnAddTensor": "handle alpha aDesc A beta cDesc C",
        "cudnnScaleTensor": "handle yDesc y alpha",
        "cudnnCreateOpTensorDescriptor": "opTensorDesc",
        "cudnnSetOpTensorDescriptor": (
            "opTensorDesc opTensorOp:i opTensorCompType:i opTensorNanOpt:i"
        ),
        "cudnnOpTensor": "handle opTensorDesc alpha1 aDesc A alpha2 bDesc B beta cDesc C",
        "cudnnCreateReduceTensorDescriptor": "reduceTensorDesc",
        "cudnnSetReduceTensorDescriptor": (
            "reduceTensorDesc reduceTensorOp:i reduceTensorCompType:i reduceTensorNanOpt:i"
            " reduceTensorIndices:i reduceTensorIndicesType:i"
        ),
        "cudnnGetReductionWorkspaceSize": "handle reduceTensorDesc aDesc cDesc sizeInBytes",
        "cudnnReduceTensor": (
            "handle reduceTensorDesc indices indicesSizeInBytes:z workspace"
            " workspaceSizeInBytes:z alpha aDesc A beta cDesc C"
        ),
    }

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        library.cudnnGetVersion.restype = ctypes.c_size_t
        library.cudnnGetCudartVersion.restype = ctypes.c_size_t
        self.version = int(library.cudnnGetVersion())
        self.runtime = Runtime.load(int(library.cudnnGetCudartVersion()))

    @classmethod
    def load(cls) -> Cudnn:
        return cls(loaded(*CUDNN))

    def failure(self, name: str, status: int) -> CaptureError:
        last = ctypes.create_string_buffer(512)
        self.library.cudnnGetLastErrorString(last, ctypes.c_size_t(len(last)))
        error_string = self.library.cudnnGetErrorString
        error_string.argtypes, error_string.restype = [ctypes.c_int], ctypes.c_char_p
        words = error_string(status).decode("utf-8", "replace")
        more = last.value.decode("utf-8", "replace")
        if status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
            return CaptureError("out of memory: " + name, "try a smaller --batch")
        return CaptureError(
            "{} failed: {} ({})".format(name, words, more) if more else name + " failed: " + words,
            "set CUDNN_LOGLEVEL_DBG=3 and CUDNN_LOGDEST_DBG=stderr to see cuDNN's log",
        )

    def created(self, what: str) -> int:
        """Create a handle or descriptor, which is never freed."""
        name = "cudnnCreate" + what
        pointer = ctypes.c_void_p()
        self.call(name, **{self.prototypes[name]: ctypes.byref(pointer)})
        return int(pointer.value or 0)

    def tensor(self, shape: Sequence[int]) -> int:
        """Return a descriptor of a contiguous float32 tensor."""
        strides = [1]
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * length)
        descriptor = self.created("TensorDescriptor")
        self.call(
            "cudnnSetTensorNdDescriptor",
            tensorDesc=descriptor,
            dataType=CUDNN_DATA_FLOAT,
            nbDims=len(shape),
            dimA=int_array(shape),
            strideA=int_array(strides),
        )
        return descriptor

    def tensor_size(self, descriptor: int) -> int:
        """Return the number of elements of a tensor, from its descriptor."""
        count, kind = ctypes.c_int(), ctypes.c_int()
        lengths, strides = int_array([0] * CUDNN_DIM_MAX), int_array([0] * CUDNN_DIM_MAX)
        self.call(
            "cudnnGetTensorNdDescriptor",
            tensorDesc=descriptor,
            nbDimsRequested=CUDNN_DIM_MAX,
            dataType=ctypes.byref(kind),
            nbDims=ctypes.byref(count),
            dimA=lengths,
            strideA=strides,
        )
        size = 1
        for length in lengths[: count.value]:
            size *= length
        return size

    def read_size(self, name: str, parameter: str, arguments: Mapping[str, Any]) -> int:
        """Call a function that writes a size in bytes; return the size."""
        size = ctypes.c_size_t()
        self.bound(name, dict(arguments, **{parameter: ctypes.byref(size)}))()
        return size.value


def int_array(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def scalar(value: float) -> Any:
    """Return a pointer to a host float, the form of cuDNN's scaling factors."""
    return ctypes.byref(ctypes.c_float(value))


@dataclasses.dataclass(frozen=True)
class Place:
    """Position of some rows of a weight in cuDNN's weight buffer."""

    name: str
    rows: slice
    start: int  # in float32 numbers, like ``size``
    size: int

    @property
    def numbers(self) -> slice:
        """Return the slice of the weight buffer that contains these rows."""
        return slice(self.start, self.start + self.size)


def rnn_descriptor(cudnn: Cudnn, handle: int, w: Workload, tf32: bool) -> int:
    """Return a descriptor of the recurrent layers: standard algorithm, no dropout."""
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
        algo=CUDNN_RNN_ALGO_STANDARD,
        cellMode=CELLS[w.cell],
        biasMode=CUDNN_RNN_DOUBLE_BIAS,
        dirMode=CUDNN_BIDIRECTIONAL if w.bidirectional else CUDNN_UNIDIRECTIONAL,
        inputMode=CUDNN_LINEAR_INPUT,
        dataType=CUDNN_DATA_FLOAT,
        mathPrec=CUDNN_DATA_FLOAT,
        mathType=CUDNN_DEFAULT_MATH if tf32 else CUDNN_FMA_MATH,
        inputSize=w.features,
        hiddenSize=w.hidden,
        projSize=w.hidden,  # equal to hiddenSize: no projection
        numLayers=w.layers,
        dropoutDesc=dropout,
        auxFlags=CUDNN_RNN_PADDED_IO_ENABLED,
    )
    return descriptor


def data_descriptor(cudnn: Cudnn, w: Workload, width: int) -> int:
    """Return a descriptor of data (time, batch, width) with full-length sequences."""
    descriptor = cudnn.created("RNNDataDescriptor")
    cudnn.call(
        "cudnnSetRNNDataDescriptor",
        rnnDataDesc=descriptor,
        dataType=CUDNN_DATA_FLOAT,
        layout=CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
        maxSeqLength=w.time_steps,
        batchSize=w.batch,
        vectorSize=width,
        seqLengthArray=int_array([w.time_steps] * w.batch),
        paddingFill=None,
    )
    return descriptor


def places(cudnn: Cudnn, handle: int, rnn: int, w: Workload, space: Buffer) -> List[Place]:
    """Return where each gate of each weight is in cuDNN's weight buffer."""
    seeker = _Seeker(cudnn, handle, rnn, space)
    return [place for slot in _slots(w) for place in seeker.places(w, *slot)]


def _slots(w: Workload) -> Iterator[Tuple[int, str, int]]:
    """Yield (layer in cuDNN, suffix of weight names, input width): ``(0, "_l0", 123)``."""
    for layer in range(w.layers):
        inputs = w.directions * w.hidden if layer else w.features
        for direction, suffix in enumerate(("", "_reverse")[: w.directions]):
            yield w.directions * layer + direction, "_l{}{}".format(layer, suffix), inputs


class _Seeker:
    """Finds the positions of weights in cuDNN's weight buffer."""

    def __init__(self, cudnn: Cudnn, handle: int, rnn: int, space: Buffer) -> None:
        self.cudnn, self.space = cudnn, space
        self.described = {"mDesc": cudnn.created("TensorDescriptor")}
        self.described["bDesc"] = cudnn.created("TensorDescriptor")
        self.query = {
            "handle": handle,
            "rnnDesc": rnn,
            "weightSpaceSize": space.bytes,
            "weightSpace": space.address,
        }

    def places(self, w: Workload, pseudo: int, suffix: str, inputs: int) -> Iterator[Place]:
        """Yield the positions of W, b_W and R of each gate of a layer."""
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
        """Return (start, size) in floats of a gate's matrix, and of its bias."""
        matrix, bias = ctypes.c_void_p(), ctypes.c_void_p()
        self.cudnn.call(
            "cudnnGetRNNWeightParams",
            pseudoLayer=pseudo,
            linLayerID=number,
            mAddr=ctypes.byref(matrix),
            bAddr=ctypes.byref(bias),
            **self.query,
            **self.described,
        )
        sizes = [self.cudnn.tensor_size(self.described[name]) for name in ("mDesc", "bDesc")]
        if sizes != [hidden * inputs, hidden] or not (matrix.value and bias.value):
            raise CaptureError(
                "cudnnGetRNNWeightParams: linear layer {} of pseudo-layer {} has {} weights and"
                " {} biases, but lstmprof expects {} weights and {} biases".format(
                    number, pseudo, *sizes, hidden * inputs, hidden
                )
            )
        first, second = (matrix.value - self.space.address, bias.value - self.space.address)
        return (first // 4, sizes[0]), (second // 4, sizes[1])

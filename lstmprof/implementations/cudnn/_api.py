"""cuDNN 9 through ctypes: the functions, constants and descriptors that cudnn-direct uses.

Names, order and types of the parameters are those of cudnn_graph.h, cudnn_ops.h and cudnn_adv.h of
cuDNN 9 (read at 9.28); a test compares them with the headers where these are installed.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Mapping, Sequence

from lstmprof.errors import CaptureError
from lstmprof.implementations.cudnn import _libraries
from lstmprof.implementations.cudnn._libraries import Library
from lstmprof.implementations.cudnn._runtime import Runtime

# The headers' constants.
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


class Cudnn(Library):
    """libcudnn."""

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
        """The library and the CUDA runtime that it was built for.

        Raises:
            CaptureError: one of them is missing or too old.
        """
        return cls(_libraries.load(*_libraries.CUDNN))

    def failure(self, name: str, status: int) -> CaptureError:
        """The error for a function that returned ``status``."""
        last = ctypes.create_string_buffer(512)
        self.library.cudnnGetLastErrorString(last, ctypes.c_size_t(len(last)))
        said = self.library.cudnnGetErrorString
        said.argtypes, said.restype = [ctypes.c_int], ctypes.c_char_p
        words = said(status).decode("utf-8", "replace")
        more = last.value.decode("utf-8", "replace")
        if status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
            return CaptureError("out of memory: " + name, "try a smaller --batch")
        return CaptureError(
            "{} failed: {} ({})".format(name, words, more) if more else name + " failed: " + words,
            "set CUDNN_LOGLEVEL_DBG=3 and CUDNN_LOGDEST_DBG=stderr for cuDNN's own log",
        )

    def created(self, what: str) -> int:
        """What cudnnCreate ``what`` makes; it lives as long as the process."""
        name = "cudnnCreate" + what
        pointer = ctypes.c_void_p()
        self.call(name, **{self.prototypes[name]: ctypes.byref(pointer)})
        return int(pointer.value or 0)

    def tensor(self, shape: Sequence[int]) -> int:
        """A descriptor of a packed float32 tensor."""
        strides = [1]
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * length)
        made = self.created("TensorDescriptor")
        self.call(
            "cudnnSetTensorNdDescriptor",
            tensorDesc=made,
            dataType=CUDNN_DATA_FLOAT,
            nbDims=len(shape),
            dimA=int_array(shape),
            strideA=int_array(strides),
        )
        return made

    def tensor_size(self, descriptor: int) -> int:
        """Elements of the packed tensor that cuDNN described."""
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
        """The size that function ``name`` writes to its ``parameter``, bytes."""
        size = ctypes.c_size_t()
        self.bound(name, dict(arguments, **{parameter: ctypes.byref(size)}))()
        return size.value


def int_array(values: Sequence[int]) -> Any:
    """A C array of int."""
    return (ctypes.c_int * len(values))(*values)


def scalar(value: float) -> Any:
    """A pointer to a host float, as cuDNN takes its scaling factors."""
    return ctypes.byref(ctypes.c_float(value))

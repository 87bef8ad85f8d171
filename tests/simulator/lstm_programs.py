"""Three training steps of an LSTM, as PyTorch and as TensorFlow tell a GPU to run them.

Times are ticks, which a profile makes nanoseconds. A step copies its batch over, casts it for AMP,
runs a recurrent layer on two streams, its loss, the backward pass on a thread of its own and the
optimizer, and reads the loss back; with ``graphs`` the last step replays a CUDA graph too.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.gpu_programs import (
    Call,
    Gap,
    GraphLaunch,
    HandOver,
    Instruction,
    Launch,
    Machine,
    Record,
    Stream,
    StreamWait,
    Sync,
    Within,
    Work,
)

Body = tuple[Instruction, ...]

MAIN, WORKER = 25738, 25772
STREAM: Stream = (0, 7)
SIDE: Stream = (0, 20)
STEPS = 3
MACHINE = Machine(latency_ns=5, between_ns=2, return_ns=3, event_ns=4)

_GEMM = "ampere_sgemm_128x64_nn"
_LSTM_FORWARD = "void LSTM_elementWise_fp<float, float, float>(int, int, int, float*, float*)"
_LSTM_BACKWARD = "void LSTM_elementWise_bp1<float, float, float>(int, int, int, float*, float*)"
_CAST = "void at::native::float16_copy_kernel_cuda(at::TensorIteratorBase&)"
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"
_FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
_LOSS, _OPT = "softmax_loss", "optimizer"
_SOFTMAX = "void cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>"


@dataclass(frozen=True)
class Style:
    """What a profiler of PyTorch records beside ops: how it names a step, ranges, Python frames."""

    step: str
    ranges: bool = False
    frames: bool = False
    graphs: bool = False
    overhead: str | None = None


def torch_program(style: Style) -> Body:
    """The steps on thread ``MAIN``; autograd runs on ``WORKER``."""
    parts = ((_torch_step(style, number), Gap(11)) for number in range(STEPS))
    return tuple(instruction for part in parts for instruction in part)


def _torch_step(style: Style, number: int) -> Within:
    forward = (
        *_frame(style, "torch/nn/modules/rnn.py(920): forward", 4, _recurrent(number)),
        *_range(style, "loss", _loss()),
    )
    body = (
        Gap(14),
        *(() if style.overhead is None else (Call(style.overhead, "profiler", 13, "overhead"),)),
        *_input(),
        *_range(style, "forward", (*_cast(), *forward)),
        *_range(style, "backward", _backward()),
        Within("range", "Optimizer.step#Adam.step", 9, _optimizer(), 2),
        *(_replay(style) if style.graphs and number == STEPS - 1 else ()),
        *_read_loss(),
    )
    return Within("step", style.step.format(number + 1), 3, body, 8)


def _range(style: Style, name: str, body: Body) -> Body:
    return (Within("range", name, 2, body, 1),) if style.ranges else body


def _frame(style: Style, name: str, enter_ticks: int, body: Body) -> Body:
    return (Within("python", name, enter_ticks, body, 1),) if style.frames else body


def _op(name: str, *body: Instruction, category: str | None = None, enter_ticks: int = 3) -> Within:
    return Within("op", name, enter_ticks, body, 2, category)


def _kernel(name: str, category: str, ticks: int, stream: Stream = STREAM) -> Launch:
    return Launch(stream, Work("kernel", name, category, ticks), 4)


def _input() -> Body:
    copy = Work("memcpy", "Memcpy HtoD (Pageable -> Device)", "transfer", 31)
    moved = _op("aten::copy_", Launch(STREAM, copy, 9), Sync("stream", STREAM, 2))
    return (_op("aten::to", _op("aten::_to_copy", _op("aten::empty_strided"), moved)),)


def _cast() -> Body:
    copied = _op("aten::copy_", _kernel(_CAST, "cast", 12), category="cast")
    return (_op("aten::to", _op("aten::_to_copy", _op("aten::empty_strided"), copied)),)


def _recurrent(number: int) -> Body:
    clear = Launch(STREAM, Work("memset", "Memset (Device)", "memset", 3), 4)
    allocated = (Call("cudaMalloc", "alloc", 37),) if number == 0 else ()
    layer = _op(
        "aten::_cudnn_rnn",
        *allocated,
        clear,
        _kernel(_GEMM, "gemm", 60),
        Record(STREAM, 2 * number, 2),
        StreamWait(SIDE, 2 * number, 2),
        _kernel(_LSTM_FORWARD, "pointwise", 22, SIDE),
        Record(SIDE, 2 * number + 1, 2),
        StreamWait(STREAM, 2 * number + 1, 2),
        _kernel(_GEMM, "gemm", 48),
        _kernel(_LSTM_FORWARD, "pointwise", 9),
        category="rnn",
        enter_ticks=17,
    )
    return (_op("aten::lstm", _op("aten::zeros", _op("aten::zero_")), layer), Gap(90))


def _loss() -> Body:
    linear = _op("aten::addmm", _kernel(_GEMM, "gemm", 33), category="gemm")
    softmax = _op("aten::_log_softmax", _kernel(_SOFTMAX, _LOSS, 8), category=_LOSS)
    return (_op("aten::linear", _op("aten::t"), linear), _op("aten::cross_entropy_loss", softmax))


def _backward() -> Body:
    node = "autograd::engine::evaluate_function: {0}"
    products = (_kernel(_GEMM, "gemm", 35), _kernel(_GEMM, "gemm", 35))
    linear = _op("AddmmBackward0", _op("aten::mm", *products, category="gemm"))
    layer = _op(
        "aten::_cudnn_rnn_backward",
        _kernel(_LSTM_BACKWARD, "pointwise", 18),
        _kernel(_GEMM, "gemm", 70),
        category="rnn",
        enter_ticks=12,
    )
    return (
        HandOver(
            WORKER,
            (
                _op(node.format("AddmmBackward0"), linear),
                Gap(5),
                _op(node.format("CudnnRnnBackward0"), _op("CudnnRnnBackward0", layer)),
            ),
        ),
    )


def _optimizer() -> Body:
    update = _op("aten::_foreach_add_", _kernel(_FOREACH, _OPT, 15), category=_OPT)
    return (update, _op("aten::_foreach_sqrt", _kernel(_FOREACH, _OPT, 7), category=_OPT))


def _replay(style: Style) -> Body:
    works = (
        Work("kernel", _GEMM, "gemm", 21),
        Work("kernel", _LSTM_FORWARD, "rnn", 6),
        Work("memset", "Memset (Device)", "memset", 2),
        Work("kernel", _ELEMENTWISE, "pointwise", 5),
    )
    return _frame(style, "torch/cuda/graphs.py(88): replay", 6, (GraphLaunch(STREAM, works, 16),))


def _read_loss() -> Body:
    copy = Work("memcpy", "Memcpy DtoH (Device -> Pageable)", "transfer", 2)
    asked = _op("aten::_local_scalar_dense", Launch(STREAM, copy, 7), Sync("stream", STREAM, 2))
    return (_op("aten::item", asked), Gap(4))


def tensorflow_program() -> Body:
    """The steps of a ``tf.function`` on thread ``MAIN``, whose ops run on ``WORKER``."""
    parts = ((_tensorflow_step(number), Gap(11)) for number in range(STEPS))
    return tuple(instruction for part in parts for instruction in part)


def _tensorflow_step(number: int) -> Within:
    copy = Work("memcpy", "MemcpyH2D", "transfer", 31)
    loss = Work("memcpy", "MemcpyD2H", "transfer", 2)
    body = (
        _op("IteratorGetNext:IteratorGetNext", Launch(STREAM, copy, 9)),
        _op("lstm/Cast:Cast", _kernel(_TF_CAST, "cast", 12), category="cast"),
        Gap(6),
        _tensorflow_layer(number),
        _op("dense/MatMul:MatMul", _kernel(_GEMM, "gemm", 33), category="gemm"),
        _op(f"loss/{_TF_LOSS}:{_TF_LOSS}", _kernel(_SOFTMAX, _LOSS, 8), category=_LOSS),
        Gap(90),
        _op(
            f"gradients/lstm/{_TF_BACK}:{_TF_BACK}",
            _kernel(_LSTM_BACKWARD, "pointwise", 18),
            _kernel(_GEMM, "gemm", 70),
            category="rnn",
        ),
        _op("Adam/ResourceApplyAdam:ResourceApplyAdam", _kernel(_TF_ADAM, _OPT, 15), category=_OPT),
    )
    read = _op("EagerExecute: ReadLoss", Launch(STREAM, loss, 7), Sync("stream", STREAM, 2))
    function = Within("op", "TFE_Py_Execute", 9, (HandOver(WORKER, body),), 4)
    return Within("step", f"train#{number}", 3, (Gap(14), function, Gap(3), read), 8)


_TF_CAST = "void Eigen::internal::EigenMetaKernel<CastKernel<float, Eigen::half>, long>"
_TF_ADAM = "void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*, float*)"
_TF_LOSS = "SparseSoftmaxCrossEntropyWithLogits"
_TF_BACK = "CudnnRNNBackpropV3"


def _tensorflow_layer(number: int) -> Within:
    allocated = (Call("cudaMalloc", "alloc", 37),) if number == 0 else ()
    return _op(
        "lstm/CudnnRNNV3:CudnnRNNV3",
        *allocated,
        Launch(STREAM, Work("memset", "Memset", "memset", 3), 4),
        _kernel(_GEMM, "gemm", 60),
        Record(STREAM, 2 * number, 2),
        StreamWait(SIDE, 2 * number, 2),
        _kernel(_LSTM_FORWARD, "pointwise", 22, SIDE),
        Record(SIDE, 2 * number + 1, 2),
        StreamWait(STREAM, 2 * number + 1, 2),
        _kernel(_GEMM, "gemm", 48),
        category="rnn",
        enter_ticks=17,
    )

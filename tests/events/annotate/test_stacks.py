"""What a sampled stack was at, by the frames in it; the innermost frame is the last."""

from __future__ import annotations

import pytest

from lstmprof.events.annotate.sampled_stacks import part_of_stack, part_of_torch_op, within_step

STEP = "Trainer.step (lstmprof/capture/worker/loops/torch.py:99)"
CELL = "LSTMCell.forward (torch/nn/modules/rnn.py:1757)"
BACKWARD = "_engine_run_backward (torch/autograd/graph.py:979)"
ENGINE = "torch::autograd::Engine::evaluate_function (libtorch_cpu.so)"
EXECUTOR = (
    "tensorflow::(anonymous namespace)::ExecutorState<tensorflow::PropagatorState>::Process (x)"
)
XLA_GENERATED = "0x7f6f32ec907d (/tmp/perf-22652.map)"


@pytest.mark.parametrize(
    ("framework", "frames", "part"),
    [
        # the innermost op decides, whatever it calls
        ("torch", [STEP, CELL, "at::_ops::addmm::call (x)", "cblas_sgemm (x)"], "gemm"),
        ("torch", [STEP, CELL, "at::_ops::tanh::call (x)", "malloc (libc.so.6)"], "pointwise"),
        ("torch", [STEP, "at::_ops::lstm_cell::call (x)", "at::_ops::t::call (x)"], "dispatch"),
        ("torch", [STEP, BACKWARD, ENGINE, "at::_ops::add__Tensor::call (x)"], "pointwise"),
        (
            "torch",
            [STEP, "torch::autograd::VariableType::(anonymous namespace)::mul_Tensor (x)", "f (x)"],
            "pointwise",
        ),
        # a routine whose caller is lost
        ("torch", [STEP, CELL, "mkl_blas_avx512_sgemm_kernel_0 (libtorch_cpu.so)"], "gemm"),
        ("torch", [STEP, BACKWARD, "mkl_vml_kernel_sTanh_Z0HAynn (x)"], "pointwise"),
        ("torch", [STEP, BACKWARD, "jit_avx512_common_gemm_f32_xbyak_gemm.8 (generated)"], "rnn"),
        ("torch", [STEP, "jit_uni_lstm_cell_postgemm_fwd.2 (generated)"], "rnn"),
        ("tensorflow", ["jit_avx512_common_gemm_f32_xbyak_gemm.8 (generated)"], "gemm"),
        (
            "torch",
            [STEP, "adam (torch/optim/adam.py:970)", "at::_ops::mul__Tensor::call (x)"],
            "optimizer",
        ),
        # between the ops
        ("torch", [STEP, BACKWARD, ENGINE, "malloc (libc.so.6)"], "dispatch"),
        ("torch", [STEP, CELL], "python"),
        ("torch", [STEP, CELL, "torch::autograd::THPVariable_sqrt (libtorch_python.so)"], "python"),
        ("torch", ["_PyEval_EvalFrameDefault (libpython3.11.so.1.0)", "f (x)"], "python"),
        ("torch", ["THPEngine_run_backward (x)", "_PyEval_EvalFrameDefault (y)"], "dispatch"),
        # kernels of TensorFlow by their class, those of one or two inputs by their functor
        ("tensorflow", [EXECUTOR, "tensorflow::MklMatMulOp<D, float>::Compute (x)"], "gemm"),
        (
            "tensorflow",
            [EXECUTOR, "tensorflow::BinaryOp<D, tensorflow::functor::mul<float> >::Compute (x)"],
            "pointwise",
        ),
        (
            "tensorflow",
            [EXECUTOR, "tensorflow::BinaryOp<D, tensorflow::functor::less<int> >::Compute (x)"],
            "dispatch",
        ),
        ("tensorflow", [EXECUTOR, "tensorflow::SwitchOp::Compute (x)"], "dispatch"),
        ("tensorflow", [EXECUTOR, "free (libc.so.6)"], "dispatch"),
        ("tensorflow", ["quick_execute (tensorflow/python/eager/execute.py:53)"], "dispatch"),
        # XLA
        ("jax", ["xla::cpu::ThunkExecutor::Execute (x)", "ynn::run_dot<a> (x)"], "gemm"),
        ("jax", ["xla::cpu::CopyThunk::Execute (x)", "memmove (libc.so.6)"], "layout"),
        ("jax", ["xla::cpu::ThunkExecutor::Execute (x)"], "dispatch"),
        ("jax", [XLA_GENERATED], "compiled"),
        ("jax", ["f (jax/a.py:1)", "absl::FutexWaiter::Wait (x)"], "waiting"),
        # nothing tells
        ("torch", ["0x7fd682bb7d1a (?)"], "unknown"),
        ("tensorflow", [XLA_GENERATED], "unknown"),
    ],
)
def test_part_of_a_stack(framework: str, frames: list[str], part: str) -> None:
    assert part_of_stack(frames, framework).part == part


def test_code_of_which_nothing_is_known_is_unknown_beneath_python_too() -> None:
    assert part_of_stack([STEP, CELL, "0x7fd682bb7d1a (?)"], "torch").part == "unknown"


def test_line_is_the_innermost_of_python() -> None:
    frames = [STEP, CELL, "PyObject_GetAttr (libpython3.11.so.1.0)"]

    assert part_of_stack(frames, "torch").line == CELL


def test_garbage_collector_is_named_wherever_it_ran() -> None:
    part = part_of_stack([STEP, CELL, "at::_ops::mul::call (x)", "gc_collect_main (y)"], "torch")

    assert (part.part, part.line) == ("pointwise", "garbage collector")


@pytest.mark.parametrize(
    ("symbol", "part"),
    [
        ("add__Tensor", "pointwise"),
        ("sum_dim_IntList", "reduction"),
        ("unsafe_split_Tensor", "layout"),
        ("slice_Tensor", "dispatch"),
        ("mkldnn_rnn_layer_backward", "rnn"),
        ("_thnn_fused_lstm_cell_backward_impl", "pointwise"),
        ("nobody_knows_this", "other"),
    ],
)
def test_overload_does_not_belong_to_the_name_of_an_op(symbol: str, part: str) -> None:
    assert part_of_torch_op(symbol) == part


def test_what_a_worker_does_between_its_steps_is_left_out() -> None:
    worker = "sampled (lstmprof/capture/worker/sampling.py:70)"

    assert within_step([worker, STEP, CELL]) == [STEP, CELL]
    assert within_step([worker, "poll (subprocess.py:1234)"]) is None
    assert within_step([EXECUTOR]) == [EXECUTOR]

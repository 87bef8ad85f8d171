"""Which rule decides: the kind, the op around, the op named, then the kernel's own name."""

from __future__ import annotations

import pytest
from events.rows import Row, row, table

from lstmprof.events.annotate import categories
from lstmprof.events.annotate.categories import categorised
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.rules import OP_RULES, RULES, op_rule, rule_text
from lstmprof.events.annotate.rules.kernels import KERNEL_RULES
from lstmprof.events.annotate.rules.rule import CATEGORIES
from lstmprof.events.annotate.sampled_stacks import FRAME_RULES

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def category(rows: list[Row], name: str) -> tuple[str | None, str | None]:
    """(category, family) of the event called ``name``."""
    events = categorised(linked(table(rows))).to_pylist()
    return next((r["category"], r["family"]) for r in events if r["name"] == name)


def beneath(op: str, kernel: str, *around: str, **columns: object) -> list[Row]:
    """A kernel launched inside ``op``, inside the ops ``around``, outermost last."""
    rows = [row("op", op, 10, 20, **HOST, **columns)]
    rows += [row("op", n, 9 - i, 21 + i, **HOST) for i, n in enumerate(around)]
    rows.append(row("runtime", "cudaLaunchKernel", 12, 13, **HOST, correlation_id=3))
    return [*rows, row("kernel", kernel, 30, 40, **GPU, correlation_id=3)]


@pytest.mark.parametrize(
    ("op", "kernel", "expected"),
    [
        ("aten::addmm", "splitKreduce_kernel", ("gemm", None)),
        ("cudnn::RNNForward", "ampere_sgemm_32x32_sliced1x4_tn", ("rnn", "gemm")),
        ("cudnn::AddTensor", "some_kernel", ("pointwise", None)),
        ("aten::_cudnn_rnn", "ampere_sgemm_32x128_tn", ("rnn", "gemm")),
        ("aten::_cudnn_rnn_backward", "elemWiseRNNcell", ("rnn", "pointwise")),
        ("aten::_cudnn_rnn", "RNN_blockPersist_fp_LSTM", ("rnn", "persistent")),
        ("aten::view", "ampere_sgemm_32x128_tn", ("gemm", None)),
        ("aten::sigmoid_", "anything", ("pointwise", None)),
        ("aten::_foo_bar", "nobody_knows", ("other", None)),
        ("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_f32", ("collective", None)),
        ("mylib::fused_attention_gemm", "elementwise_k", ("pointwise", None)),
        ("mylib::run", "nvfuser_inner_persistent_f0_c1_r0_g2", ("reduction", None)),
        ("mylib::run", "nvfuser_reduction_f0_c1_r0_g3", ("reduction", None)),
        ("mylib::run", "nvfuser_pointwise_f0_c1_r0_g3", ("pointwise", None)),
        ("mylib::run", "triton_red_fused_add_mean_1", ("reduction", None)),
        ("mylib::run", "triton_poi_fused_add_1", ("pointwise", None)),
        ("mylib::run", "triton_tem_fused_2", ("gemm", None)),
        ("mylib::run", "void upsample_bilinear2d_out_frame<float>()", ("pointwise", None)),
        ("mylib::run", "void flip_filter<float, float>()", ("layout", None)),
        ("mylib::run", "cunn_ClassNLLCriterion_updateOutput_kernel", ("softmax_loss", None)),
    ],
)
def test_the_op_decides_before_the_kernel(
    op: str, kernel: str, expected: tuple[str, str | None]
) -> None:
    assert category(beneath(op, kernel), kernel) == expected


def test_rules_are_asked_about_ops_and_kernels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for rule in ("op_rule", "kernel_rule"):
        decide = getattr(categories, rule)
        monkeypatch.setattr(categories, rule, lambda n, f=decide: asked.append(n) or f(n))
    frames = [
        row("python", f"torch/nn/modules/m{n}.py(3): forward", n, 90, **HOST) for n in range(3)
    ]
    rows = [*frames, *beneath("aten::addmm", "splitKreduce_kernel")]
    assert category(rows, "splitKreduce_kernel") == ("gemm", None)
    assert set(asked) == {"aten::addmm", "splitKreduce_kernel"}


def test_a_copy_is_a_cast_where_the_element_type_changes() -> None:
    half = beneath("aten::copy_", "k", dtypes='["c10::Half", "float", ""]')
    same = beneath("aten::copy_", "k", dtypes='["float", "float", ""]')
    unsaid = beneath("aten::copy_", "k", "aten::_to_copy", "aten::to")
    contiguous = beneath("aten::copy_", "k", "aten::clone", "aten::contiguous")
    found = [category(rows, "k")[0] for rows in (half, same, unsaid, contiguous)]
    assert found == ["cast", "layout", "cast", "layout"]


def test_small_work_of_the_optimizer_is_the_optimizer() -> None:
    phase = row("range", "optimizer", 0, 25, **HOST)
    assert category([phase, *beneath("aten::_foreach_add_", "k")], "k")[0] == "optimizer"
    assert category([phase, *beneath("aten::mm", "k")], "k")[0] == "gemm"


def test_copies_go_by_their_kind_and_direction() -> None:
    rows = [
        row("memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 1, **GPU),
        row("memcpy", "Memcpy DtoD (Device -> Device)", 1, 2, **GPU),
        row("memcpy", "CopyDeviceToDevice", 2, 3, **GPU),
        row("memset", "Memset (Device)", 3, 4, **GPU),
    ]
    found = [category(rows, r["name"])[0] for r in rows]
    assert found == ["transfer", "layout", "layout", "memset"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forward/while/body/_1/forward/while/MatMul:_MklMatMul", "gemm"),
        ("forward/while/body/_1/forward/while/Tanh:Tanh", "pointwise"),
        ("forward/while/Identity:Identity", None),
        ("gradient_tape/forward/BiasAddGrad:BiasAddGrad", "reduction"),
        ("forward/Cast:Cast", "cast"),
        ("rnn/TensorArrayStack:TensorArrayGatherV3", "layout"),
        ("rnn/TensorArrayUnstack:TensorArrayScatterV3", "layout"),
        ("rnn/while/TensorArrayReadV3:TensorArrayReadV3", None),
        ("x:NoSuchOp", "other"),
        ("pool1:MaxPool", "reduction"),
        ("gradients/pool1_grad/MaxPoolGrad:MaxPoolGrad", "reduction"),
        ("decoder/Ceil:Ceil", "pointwise"),
        ("gradients/rsqrt_grad:RsqrtGrad", "pointwise"),
        ("layer_1/weights/Assign:Assign", "layout"),
        ("layer_1/weights:VariableV2", None),
        ("input/fifo_queue_Dequeue:QueueDequeueV2", None),
        ("decoder:CTCGreedyDecoder", "ctc"),
        ("embeddings:UnsortedSegmentSum", "reduction"),
        ("GPU:0 dense/MatMul:MatMul", None),  # enqueues it
        ("KernelAndDeviceFunc::Run", None),
        ("aten::linear", None),
        ("aten::mm", "gemm"),
        ("aten::mkldnn_rnn_layer", "rnn"),
        ("mylib::secret_op", "other"),
        ("mylib::paged_attention", "attention"),
        ("fbgemm::permute_2D_sparse_data", "layout"),
        ("mylib::layout_conversion_fused", "pointwise"),
        ("prims::mul", "pointwise"),
        ("aten::upsample_nearest2d", "pointwise"),
        ("IteratorGetNext_1:IteratorGetNext", None),
        ("AddmmBackward0", None),
        ("while.3", None),
        ("ThunkExecutor::Execute", None),
        ("dot_general.22", "gemm"),
        ("dot.1.clone", "gemm"),
        ("wrapped_add.3", "pointwise"),
        ("bitcast_multiply_fusion.2", "pointwise"),
        ("bitcast_dynamic-update-slice_fusion", "layout"),
        ("copy.38", "layout"),
        ("convert_bitcast_fusion", "cast"),
        ("wrapped_reduce", "reduction"),
        ("fusion.7", "other"),
        ("pytensor::Scan{grad_of_l0, while_loop=False, inplace=all}", None),
        ("pytensor::Subtensor{:, start:stop}", None),
        ("pytensor::Gemm{inplace}", "gemm"),
        ("pytensor::Dot22", "gemm"),
        ("pytensor::Composite{...}", "pointwise"),
        ("pytensor::Sum{axis=0, acc=float64}", "reduction"),
        ("pytensor::IncSubtensor{start:}", "layout"),
        ("theano::Elemwise{Cast{float32}}", "cast"),
        ("theano::Elemwise{scalar_sigmoid}", "pointwise"),
        ("theano::for{cpu,grad_of_l0}", None),
        ("theano::forall_inplace,cpu,grad_of_l0}", None),
        ("theano::for{inplace{0,1,},cpu,scan_fn}", None),
        ("theano::do_while{cpu,decoder}", None),
        ("theano::Dot22", "gemm"),
        ("theano::dot", "gemm"),
        ("onnxruntime::LSTM", "rnn"),
        ("onnxruntime::MatMul", "gemm"),
        ("onnxruntime::Reshape", None),
        ("onnxruntime::LogSoftmax", "softmax_loss"),
        ("onnxruntime::GatherElements", "layout"),
        ("onnxruntime::ReduceMean", "reduction"),
        ("onnxruntime::Neg", "pointwise"),
        ("openvino::LSTMSequence", "rnn"),
        ("openvino::FullyConnected", "gemm"),
        ("openvino::Reorder", "layout"),
        ("openvino::Convert", "cast"),
        ("openvino::Convolution", "conv"),
        ("aoti_torch_cpu_mkldnn_rnn_layer", "rnn"),
        ("aoti_torch_cuda__cudnn_rnn", "rnn"),
        ("aoti_torch_cpu_mm_out", "gemm"),
        ("aoti_torch_cpu_addmm_out", "gemm"),
        ("graph_1_cpp_fused_cat_1", "layout"),
        ("graph_0_cpp_fused__softmax_2", "softmax_loss"),
        ("cpp_fused_add_tanh_0", "pointwise"),
        ("chainer::LSTM", "pointwise"),  # the gates, after the products
        ("chainer::LSTMBackward", None),
        ("chainer::LinearGradWeight", "gemm"),
        ("chainer::_ + _", "pointwise"),
        ("chainer::ConnectionistTemporalClassification", "ctc"),
        ("chainer::ConnectionistTemporalClassificationGrad", "ctc"),
        ("mxnet::MXImperativeInvokeEx", None),
        ("mxnet::MXNDArraySyncCopyFromCPU", "transfer"),  # waits for the engine, then copies
        ("mxnet::DeleteVariable", None),
        ("mxnet::RNN", "rnn"),
        ("mxnet::_backward_RNN", "rnn"),
        ("mxnet::FullyConnected", "gemm"),
        ("mxnet::_sg_mkldnn_fully_connected", "gemm"),
        ("mxnet::_backward_mul_scalar", "pointwise"),
        ("mxnet::_backward_log_softmax", "softmax_loss"),
        ("mxnet::_zeros_without_dtype", "pointwise"),
        ("mxnet::slice_axis", "layout"),
        ("mxnet::max_axis", "reduction"),
        ("mxnet::adam_update", "optimizer"),
        ("mxnet::CTCLoss", "ctc"),
        ("mxnet::xyzzy", "other"),
        ("caffe2::RecurrentNetworkGradient", "rnn"),
        ("caffe2::Net", None),
        ("caffe2::FCGradient", "gemm"),
        ("caffe2::Reshape", None),
        ("caffe2::Adam", "optimizer"),
        ("caffe2::WeightedSum", "pointwise"),
        ("aten::unsafe_split", "layout"),
        ("aten::unsafe_chunk", "layout"),
        ("aten::split", None),
        ("aten::split_with_sizes", None),
        ("aten::split_with_sizes_copy", "layout"),
        ("aten::_foreach_copy_", "layout"),
        ("aten::_foreach_norm", "reduction"),
        ("aten::linalg_vector_norm", "reduction"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::_fused_dropout", "rng"),
        ("aten::_convert_weight_to_int4pack", "cast"),
        ("aten::_embedding_bag", "embedding"),
        ("aten::_grouped_mm", "gemm"),
        ("aten::_scaled_mm", "gemm"),
        ("fbgemm::bounds_check_indices", "embedding"),
        ("fbgemm::block_bucketize_sparse_features", "layout"),
        ("fbgemm::FloatToFP8RowwiseQuantized", "cast"),
        ("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", "embedding"),
        ("vllm::unified_kv_cache_update", "layout"),
        ("_C::rotary_embedding", "pointwise"),
        ("lstm/while/LogicalAnd:LogicalAnd", "pointwise"),
        ("a/Relu:_MklRelu", "pointwise"),
        ("a/bn:_FusedBatchNormEx", "normalization"),
        ("a/moments/SquaredDifference:SquaredDifference", "pointwise"),
        ("a:_NobodyKnows", "other"),
        ("triton_poi_fused__to_copy_1", "cast"),
        ("all-reduce.3", "collective"),
        ("all-gather-start", "collective"),
        ("all-reduce-simplifier", None),  # a pass of the compiler
        ("collective-pipeliner-forward", None),
        ("dot_canonicalizer", None),
        ("convolution_precision_normalizer", None),
        ("multi_output_fusion", None),
        ("dot_add_fusion.2", "gemm"),
        ("input_transpose_fusion.1", "layout"),
        ("loop_reduce_fusion", "reduction"),
        ("loop_fusion.4", "other"),
        ("fb::convex_sum", "reduction"),
        ("fb::offsets_range", "pointwise"),
        ("fb::to_dense_representation", "layout"),
        ("triton_per_fused__softmax_2", "softmax_loss"),
    ],
)
def test_an_op_has_a_category_where_it_computes(name: str, expected: str | None) -> None:
    assert category([row("op", name, 0, 5, **HOST)], name)[0] == expected


def test_the_op_that_an_activity_names_decides_before_its_own_name() -> None:
    rows = [row("kernel", "void Eigen::f()", 0, 1, **GPU, op_name="forward/Cast_1:Cast")]
    assert category(rows, "void Eigen::f()")[0] == "cast"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("jit(f)/transpose(jvp(forward))/lstm/while/body/dot_general", "gemm"),
        ("jit(f)/transpose(jvp(forward))/while/body/reduce_sum", "reduction"),
        ("ynn_fusion.2", "other"),
    ],
)
def test_the_path_decides_what_a_library_fused(path: str, expected: str) -> None:
    rows = [row("op", "ynn_fusion.2", 0, 5, **HOST, op_name=path)]
    assert category(rows, "ynn_fusion.2")[0] == expected


SCOPES = ("lstm", "gru", "rnn", "attention", "embedding", "conv2d", "optimizer", "loss", "softmax")


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("model/{}/while/body/_1/zeros:ZerosLike", "pointwise"),
        ("model/{}/while/body/_1/add:AddV2", "pointwise"),
        ("model/{}/while/body/_1/mul:Identity", None),
        ("model/{}/while/MatMul_3", "gemm"),
        ("model/{}/LogicalAnd", "pointwise"),
        ("gradient_tape/{}/while/mul_2", "pointwise"),
        ("jit(step)/transpose(jvp({}))/while/body/closed_call/add_any", "pointwise"),
        ("jit(step)/jvp({})/convert_element_type", "cast"),
        ("jit({})/jit(main)/broadcast_in_dim", "layout"),
        ("jit(step)/{}/reduce_sum", "reduction"),
    ],
)
def test_the_name_of_a_scope_never_decides(scope: str, path: str, expected: str | None) -> None:
    path = path.format(scope)
    on_device = [row("kernel", "input_fusion_3", 0, 1, **GPU, op_name=path)]
    assert category(on_device, "input_fusion_3")[0] == (expected or "pointwise")
    if ":" in path:
        assert category([row("op", path, 0, 5, **HOST)], path)[0] == expected
    else:
        on_host = [row("op", "fusion.7", 0, 5, **HOST, op_name=path)]
        assert category(on_host, "fusion.7")[0] == expected


def test_a_scope_called_optimizer_is_the_optimizer_only_where_lstmprof_wrote_it() -> None:
    rows = [row("kernel", "fusion_3", 0, 1, **GPU, op_name="jit(step)/optimizer/mul")]
    events = linked(table(rows))
    found = [categorised(events, captured=c).to_pylist()[0]["category"] for c in (False, True)]
    assert found == ["pointwise", "optimizer"]


_DIRECT = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"
NOCAST = f"void at::native::elementwise_kernel<128, 4, gpu_kernel_impl_nocast<{_DIRECT}> >(int)"
CASTS = f"void at::native::unrolled_elementwise_kernel<{_DIRECT}, memory::LoadWithCast<1> >(int)"
EITHER = f"void at::native::elementwise_kernel<128, 4, gpu_kernel_impl<{_DIRECT}> >(int)"


@pytest.mark.parametrize(
    ("kernel", "op", "dtypes", "expected"),
    [
        (NOCAST, "aten::addmm", None, "layout"),
        (NOCAST, "aten::copy_", None, "layout"),
        (CASTS, "aten::copy_", None, "cast"),
        (CASTS, "aten::cat", None, "cast"),
        (CASTS, "aten::mm", None, "cast"),
        (EITHER, "aten::copy_", '["c10::Half", "float", ""]', "cast"),
        (EITHER, "aten::copy_", '["float", "float", ""]', "layout"),
        (EITHER, "aten::addmm", None, "layout"),
        (NOCAST, "aten::_cudnn_rnn", None, "rnn"),
    ],
)
def test_a_copy_within_an_op_is_a_copy(
    kernel: str, op: str, dtypes: str | None, expected: str
) -> None:
    rows = beneath(op, kernel, **({"dtypes": dtypes} if dtypes else {}))
    assert category(rows, kernel)[0] == expected


def test_a_copy_to_another_layout_is_no_cast_though_aten_to_asks_for_it() -> None:
    assert category(beneath("aten::copy_", NOCAST, "aten::_to_copy", "aten::to"), NOCAST)[0] == (
        "layout"
    )


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("redzone_checker", "pointwise"),
        ("__xla_fp32_comparison", "pointwise"),
        ("__amd_rocclr_fillBufferAligned.kd", "memset"),
        ("__amd_rocclr_copyBuffer.kd", "layout"),
        ("nchwToNhwcKernel", "conv"),
    ],
)
def test_an_autotuners_check_and_a_memset_of_rocm_are_no_convolution(
    kernel: str, expected: str
) -> None:
    path = "functional_1/conv2d_8/Conv2D"
    assert category([row("kernel", kernel, 0, 1, **GPU, op_name=path)], kernel)[0] == expected
    assert category(beneath("aten::cudnn_convolution", kernel), kernel)[0] == expected


def test_the_name_of_a_librarys_op_decides_where_its_kernels_name_does_not() -> None:
    assert category(beneath("mylib::rotary_embedding", "k17"), "k17")[0] == "pointwise"
    assert category(beneath("mylib::rotary_embedding", "sgemm_nt"), "sgemm_nt")[0] == "gemm"


def test_every_rule_names_a_known_category_and_every_category_has_a_rule() -> None:
    named = {rule.category for rule in (*OP_RULES, *KERNEL_RULES)} - {None}
    assert named <= set(CATEGORIES)
    assert named >= set(CATEGORIES) - {"transfer", "memset"}


def test_every_rule_has_an_expression_that_compiles() -> None:
    rules = (*RULES, *FRAME_RULES)
    assert [rule.pattern.pattern for rule in rules] == [rule.expression for rule in rules]


def test_every_rule_has_a_reason_that_tells_it_apart() -> None:
    said = [rule_text(number) for number in range(len(RULES))]
    assert len(set(said)) == len(said)
    assert all(rule.reason for rule in RULES)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("gemm_fusion_dot_7", "gemm"),
        ("loop_reduce_fusion_3", "reduction"),
        ("loop_transpose_fusion", "layout"),
        ("fusion_3", "layout"),
    ],
)
def test_a_product_that_is_then_transposed_is_a_product(kernel: str, expected: str) -> None:
    path = "jit(train)/jit(main)/transpose(jvp(attention))/dot_general/transpose"
    rows = [row("kernel", kernel, 0, 1, **GPU, op_name=path)]
    assert category(rows, kernel) == (expected, None)


def test_rules_match_whole_op_names() -> None:
    rule = op_rule("aten::mm_but_longer")
    assert rule is None or rule.category == "other"

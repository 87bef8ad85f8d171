"""What a kernel is for by its name alone: names of many libraries, none of a model's scopes."""

from __future__ import annotations

import pytest

from lstmprof.events.annotate.rules import kernel_rule

_NOCAST = "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(I&)::{lambda()#3}"
_COPY = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"
_ARRAYS = "std::array<char*, 2ul>, TrivialOffsetCalculator<1, unsigned int>"
_TEMPLATE = "at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 2ul> >(int)"

NAMES: dict[str, tuple[str, ...]] = {
    "gemm": (
        "_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x384E",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x8x512_s3_et128x8_rM_TN_transOut_schPd",
        "bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512_s5_et128x8_m128x8x64_cga1x1x1_16dp256b_rM_TN",
        "_w8a8_triton_block_scaled_mm",
        "void marlin_moe_wna16::Marlin<1125899906909960l, 256>(int4 const*)",
        "fused_moe_kernel",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u>(float*, CUtensorMap)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<S> >(P)",
        "nvjet_sm100_tst_32x64_64x16_4x1_v_bz_splitK_bias_TNN",
        "void cutensor_internal_namespace::tensor_contraction_kernel<float>(P)",
        "Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x64x32",
        "__triton_gemm_dot_general_7",
        "void splitKreduce_kernel<32, 16, float>(cublasSplitKParams<float>)",
        "void mul_mat_q<(ggml_type)12, 64, false>(char const*, int const*, float*)",
    ),
    "conv": (
        "trt_volta_h884cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1",
        "void fft2d_r2c_32x32<float, false, 1u, true>(float2*, cudnn::reduced_divisor)",
        "cask_cudnn::computeWgradSplitKOffsetsKernel(cask_cudnn::ComputeSplitKOffsetsParams)",
        "causal_conv1d_fwd_kernel",
        "miopenSp3AsmConv_v21_1_2_gfx9_fp32",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(P)",
    ),
    "attention": (
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<P>(P)",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "void gated_delta_net_cuda<128, false>(float const*, float const*, float*)",
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64VarSeqQ128Kv128Persistent",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>(P)",
        "_fwd_grouped_kernel_stage1",
        "void flash_fwd_splitkv_mla_kernel<T>(P)",
        "_ZN5aiter45mla_a8w8_qh32_qseqlen4_gqaratio32_lse_cprr_psE.kd",
        "_fp8_paged_mqa_logits_kernel",
    ),
    "collective": (
        "void deep_ep::intranode::dispatch<2, 768, 8192>(int4*, float*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 2, 768, 4096>(P)",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(P)",
        "void internode::dispatch<true, 4>(P)",
        "void intranode::combine<half, 8>(P)",
        "void deep_ep::internode::notify_dispatch<false, 2>(P)",
        "void primus_turbo::deep_ep::intranode::notify_dispatch<8>(int const*)",
        "void low_latency::dispatch<false>(P)",
        "deep_ep::layout::get_dispatch_layout(int*)",
        "EpDispatchIntraNodeKernel_fp8_fnuz",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16>(P)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(P)",
        "flashinfer::comm::ulysses_pcie::UlyssesPcieBarrier(unsigned long *)",
        "moeA2ADispatchKernel",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    ),
    "cast": (
        "void vllm::scaled_fp8_quant_kernel_strided_group_shape<c10::BFloat16, true>(P)",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, __nv_fp8_e4m3>(P)",
        "void tensorrt_llm::kernels::quantize_with_block_size<(Type)2, __nv_bfloat16, 32>(P)",
        "void vllm::cvt_fp16_to_fp4<c10::BFloat16, false>(int, int)",
        "per_token_cast_to_fp8_kernel",
        "_per_block_cast_kernel",
        "void vllm::dynamic_scaled_int8_quant_kernel<c10::Half>(P)",
        "act_quant_kernel",
        "void dequantize_mxfp4<float>(P)",
        "kDequantizeBlockwise",
        "void fbgemm_gpu::(anonymous namespace)::_get_FP8_qparam_cuda_kernel<float>(P)",
        _TEMPLATE.format("fbgemm_gpu::_float_to_hfp8_gpu(at::Tensor const&)::{lambda(float)#1}"),
        _TEMPLATE.format("at::native::bfloat16tofloat32_copy_kernel_cuda(I&)::{lambda(float)#1}"),
        "void transformer_engine::block_scaled_1d_cast_transpose_kernel<bool>(P)",
        f"void at::native::unrolled_elementwise_kernel<{_COPY}, {_ARRAYS}, "
        "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)",
        "void at::native::elementwise_kernel_manual_unroll<128, 4, "
        f"at::native::gpu_kernel_impl<{_COPY}> >(int)",
        "SubTensorOpWithCastTensor1d",
        "wrapped_convert.kd",
        "triton_poi_fused__to_copy_1",
        "triton_poi_fused_view__to_copy_4",
    ),
    "layout": (
        "write_req_to_token_pool_triton",
        "void genericReformat::copyVectorizedKernel<double>(P)",
        "void moe::dev::convertsf::convertSfKernel<P>(P)",
        "void CUTENSOR_NAMESPACE::permutationKernelPLC3<CUTENSOR_NAMESPACE::VectorWrite2D>(P)",
        "void vllm::reshape_and_cache_flash_kernel<half>(half const*)",
        "void vllm::concat_and_cache_mla_kernel<half>(half const*)",
        "void (anonymous namespace)::store_kvcache<2048l, 4>(P)",
        "void store_kv_cache<half>(P)",
        "void flashinfer::AppendPagedKVCacheKernel<128>(P)",
        "create_flashinfer_kv_indices_triton",
        "void recat_copy_async_kernel<float>(long const*)",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)",
        "void permute_pooled_embs_kernel<float>(float const*)",
        "void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel1<int, int>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<half>(P)",
        "at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel(char **)",
        f"void at::native::elementwise_kernel<128, 2, {_NOCAST}>(I&)>(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::copy_device_to_device(I&)>(int)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1>(P)",
        "void cudnn::ops::nchwToNhwcKernel<float>(cudnn::ops::nchw2nhwc_params_t<float>)",
        "__amd_rocclr_copyBuffer.kd",
        "triton_poi_fused_cat_3",
        "triton_poi_fused_clone_transpose_view_4",
        "loop_transpose_fusion",
        "copyPackedKernel",
    ),
    "memset": ("__amd_rocclr_fillBufferAligned.kd",),
    "pointwise": (
        "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<half>(P)",
        "void cutlass_kernels::computeStridesTmaWarpSpecializedKernel<half>(P)",
        "mul_broadcast_2d_kernel",
        "void cudnn::ops::op_generic_tensor_kernel<2, float>(P)",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true>(P)",
        "apply_rotary_kernel",
        "_rope_fwd_kernel",
        "void vllm::act_and_mul_kernel<c10::BFloat16, true>(c10::BFloat16*)",
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::arange(S)>(int)",
        "void fbgemm_gpu::_offsets_range_cuda_kernel<int>(long)",
        "redzone_checker",
        "__xla_fp32_comparison",
        "triton_poi_fused_convolution_3",
        "triton_poi_fused_add_native_layer_norm_5",
        "void at::native::(anonymous namespace)::lstm_cell_forward<float>(P)",
        "SubTensorOpWithScalar1d",
        "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<double>, "
        f"{_ARRAYS}, at::native::memory::LoadWithCast<2> >(int)",
    ),
    "embedding": (
        "void fbgemm_gpu::lxu_cache_lookup_kernel<long>(P)",
        "void split_embedding_codegen_forward_unweighted_kernel<float>(fbgemm_gpu::P)",
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<c10"
        "::Half>(at::GenericPackedTensorAccessor<float>, fbgemm_gpu::FixedDivisor)",
        "void bounds_check_indices_kernel<long, false>(at::A<long>, fbgemm_gpu::FixedDivisor)",
        "triton_poi_fused_embedding_0",
    ),
    "reduction": (
        "sm50_xmma_pooling_coalescedC_NHWC_kMAX_3_False_execute_kernel_trt",
        "sm50_xmma_pooling_fw_4d_FP16FP32NHWC_Average_FastDiv_CAlign8_execute_kernel_trt",
        "void at::native::sbtopk::gatherTopK<float>(P)",
        "void tensorflow::BiasGradNHWC_SharedAtomics<float>(int)",
        "void cudnn::ops::pooling_fw_4d_kernel<float>(P)",
        "_finalize_matmul_scatter_bf16",
        "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<half>(P)",
        "void moe::dev::finalize::finalizeKernel<moe::dev::finalize::KernelParams<half> >(P)",
        "void vllm::moe::moe_align_block_size_kernel<int>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::blockExpertPrefixSumKernel<1024>(P)",
        "triton_red_fused_add_mean_1",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<M<1>, "
        "at::native::(anonymous namespace)::LpNormFunctor<float> >(M<1>)",
    ),
    "normalization": (
        "_rms_norm_rope_kernel",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16EEEvPT0_",
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnorm",
        "triton_per_fused_native_layer_norm_3",
        "void transformer_engine::normalization::rmsnorm_bwd_finalize_general_kernel<P>(P)",
    ),
    "softmax_loss": ("triton_red_fused__softmax_7",),
    "rnn": (
        "void elemWiseRNNcell<float, float, 2>(int)",
        "LSTM_elementWise_fp",
        "RNN_blockPersist_fp_GRU",
    ),
}
CASES = [(name, category) for category, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("kernel", "category"), CASES)
def test_a_kernel_says_what_it_is_for(kernel: str, category: str) -> None:
    rule = kernel_rule(kernel)
    assert rule is not None
    assert rule.category == category


def test_what_a_kernel_is_called_with_does_not_say_what_it_does() -> None:
    assert kernel_rule("void mine(at::native::IndexParams, flash::P, lstm::S, cublasGemv)") is None

"""What a kernel's name says: its own function, what it only runs, whether it multiplies."""

from __future__ import annotations

import time

import pytest

from lstmprof.events.annotate.rules.kernels import is_product, kernel_name


@pytest.mark.parametrize(
    ("kernel", "qualified", "runs"),
    [
        ("ampere_sgemm_32x128_tn", "ampere_sgemm_32x128_tn", ""),
        (
            "void cudnn::ops::nchwToNhwcKernel<float, (int)2>(cudnn::Params<T1>, const T1 *)",
            "cudnn::ops::nchwToNhwcKernel",
            "",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, 7>(float*, int)",
            "_::softmax_warp_forward",
            "",
        ),
        ("void <unnamed>::flip<float>(T1 *)", "_::flip", ""),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, 7, "
            "cublasGemvParams<cublasGemvTensor<float const> > >(cublasGemvParams<float>)",
            "internal::gemvx::kernel",
            "cublasGemvParams",
        ),
        (
            "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel<P<half> > >(A)",
            "ck_tile::kentry",
            "ck_tile::FmhaFwdKernel",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<M> > >(P)",
            "cutlass::device_kernel",
            "flash::enable_sm90 flash::FlashAttnFwdSm90",
        ),
        (
            "_ZN2at6native78_GLOBAL__N__54_tmpxft_00008e34_00000000_11_SoftMax_compute_75_cpp1_ii"
            "_a331004219cunn_SoftMaxForwardILi4EEEvPT_",
            "at::native::_::cunn_SoftMaxForward",
            "",
        ),
        (
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineIDF16bEEEEEEvT0_",
            "ck_tile::kentry",
            "Rmsnorm2dFwd",
        ),
        ("loop_reduce_fusion_1.kd", "loop_reduce_fusion_1", ""),
        ("ns::populate(long*, long) [clone .kd]", "ns::populate", ""),
    ],
)
def test_the_function_apart_from_its_template_and_parameters(
    kernel: str, qualified: str, runs: str
) -> None:
    name = kernel_name(kernel)
    assert (name.qualified, name.runs) == (qualified, runs)


PRODUCTS = (
    "ampere_sgemm_32x128_tn",
    "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn",
    "ampere_gcgemm_64x64_nt",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(P::Params)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<S, cutlass::NumericConverter>"
    ">(P)",
    "void gemv2T_kernel_val<int, int, float, 128, 16>(cublasGemvParams<float>)",
    "std::enable_if<true, void>::type internal::gemvx::kernel<int, cublasGemvParams<float> >(P)",
    "nvjet_tst_192x192_64x3_1x2_h_bz_coopB_NTN",
    "Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x64x32_MI32x32x1_SN",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_execute_split_k_kernel__5x_cublas",
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512_s6_et128x8_m128x8x32_cga1x1x1_16dp256b",
    "bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512_s5_et128x8_m128x8x64_cga1x1x1",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
    "fused_moe_gemm_kernel",
    "gemm_fusion_dot_general_1.kd",
    "triton_tem_fused_mm_2",
    "fusion_7",
    "MatMul",
    "Conv2D",
    "volta_scudnn_128x128_stridedB_splitK_medium_nn_v1",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_execute_kernel_cudnn",
    "void implicit_convolve_sgemm<float, 128, 5>(int, float*, kernel_conv_params)",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128>(int, kernel_grad_params)",
    "void cudnn::detail::dgrad_engine<float, 512>(int)",
    "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64>(T1::P)",
    "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt64x64x64",
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3>(A<float>)",
    "miopenSp3AsmConv_v21_1_2_gfx9_fp32_stride2",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::P)",
    "void pytorch_flash::flash_fwd_splitkv_kernel<T<64> >(pytorch_flash::Params)",
    "kernel_unified_attention_2d",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>(P)",
    "RNN_blockPersist_fp_LSTM",
    "void mul_mat_q<(ggml_type)12, 64, false>(char const*, int const*, float*)",
    "void mul_mat_vec_q<(ggml_type)13, 1, false, false>(void const*, float*)",
)
HELPERS = (
    "cask_cudnn::computeBOffsetsKernel(cask_cudnn::ComputeBOffsetsParams)",
    "void cask_cudnn::computeWgradSplitKOffsetsKernel(cask_cudnn::ComputeSplitKOffsetsParams)",
    "void cudnn::cnn::im2col4d_kernel<float, long>(cudnnConvolutionStruct, float*)",
    "void at::native::im2col_kernel<float>(long, float const*)",
    "Im3d2Col.kd",
    "void cudnn::ops::nchwToNhwcKernel<float>(cudnn::ops::nchw2nhwc_params_t<float>)",
    "void nhwcToNchwKernel<float, float>(int, float const*)",
    "void cudnn::ops::scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct, float*)",
    "void cudnn::winograd::generateWinogradTilesKernel<0, float>(P)",
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(P)",
    "void cudnn::winograd_nonfused::winogradWgradDelta4x4<float, float>(P)",
    "void cudnn::winograd_nonfused::winogradForwardOutput9x9_5x5<float, float>(P)",
    "void fft2d_r2c_32x32<float, false>(float2*, cudnn::reduced_divisor)",
    "void flip_filter<float, float>(float*, float const*)",
    "void cudnn::gemm::computeOffsetsKernel(cudnn::gemm::ComputeOffsetsParams)",
    "batched_transpose_16x64_pack_1x4_ediv_1x2_half",
    "SubTensorOpWithScalar1d",
    "void splitKreduce_kernel<32, 16, float>(cublasSplitKParams<float>, float const*)",
    "void cutlass::Kernel2<cutlass::reduction::kernel::ReduceSplitK<S, Gemm> >(P)",
    "void epilogue::impl::globalKernel<float>(cublasLtEpilogue_t)",
    "void scal_kernel<float, float>(cublasTransposeParams<float>, float*)",
    "Cijk_S_PostGSU8_VW4",
    "void mul_mat_q_stream_k_fixup<(ggml_type)12, 64>(int const*, float*, float const*)",
    "void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)1>(float const*, int const*, void*)",
    "_finalize_matmul_scatter_bf16",
    "void fbgemm_gpu::permute_2D_data_kernel<false>(int)",
    "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_float_to_hfp8_gpu(T)>(int)",
    "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaBwdConvertQGradKernel<P> >(A)",
    "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaBwdOGradDotOKernel<P> >(A)",
    "void flash_fwd_splitkv_combine_kernel<T<64> >(Params)",
    "void vllm::reshape_and_cache_flash_kernel<half>(half*)",
    "void paged_attention_ll4mi_reduce_kernel<half>(half*)",
    "void elemWiseRNNcell<float, float, 2>(int)",
    "input_transpose_fusion",
    "loop_reduce_fusion_1",
    "SigmoidGrad",
    "nobody_knows",
)


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_a_product_says_so(kernel: str) -> None:
    assert is_product(kernel)


@pytest.mark.parametrize("kernel", HELPERS)
def test_what_a_library_launches_around_a_product_is_none(kernel: str) -> None:
    assert not is_product(kernel)


def test_a_name_without_end_is_named_by_its_beginning() -> None:
    deep = "void " + "Kernel<" * 5000 + "int" + ">" * 5000 + "(int)"
    assert kernel_name(deep).short.startswith("Kernel")
    assert not is_product(deep)
    begin = time.process_time()
    for number in range(3):
        is_product("void " + "a<" * 500_000 + ">" * 500_000 + str(number))
    assert time.process_time() - begin < 3

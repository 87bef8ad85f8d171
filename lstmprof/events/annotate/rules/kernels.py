"""Rules for kernels of vendor libraries, inference engines and compilers, by their names.

A name is a C++ signature: ``void cudnn::ops::nchwToNhwcKernel<float>(cudnn::Params)``. Rules search
the function's name first, because not every kernel with a ``cublasGemvParams`` is a matmul. Names
are from profiles and from the libraries' sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lstmprof.base.numbers import MANGLED, unmangled
from lstmprof.events.annotate.rules.rule import Rule
from lstmprof.events.annotate.rules.torch import INDUCTOR_KERNELS

#: Pattern of what demanglers write for an anonymous namespace or type.
_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)")
#: Pattern of suffixes that a compiler (``[clone .kd]``) or AMD's loader (``.kd``) adds.
_SUFFIX = re.compile(r"\s*\[(?:clone|with) [^\]]*\]|\.kd$")
#: Pattern of what precedes the first name in mangled template arguments: literals and types.
_BEFORE_A_NAME = re.compile(r"I?(?:L[a-z]n?\d+E|NS\d*_|S\d*_|T\d*_|[Na-z])*")
#: Pattern of template arguments that name no function: numbers, types, GPU architectures.
_PLAIN_ARGUMENT = re.compile(
    r"\s*(?:\(.*\).*|-?\d.*|true|false|\w*(?:int|long|char|float|double|half|bool)\d*_?t?"
    r"|(?:ck_tile::)?gfx\w*)\s*"
)
#: Pattern of wrapper kernels, which run a function that is a template argument: CUTLASS's,
#: composable kernel's, Thrust's …
_WRAPPER = re.compile(
    r"Kernel\d?|kernel|device_kernel|kentry|_?kernel_agent|trampoline_kernel|kernel_entry|run_kernel"
    r"|enable_\w+"
)

#: Pattern of kernels that apply a functor to each element: ATen, Eigen.
_ELEMENTWISE = re.compile(
    r"\w*elementwise\w*kernel\w*|EigenMetaKernel\w*|multi_tensor_apply_kernel|kernelPointwise\w+"
)

#: Most letters and levels of wrapper kernels that lstmprof parses in a signature; real signatures
#: have 10,000 letters and 3 levels.
_MOST_LETTERS, _MOST_NESTED = 2**14, 16


@dataclass(frozen=True)
class KernelName:
    """The parts of a kernel's name that rules search."""

    qualified: str  # function with its namespaces
    runs: str = ""  # what a wrapper kernel runs, or an elementwise kernel's arguments
    template: str = ""

    @property
    def short(self) -> str:
        """Return the function without its namespaces, followed by what a wrapper runs."""
        return f"{self.qualified.rpartition('::')[2]} {self.runs}".strip()


@lru_cache(maxsize=65536)
def kernel_name(kernel: str) -> KernelName:
    """Split the signature of a kernel, mangled or not."""
    return _named(kernel[:_MOST_LETTERS], _MOST_NESTED)


def _named(kernel: str, nested: int) -> KernelName:
    """Split a signature, and find the function that a wrapper kernel (CUTLASS) runs."""
    name = _SUFFIX.sub("", _UNNAMED.sub("_", kernel)).strip()
    match = MANGLED.match(name)
    qualified, template = _encoded(name, match.end()) if match else _written(name)
    function = qualified.rpartition("::")[2]
    runs = template if _ELEMENTWISE.fullmatch(function) else ""
    if template and nested and _WRAPPER.fullmatch(function):
        runs = _first_name_encoded(template) if match else _first_name(template, nested - 1)
    return KernelName(qualified or name, runs, template)


def _first_name(template: str, nested: int) -> str:
    """Return the function that a wrapper kernel has as a template argument."""
    telling = (a for a in _arguments(template) if not _PLAIN_ARGUMENT.fullmatch(a))
    name = _named(next(telling, ""), nested)
    return f"{name.qualified} {name.runs}".strip()


def _first_name_encoded(template: str) -> str:
    before = _BEFORE_A_NAME.match(template)
    return _encoded(template, before.end() if before else 0)[0]


def _written(name: str) -> tuple[str, str]:
    """Split a signature: ``void a::f<int>(T)`` -> ``a::f``, ``int``."""
    depth, begin, first, last = 0, 0, 0, 0
    for place, letter in enumerate(name):
        if letter == "<":
            first = first if depth or last else place
            depth += 1
        elif letter == ">" and depth:
            depth -= 1
            last = last if depth else place
        elif letter == " " and not depth:
            begin, first, last = place + 1, 0, 0
        elif letter == "(" and not depth and place > begin:
            name = name[:place]
            break
    if not last:
        return name[begin:], ""
    return name[begin:first] + name[last + 1 :], name[first + 1 : last]


def _arguments(template: str) -> list[str]:
    """Split template arguments: ``a<b, c>, d`` -> ``a<b, c>``, ``d``."""
    depth, begin, arguments = 0, 0, []
    for place, letter in enumerate(template):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and not depth:
            arguments.append(template[begin:place].strip())
            begin = place + 1
    return [*arguments, template[begin:].strip()]


def _encoded(name: str, place: int) -> tuple[str, str]:
    """Split a mangled symbol into qualified name and template arguments."""
    parts, end = unmangled(name, place)
    return "::".join(parts), name[end:] if name[end : end + 1] == "I" else ""


_PRODUCT = re.compile(
    r"(?i)(?<!fb)gemm|gemv|matmul|mul_mat_|nvjet|cijk_|xmma|wmma|(?:^|_)b?mm_|(?:^|_)dot(?:_|$)"
    r"|dot_?general|syr2?k|trmm|fmoe_|[his]\d+cudnn|triton_(?:tem|mm)_|einsum"
    r"|scudnn|conv(?!er[ts]|ex)|(?<![a-z])[dw]grad|fprop|winograd|implicit_"
    r"|fmha|flash\w*(?:fwd|bwd|mla|attn|attention)|(?:attention|attn|mha|mla)\w*(?:fwd|bwd|kernel|$)"
    r"|attention_[23]d|(?:Prefill|Decode)With\w*KV|_fwd_(?:grouped_)?kernel_stage1|persistrnn"
    r"|rnn_\w*persist|^(?:loop_|input_)?fusion(?:[._]\d+)*$"
)
#: Pattern of kernels that only prepare or finish a matmul, even if ``_PRODUCT`` matches.
_HELPER = re.compile(
    r"(?i)offsets|precompute|pointers|problem_sizes|_starts|metadata|prepare|schedule|init_"
    r"|generateWinogradTiles|winograd\w*(?:Data|Filter|Output|Delta|Xform|transform)"
    r"|(?:im|vol)(?:\dd)?2?col|col2(?:im|vol)|(?:nchw|nhwc)\w*?(?:2|to)_?n|flip_filter|padding"
    r"|split_?k_?reduce|reduce_kernel|PostGSU|combine|merge_?state|finalize|permute|bwdbias"
    r"|(?:pre|post)process|fixup|ograddoto|dot_do_o|convert|rng_?state|cu_?seqlen|indices|cache_flash"
    r"|(?:^|_)(?:copy|scale|fill|zero|set|transpose|quantize)_|concat|elementwise\w*kernel"
    r"|^EigenMeta|^multi_tensor_apply"
)


@lru_cache(maxsize=65536)
def is_product(kernel: str) -> bool:
    """Return whether a kernel's name shows a matmul, convolution or attention."""
    name = kernel_name(kernel)
    # Search the namespaces of functions named ``kernel``, such as cuBLAS's internal::gemvx::kernel.
    tells = f"{name.qualified} {name.runs}" if name.runs or name.short == "kernel" else name.short
    return _PRODUCT.search(tells) is not None and _HELPER.search(name.short) is None


#: Rule for kernels of XLA's autotuner that check the buffers of trial kernels.
AUTOTUNER_CHECK = Rule(
    "pointwise",
    "XLA",
    r"(?i)redzone_?checker|buffer_?comparator|xla_\w+_comparison",
    "an autotuner compares buffers",
)
AUTOTUNER_DELAY = Rule("other", "XLA", r"(?i)delay_?kernel", "an autotuner keeps the device busy")
#: Rules for hipMemset and hipMemcpy, which ROCm runs as kernels, unlike CUDA.
ROCM_MEMSET = Rule("memset", "ROCm", r"__amd_rocclr_fill", "memory is set, by a kernel of ROCm")
ROCM_COPY = Rule("layout", "ROCm", r"__amd_rocclr_copy", "a copy by a kernel of ROCm")

#: Rules that override the category of the op around a kernel, because the kernel does other work.
DECIDED_BY_NAME = (AUTOTUNER_CHECK, AUTOTUNER_DELAY, ROCM_MEMSET, ROCM_COPY)

#: Rule for casting copies between tensors of one device. Source: ATen's Loops.cuh.
ATEN_CAST = Rule(
    "cast",
    "torch",
    r"elementwise_kernel\b.*float\d+\w*_copy_kernel"
    r"|(?:direct_copy|copy_device_to_device).*LoadWithCast"
    r"|manual_unroll\b.*gpu_kernel_impl<.*direct_copy",
    "an elementwise copy to another type",
)
ATEN_COPY = Rule(
    "layout",
    "torch",
    r"(?:direct|conj|neg)_copy_kernel.*nocast|nocast.*(?:direct_copy|copy_device_to_device)"
    r"|vectorized_elementwise_kernel\b.*direct_copy|LoadWithoutCast.*direct_copy"
    r"|direct_copy.*LoadWithoutCast|chunk_cat_cuda|no_cast_kernel",
    "an elementwise copy that keeps the type",
)
#: Rule for PyTorch before 2022, which named copy kernels and cast kernels alike.
ATEN_COPY_OR_CAST = Rule(
    "layout", "torch", r"direct_copy_kernel|copy_device_to_device", "an elementwise copy"
)
ATEN_COPIES = (ATEN_CAST, ATEN_COPY, ATEN_COPY_OR_CAST)

KERNEL_RULES: tuple[Rule, ...] = (
    *INDUCTOR_KERNELS,
    *DECIDED_BY_NAME,
    *ATEN_COPIES,
    Rule(
        "collective",
        "NCCL, RCCL, DeepEP, vLLM",
        r"(?i)nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|(?:^|_|moe)a2a"
        r"|cross_device_reduce|multimem|nvshmem|rocshmem|userbuffers|ulysses|sendrecv"
        r"|notify_(?:dispatch|combine)|deep_ep|(?:intra|inter)_?node|low_latency"
        r"|(?:^|_)barrier|\bep_?(?:dispatch|combine)|(?:one|two)_?shot_(?:reduce|push|pull)",
        "between devices",
    ),
    Rule(
        "layout",
        "vLLM, SGLang, FlashInfer",
        r"(?i)reshape_and_cache|concat_and_cache|gather_and_\w*cache|swap_blocks|copy_blocks"
        r"|(?<![a-z])(?:store|write|append|update|save|set|copy|gather|load|fill)_?\w*k_?v_?"
        r"(?:cache|buffer|block)|append_?paged_?kv|kv_?cache_?(?:store|write|append|copy|update)"
        r"|store_cache|kv_indices|block_tables?|slot_mapping|req_to_token",
        "keys and values are put into their cache",
    ),
    Rule(
        "pointwise",
        "torch",
        r"(?:lstm|gru)_cell_(?:forward|backward)",
        "the gates of a fused cell",
    ),
    Rule(
        "rnn",
        "cuDNN",
        r"(?i)rnn_?cell|(?:^|_)rnn|persist\w*rnn|lstm|(?:^|_)gru(?:_|$)",
        "recurrent kernel",
    ),
    Rule("ctc", "cuDNN, torch", r"(?i)ctc_?loss|_ctc_", "CTC kernel"),
    Rule(
        "attention",
        "any",
        r"(?i)fmha|flash(?!_?infer)|attention|attn|(?:^|_)(?:mha|mla|mqa|gqa)_"
        r"|(?:Prefill|Decode)With\w*KV|MergeState|_fwd_(?:grouped_)?kernel_stage\d"
        r"|delta_(?:rule|net)|fused_recurrent|linear_attn|lightning_attn",
        "fused attention",
    ),
    Rule(
        "conv",
        "cuDNN, MIOpen",
        r"(?i)scudnn|conv(?!er[ts]|ex)|(?<![a-z])[dw]grad|winograd|fprop|igemm_(?:fwd|bwd|wrw)"
        r"|(?:im|vol)(?:\dd)?2?col|col2(?:im|vol)|implicit_|cask_\w*cudnn|fft2d_(?:r2c|c2r)"
        r"|compute\w*OffsetsKernel|[his]\d+cudnn",
        "convolution",
    ),
    Rule(
        "reduction",
        "TensorRT-LLM, Triton",
        r"(?i)finalize_?(?:moe|matmul|kernel)|moe\w*finalize|moe_(?:sum|align|combine)"
        r"|(?:^|_)(?:un)?permute\w*_and_(?:sum|combine)",
        "counts or sums of the experts' rows",
    ),
    Rule(
        "gemm",
        "cuBLAS, rocBLAS, Triton, llama.cpp",
        r"(?i)(?<!fb)gemm|gemv|(?<!kernel_)cutlass(?!_kernels)|cublas|cijk_|matmul|mul_mat_"
        r"|split_?k_?reduce|reduce_?split_?k|nvjet|wmma|xmma(?!_pool)|(?:^|_)b?mm(?:_|$)|marlin|(?:^|_)w\d+a\d+|einsum"
        r"|dot_general|(?:^|[_/])dot(?:_|$)|contraction|fused_moe_kernel|moe\w*_(?:mma|wna16)"
        r"|scal_kernel|fmoe_|trsm|syr2?k",
        "GEMM",
    ),
    Rule(
        "normalization",
        "any",
        r"(?i)bn_(?:fw|bw)|batch_?norm|layer_?norm|rms_?norm|group_?norm|instance_?norm|qk_?norm"
        r"|(?:^|_)ln_(?:fwd|bwd)",
        "normalisation by name",
    ),
    Rule(
        "normalization",
        "torch",
        r"RowwiseMoments|GammaBeta|ComputeInternalGradients|cuComputeGradInput|cuWelford",
        "normalisation's moments",
    ),
    Rule(
        "softmax_loss",
        "any",
        r"(?i)softmax|nll_?(?:loss|crit)|cross_?entropy|sparsexent"
        r"|(?:mse|l1|huber)_?(?:loss|crit|kernel|backward)",
        "softmax or its loss",
    ),
    Rule(
        "pointwise",
        "any",
        r"(?i)rotary|(?:^|_)m?rope(?:_|$)|(?:qk|apply|pos_?ids?)_?rope|(?-i:Rope|RoPE)|(?:act|silu"
        r"|gelu)_and_mul"
        r"|swiglu|geglu",
        "rotation of positions, or an activation",
    ),
    Rule(
        "embedding",
        "any",
        r"(?i)embedding|indexselect|bounds_check_indices|l[xrf]u_cache|linearize_cache"
        r"|compute_grad_weight|krn_partial|partial_segment|sum_and_scatter",
        "table look-up",
    ),
    Rule(
        "rng",
        "any",
        r"(?i)philox|curand|dropout|distribution_|random|threefry|rng_?state|multinomial",
        "random numbers",
    ),
    Rule(
        "reduction", "torch", r"multi_tensor_apply.*(?:Norm|Max)\w*Functor", "norms of many tensors"
    ),
    Rule("layout", "torch", r"multi_tensor_apply.*Copy", "copies of many tensors"),
    Rule(
        "optimizer",
        "any",
        r"(?i)multi_tensor_apply|apply_?adam|applygradient|adagrad|(?:^|_)sgd_|(?:^|_)adamw?_"
        r"|(?:^|_)lamb_|koptimizer",
        "fused update",
    ),
    Rule(
        "cast",
        "any",
        r"(?i)float\d+\w*_copy|convert_element_type|cast_?kernel|OpWithCast|convert_?kernel|to_copy"
        r"|(?:^|_)(?:auto)?cast_(?:to|transpose|fp|bf|mx|nvfp|master|gated)|_cast(?:_|$)|loop_cast"
        r"|^(?:(?:wrapped|loop|input)_)?convert(?:_fusion)?(?:[._]\d+)*$",
        "copy to another type",
    ),
    Rule(
        "cast",
        "any",
        r"(?i)quant(?!ile)|to_float|float_to|cvt_\w*(?:fp|bf|f|int)\d+|to_h?fp\d|h?fp\d_to|qparam"
        r"|per_(?:token|block|channel|group|tensor)_cast",
        "the element type changes",
    ),
    Rule("pointwise", "any", r"SubTensorOpWithScalar|_memset(?:_|$)", "sets a part of a tensor"),
    Rule(
        "layout",
        "any",
        r"(?i)transpose|copy_?buffer|catarray|concat|copy_?kernel|copy_?(?:packed|vectorized)"
        r"|reformat|convert_?sf|sort_chunks|permut|gather(?!_?top_?k)"
        r"|scatter|(?<!with_)index|(?<!n)roll_|flip|(?<![a-z])pad(?:_|ding|input)|nchw_?to_?nhwc"
        r"|nhwc_?to_?nchw|swapdim|stridedslice|split_?v?_?(?:op|with|kernel)|subtensor"
        r"|(?:^|_)copy(?:_|$)|wrapped_slice|dynamic_(?:update_)?slice|broadcast(?:_(?:in|kernel"
        r"|fusion)|$|\.)|memcpy|recat"
        r"|expand_?input|to_(?:dense|jagged)|(?:dense|sparse|jagged)_to|jagged|bucketize_sparse"
        r"|shuffle|repack|swizzle|reorder|slice_kernel"
        r"|tensortransform|(?:un)?pack_kernel|repeat_interleave|compute_cuda_kernel|_tril|_triu",
        "elements move",
    ),
    Rule(
        "reduction",
        "any",
        r"(?i)reduc(?:e|tion)|scan|sort|top_?k|(?:max|avg|average|adaptive)_?\w*pool|pool(?:ing"
        r"|_(?:fw|bw|ker)|$)|bias_?grad|cum_?sum|arg_?m(?:ax|in)|prefix_?sum|histogram"
        r"|unique|(?:^|_)amax|device(?:select|compact|partition|runlength)|routing|_(?:sum|mean"
        r"|amax)(?:_|$)",
        "many elements to one",
    ),
    Rule("reduction", "nvFuser", r"nvfuser_\w*persistent", "a reduction in registers"),
    Rule(
        "pointwise", "any", r"(?i)upsample|interpolat|bilinear|bicubic|grid_sampl", "interpolation"
    ),
    Rule(
        "pointwise",
        "any",
        r"(?i)elementwise|element_wise|functor|pointwise|Op[1-5]dTensorGeneric"
        r"|op_?(?:generic_)?tensor"
        r"|parallel_?for|mxnet_generic|__myl_",
        "element by element",
    ),
    Rule(
        "pointwise",
        "Eigen",
        r"Eigen|BiasNHWC|BiasNCHW|Relu|Sigmoid|Tanh|Logical",
        "Eigen's functor",
    ),
    Rule(
        "pointwise",
        "XLA",
        r"(?i)fusion|fused|wrapped_|/(?:add|mul|sub|div|tanh|logistic|max|select)",
        "fused element by element",
    ),
    Rule(
        "pointwise",
        "any",
        r"(?i)fill|memset|(?<![a-z])set_|zero_?|iota|a?range_|offsets_range|where|scale"
        r"|activation|act_kernel|clamp|mask|compute_?strides"
        r"|(?:^|_)(?:add|sub|mul|div|exp|log|pow|sqrt|rsqrt|neg|abs|relu|gelu|silu|tanh|sigmoid"
        r"|softplus)_",
        "sets or scales",
    ),
)

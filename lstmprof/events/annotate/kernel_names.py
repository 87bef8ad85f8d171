"""What a kernel's name says of itself, apart from what it was instantiated and called with.

A name in a profile is a C++ signature: ``void cudnn::ops::nchwToNhwcKernel<float>(cudnn::Params)``.
Template arguments, parameter types and namespaces belong to others: a kernel that takes a
``cublasGemvParams`` or lives in ``fbgemm_gpu`` need not be a product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lstmprof.numbers import MANGLED, unmangled

#: Demanglers write these where C++ has no name.
_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)")
#: Written behind a symbol by a compiler (``[clone .kd]``) or by the loader of AMD's code objects.
_SUFFIX = re.compile(r"\s*\[(?:clone|with) [^\]]*\]|\.kd$")
#: What may stand before the first name in encoded template arguments: numbers, built-in types.
_BEFORE_A_NAME = re.compile(r"I?(?:L[a-z]n?\d+E|NS\d*_|S\d*_|T\d*_|[Na-z])*")
#: No type that tells what is computed: numbers, element types, the generation of a chip.
_PLAIN_ARGUMENT = re.compile(
    r"\s*(?:\(.*\).*|-?\d.*|true|false|\w*(?:int|long|char|float|double|half|bool)\d*_?t?"
    r"|(?:ck_tile::)?gfx\w*)\s*"
)
#: These run what their template names: CUTLASS, composable kernel, Thrust, rocPRIM …
_WRAPPER = re.compile(
    r"Kernel\d?|kernel|device_kernel|kentry|_?kernel_agent|trampoline_kernel|kernel_entry|run_kernel"
    r"|enable_\w+"
)

#: … and these one functor or expression for each element: ATen, Eigen.
_ELEMENTWISE = re.compile(
    r"\w*elementwise\w*kernel\w*|EigenMetaKernel\w*|multi_tensor_apply_kernel|kernelPointwise\w+"
)

#: Real signatures have 10,000 letters at most, and wrappers three levels deep. Chosen by hand.
_MOST_LETTERS, _MOST_NESTED = 2**14, 16


@dataclass(frozen=True)
class KernelName:
    """``qualified``: the function with its namespaces; ``runs``: what a wrapper only runs.

    ``template``: all its template arguments.
    """

    qualified: str
    runs: str = ""
    template: str = ""

    @property
    def own(self) -> str:
        """The function's name alone, and what it runs."""
        return f"{self.qualified.rpartition('::')[2]} {self.runs}".strip()


@lru_cache(maxsize=65536)
def kernel_name(kernel: str) -> KernelName:
    """Return the names within a kernel's signature, mangled or not."""
    return _named(kernel[:_MOST_LETTERS], _MOST_NESTED)


def _named(kernel: str, nested: int) -> KernelName:
    """Return the names within a signature; look into wrappers ``nested`` levels deep."""
    name = _SUFFIX.sub("", _UNNAMED.sub("_", kernel)).strip()
    match = MANGLED.match(name)
    qualified, template = _encoded(name, match.end()) if match else _written(name)
    function = qualified.rpartition("::")[2]
    runs = template if _ELEMENTWISE.fullmatch(function) else ""
    if template and nested and _WRAPPER.fullmatch(function):
        runs = _first_name_encoded(template) if match else _first_name(template, nested - 1)
    return KernelName(qualified or name, runs, template)


def _first_name(template: str, nested: int) -> str:
    """The first argument that tells what is computed, without its own arguments."""
    telling = (a for a in _arguments(template) if not _PLAIN_ARGUMENT.fullmatch(a))
    name = _named(next(telling, ""), nested)
    return f"{name.qualified} {name.runs}".strip()


def _first_name_encoded(template: str) -> str:
    before = _BEFORE_A_NAME.match(template)
    return _encoded(template, before.end() if before else 0)[0]


def _written(name: str) -> tuple[str, str]:
    """The qualified name and the template arguments of a signature in C++."""
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
    """The arguments of a template, outermost commas apart."""
    depth, begin, found = 0, 0, []
    for place, letter in enumerate(template):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and not depth:
            found.append(template[begin:place].strip())
            begin = place + 1
    return [*found, template[begin:].strip()]


def _encoded(name: str, place: int) -> tuple[str, str]:
    """As ``_written``, of a symbol as the Itanium ABI encodes it; templates stay encoded."""
    parts, end = unmangled(name, place)
    return "::".join(parts), name[end:] if name[end : end + 1] == "I" else ""


_PRODUCT = re.compile(
    r"(?i)(?<!fb)gemm|gemv|matmul|nvjet|cijk_|xmma|wmma|(?:^|_)b?mm_|(?:^|_)dot(?:_|$)|dot_?general"
    r"|syr2?k|trmm|fmoe_|[his]\d+cudnn|triton_(?:tem|mm)_|einsum"
    r"|scudnn|conv(?!er[ts]|ex)|(?<![a-z])[dw]grad|fprop|winograd|implicit_"
    r"|fmha|flash\w*(?:fwd|bwd|mla|attn|attention)|(?:attention|attn|mha|mla)\w*(?:fwd|bwd|kernel|$)"
    r"|attention_[23]d|(?:Prefill|Decode)With\w*KV|_fwd_(?:grouped_)?kernel_stage1|persistrnn"
    r"|rnn_\w*persist|^(?:loop_|input_)?fusion(?:[._]\d+)*$"
)
#: They prepare the operands or finish the result of a product, and have its name in theirs.
_HELPER = re.compile(
    r"(?i)offsets|precompute|pointers|problem_sizes|_starts|metadata|prepare|schedule|init_"
    r"|generateWinogradTiles|winograd\w*(?:Data|Filter|Output|Delta|Xform|transform)"
    r"|(?:im|vol)(?:\dd)?2?col|col2(?:im|vol)|(?:nchw|nhwc)\w*?(?:2|to)_?n|flip_filter|padding"
    r"|split_?k_?reduce|reduce_kernel|PostGSU|combine|merge_?state|finalize|permute|bwdbias"
    r"|(?:pre|post)process|ograddoto|dot_do_o|convert|rng_?state|cu_?seqlen|indices|cache_flash"
    r"|(?:^|_)(?:copy|scale|fill|zero|set|transpose|quantize)_|concat|elementwise\w*kernel"
    r"|^EigenMeta|^multi_tensor_apply"
)


@lru_cache(maxsize=65536)
def is_product(kernel: str) -> bool:
    """Whether a kernel of this name multiplies: a matmul, a convolution, an attention.

    No product are those that a library launches around one: they lay its operands out, transform
    them, work out offsets, add up partial sums. Nor is a kernel whose name does not say what it is.
    """
    name = kernel_name(kernel)
    # cuBLAS calls the kernel itself no more than ``kernel``: internal::gemvx::kernel
    tells = f"{name.qualified} {name.runs}" if name.runs or name.own == "kernel" else name.own
    return _PRODUCT.search(tells) is not None and _HELPER.search(name.own) is None

"""Products of half precision that no tensor core computes: the device has none, or the sizes."""

from __future__ import annotations

import re

from lstmprof.breakdown.recurrent.cudnn_algorithm import gpu_of
from lstmprof.diagnose.causes import CAST, GEMM
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import Remedy, Told
from lstmprof.diagnose.seen import Product
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import cropped, listed

#: NVIDIA's GPUs have tensor cores from compute capability 7.0 on, but for the GTX 16 series.
_FIRST = 70
_WITHOUT = re.compile(r"\bGTX 16\d\d")
#: Kernels of cuBLAS, CUTLASS and MAGMA that multiply without tensor cores; with them a number
#: stands before ``gemm`` (s884gemm, h16816gemm).
_SCALAR = re.compile(r"(?i)(?<![0-9])[sh]gemm(?!\w*(?:tensorop|hmma))|simt|magma_\w*gemm")
#: CUTLASS's kernels for rows that begin anywhere: so many elements are read at once.
_UNALIGNED = re.compile(r"align[124](?![0-9])")
#: Elements of 16 bits in the 16 bytes that a tensor core is fed with at once.
_ALIGNED = 8


def no_tensor_cores(f: Finding) -> Told | None:
    """Half precision on a GPU that has no tensor cores."""
    products = f.slow.seen.half_products
    why = _lacking(f.slow) if products else None
    if why is None:
        return None
    return Told(
        f"this GPU has no tensor cores ({why}): {products[0].dtype} only saves memory there, and "
        "its products and casts can be slower than those of float32; compare a run in float32"
    )


def _lacking(profile: StepProfile) -> str | None:
    """Why the device of ``profile`` is known to have no tensor cores; None where it is not."""
    facts = profile.info.device_facts.get(str(profile.device))
    sm = gpu_of(facts).sm
    if facts is not None and sm is not None and sm < _FIRST:
        return f"compute capability {facts.compute_capability}"
    named = profile.info.device_names.get(str(profile.device)) or profile.info.device_name or ""
    match = _WITHOUT.search(named)
    return match[0] if match else None


def odd_sizes(f: Finding) -> Told | None:
    """Products of half precision without tensor cores, or fed by halves, and why: their sizes."""
    if f.slow.device is None or _lacking(f.slow):
        return None
    odd = [p for p in f.slow.seen.half_products if _is_slow(p) and _odd(p)]
    if not odd:
        return None
    product = odd[0]
    sizes = listed([f"{size:,}" for size in _odd(product)])
    how = "without tensor cores" if _SCALAR.search(product.kernel) else "in small pieces"
    padded = listed([f"{-size // _ALIGNED * -_ALIGNED:,}" for size in _odd(product)])
    return Told(
        f"{cropped(product.kernel)} computes {product.op} in {product.dtype} {how}; of its sizes "
        f"{' × '.join(f'{size:,}' for size in product.sizes)} no multiple of 8 is {sizes}: pad to "
        f"{padded}",
        sum(p.ns for p in odd),
    )


def _is_slow(product: Product) -> bool:
    return bool(_SCALAR.search(product.kernel) or _UNALIGNED.search(product.kernel))


def _odd(product: Product) -> list[int]:
    return [size for size in dict.fromkeys(product.sizes) if size % _ALIGNED]


NO_TENSOR_CORES = Remedy(
    name="float32 without tensor cores",
    cause="half precision on a GPU that has no tensor cores",
    condition="products of float16 or bfloat16 on a GPU before compute capability 7.0, or of the "
    "GTX 16 series",
    kinds=(GEMM, CAST),
    decide=no_tensor_cores,
    sources=(
        "https://github.com/pytorch/pytorch/issues/1539",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions",
    ),
)
MULTIPLES_OF_8 = Remedy(
    name="multiples of 8",
    cause="sizes that are no multiples of 8 keep products of half precision from tensor cores",
    condition="a product of float16 or bfloat16 with such a size, whose kernel uses no tensor "
    "cores or is one for unaligned rows",
    kinds=(GEMM,),
    saves="these products",
    decide=odd_sizes,
    sources=(
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/",
        "https://github.com/pytorch/pytorch/pull/3409",
    ),
)

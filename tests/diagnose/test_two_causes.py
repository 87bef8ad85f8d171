"""Two causes of different sizes in one step on a GPU: the larger is named first, then the other.

::

    step    |--layer--| sync |--the larger, 2 ms--| sync |--the other, 1 ms--| sync |
"""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.test_gpu_causes import PRODUCT, STREAM, Body, launched, layer, op, profile_of
from simulator.gpu_programs import Call, Gap, Sync, Within, Work

import lstmprof as lp

MS = 1000  # ticks
STEPS = 4
SHORT = op("aten::mm", launched(PRODUCT), category="gemm")
COPY = Work("memcpy", "Memcpy DtoD (Device -> Device)", "layout", 250)
TANH = Work("kernel", "vectorized_elementwise_kernel<4, tanh_kernel_cuda>", "pointwise", 250)
REDUCED = Work("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective", MS)
SGEMM = Work("kernel", "ampere_sgemm_128x64_nn", "gemm", MS)
VALUE = Work("memcpy", "Memcpy DtoH (Device -> Pinned)", "transfer", 2)


def _ask() -> Body:
    question = op(
        "aten::_local_scalar_dense", launched(VALUE), Call("cudaStreamSynchronize", "sync", MS)
    )
    return (op("aten::item", question), SHORT)


#: What a cause is called in a sentence -> 1 ms of it.
CAUSES: dict[str, Body] = {
    "Python between the ops": (Within("python", "train.py(3): collate", 4, (Gap(MS),), 1), SHORT),
    "framework dispatch": (*(op("aten::view", Gap(50)) for _ in range(20)), SHORT),
    "waiting for synchronisations": _ask(),
    "allocating memory": (op("aten::empty", Call("cudaMalloc", "alloc", MS)), SHORT),
    "launching kernels": (op("aten::mm", launched(PRODUCT, MS), category="gemm"),),
    "copies that compute nothing": tuple(op("aten::copy_", launched(COPY)) for _ in range(4)),
    "matmuls": (op("aten::mm", launched(SGEMM), category="gemm"),),
    "elementwise work": tuple(
        op("aten::tanh", launched(TANH), category="pointwise") for _ in range(4)
    ),
    "communication between ranks": (
        op("c10d::allreduce_", launched(REDUCED), category="collective"),
    ),
    "runtime calls that launch nothing": (Call("cudaFuncGetAttributes", "runtime", MS), SHORT),
}
PAIRS = [
    ("Python between the ops", "copies that compute nothing"),
    ("copies that compute nothing", "allocating memory"),
    ("waiting for synchronisations", "communication between ranks"),
    ("communication between ranks", "framework dispatch"),
    ("allocating memory", "Python between the ops"),
    ("matmuls", "runtime calls that launch nothing"),
    ("runtime calls that launch nothing", "waiting for synchronisations"),
    ("elementwise work", "launching kernels"),
    ("launching kernels", "matmuls"),
    ("framework dispatch", "elementwise work"),
]


def run(path: Path, *bodies: Body) -> lp.Run:
    step = tuple(i for body in bodies for i in (*body, Sync("stream", STREAM, 1)))
    return profile_of(path, *[step] * STEPS)


@pytest.mark.parametrize(("larger", "other"), PAIRS)
def test_the_larger_of_two_causes_is_named_first(larger: str, other: str, tmp_path: Path) -> None:
    fast = run(tmp_path / "fast.pt.trace.json", layer())
    planted = (CAUSES[larger], CAUSES[larger], CAUSES[other])
    slow = run(tmp_path / "slow.pt.trace.json", layer(), *planted)
    sentence = lp.compare(fast, slow).sentence
    assert 0 < sentence.find(larger) < sentence.find(other)
    (alone,) = lp.diagnose(slow)  # of a run alone waits for the host are told in one number
    named = {cause: alone.sentence.find(cause) for cause in CAUSES if cause in alone.sentence}
    assert min(named, key=named.__getitem__) == larger


def test_one_long_launch_is_not_told_as_too_many_launches(tmp_path: Path) -> None:
    fast = run(tmp_path / "fast.pt.trace.json", layer())
    long = (op("aten::mm", launched(PRODUCT, 2 * MS), category="gemm"),)
    slow = run(tmp_path / "slow.pt.trace.json", layer(), long, CAUSES["matmuls"])
    sentence = lp.compare(fast, slow).sentence
    assert "its 4 kernel launches take 2.0 ms (median 4.0 µs, longest 2.000 ms)" in sentence

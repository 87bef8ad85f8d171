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


#: Kind of time -> 1 ms of it.
CAUSES: dict[str, Body] = {
    "Python": (Within("python", "train.py(3): collate", 4, (Gap(MS),), 1), SHORT),
    "dispatch": (*(op("aten::view", Gap(50)) for _ in range(20)), SHORT),
    "sync": _ask(),
    "allocation": (op("aten::empty", Call("cudaMalloc", "alloc", MS)), SHORT),
    "launch": (op("aten::mm", launched(PRODUCT, MS), category="gemm"),),
    "copy": tuple(op("aten::copy_", launched(COPY)) for _ in range(4)),
    "matmul": (op("aten::mm", launched(SGEMM), category="gemm"),),
    "elementwise": tuple(op("aten::tanh", launched(TANH), category="pointwise") for _ in range(4)),
    "communication": (op("c10d::allreduce_", launched(REDUCED), category="collective"),),
    "runtime": (Call("cudaFuncGetAttributes", "runtime", MS), SHORT),
}
PAIRS = [
    ("Python", "copy"),
    ("copy", "allocation"),
    ("sync", "communication"),
    ("communication", "dispatch"),
    ("allocation", "Python"),
    ("matmul", "runtime"),
    ("runtime", "sync"),
    ("elementwise", "launch"),
    ("launch", "matmul"),
    ("dispatch", "elementwise"),
]


def run(path: Path, *bodies: Body) -> lp.Run:
    step = tuple(i for body in bodies for i in (*body, Sync("stream", STREAM, 1)))
    return profile_of(path, *[step] * STEPS)


@pytest.mark.parametrize(("larger", "other"), PAIRS)
def test_the_larger_of_two_causes_is_named_and_the_other_is_next(
    larger: str, other: str, tmp_path: Path
) -> None:
    fast = run(tmp_path / "fast.pt.trace.json", layer())
    planted = (CAUSES[larger], CAUSES[larger], CAUSES[other])
    slow = run(tmp_path / "slow.pt.trace.json", layer(), *planted)
    pair = lp.compare(fast, slow).verdict
    added = {part.kind: part.delta_ns / 1e6 for part in pair.where}
    assert pair.kind == larger
    assert sorted(added, key=added.__getitem__)[-2:] == [other, larger]
    assert (added[larger], added[other]) == (pytest.approx(2, abs=0.15), pytest.approx(1, abs=0.15))
    alone = lp.diagnose(slow)
    takes = {part.kind: part.slow_ns for part in alone.verdict.where}
    assert alone.verdict.kind == larger
    assert sorted(takes, key=takes.__getitem__)[-2:] == [other, larger]
    assert alone.verdict.bottleneck_ns >= takes[larger] > alone.verdict.whole_ns / 2


def test_one_long_launch_is_not_too_many_launches(tmp_path: Path) -> None:
    fast = run(tmp_path / "fast.pt.trace.json", layer())
    long = (op("aten::mm", launched(PRODUCT, 2 * MS), category="gemm"),)
    slow = run(tmp_path / "slow.pt.trace.json", layer(), long, CAUSES["matmul"])
    verdict = lp.compare(fast, slow).verdict
    assert verdict.kind == "launch"
    assert "median 4.0 µs, longest 2.000 ms" in verdict.evidence

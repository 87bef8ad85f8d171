"""The captures that are worth running on a GPU, the most important first.

A block is a cross product of settings; captures of earlier blocks are not repeated. First comes the
ASR study's comparison on its smallest network, then what a CPU cannot show (casts, CUDA graphs,
cuDNN without a framework), then larger networks, FlashRNN's comparison, sizes at which cuDNN's
algorithm changes, and finally all other combinations.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from lstmprof.capture.request import MODES, CaptureRequest, run_name
from lstmprof.workloads import Workload, with_overrides
from lstmprof.workloads.studies import named

TORCH = (
    "torch-nn-lstm",
    "torch-lstmcell-fused",
    "torch-lstmcell-basic",
    "torch-compile",
    "torch-script",
)
ALL = (*TORCH[:3], "jax-scan", *TORCH[3:], "flax-lstm", "cudnn-direct", "jax-cudnn")
LAYERS = ("torch-nn-lstm", "cudnn-direct", "jax-cudnn")  # no Python loop over time steps
SHORT, LONG, DEEP, CTC = "1x320-ce-short", "1x320-ce-long", "4x320-ce-long", "4x320-ctc-long"
DEEPBENCH = (
    "deepbench-lstm-h512-b16-t25",
    "deepbench-lstm-h1024-b64-t25",
    "deepbench-lstm-h256-b16-t150",
    "deepbench-lstm-h2048-b128-t25",
)
#: The network of FlashRNN's comparison with nn.LSTM (arXiv:2412.07752): one head of 768 units.
FLASHRNN = {"hidden": 768, "features": 768, "batch": 16, "time_steps": 1024}
#: Sizes on both sides of a change of cuDNN's algorithm by PyTorch (``cudnn_algorithm``): first in
#: hidden units, then in the batch.
CLIFFS = (
    *({"hidden": h, "batch": 64} for h in (128, 129, 192, 193, 1024, 1152)),
    *({"hidden": 1024, "batch": b} for b in (8, 60, 128, 136)),
)
EVERY = (SHORT, DEEPBENCH[0], LONG, CTC, DEEP, *DEEPBENCH[1:])
PRECISIONS = ("fp32", "amp-fp16", "tf32", "amp-bf16")

PROFILE_STEPS = 3
#: If a network that is unrolled in Python has more cells than this, a step has about a million
#: events, and only one step is profiled.
MANY_CELLS = 4000
#: Timed iterations: as many as fit into this many seconds, and at most this many.
TIMING_S, MOST_ITERATIONS = 2.0, 1000
_TINY = {"hidden": 8, "batch": 2, "time_steps": 12}


@dataclasses.dataclass(frozen=True)
class Block:
    """A cross product of settings; implementations vary fastest.

    ``sizes`` are values for fields of the workloads.
    """

    workloads: tuple[str, ...]
    precisions: tuple[str, ...]
    implementations: tuple[str, ...] = ALL
    cuda_graph: bool = False
    sizes: tuple[dict[str, int], ...] = ({},)
    modes: tuple[str, ...] = ("train",)


BLOCKS = (
    Block((SHORT,), ("fp32",)),
    Block((SHORT,), ("amp-fp16",), TORCH[:3]),
    Block((SHORT,), ("fp32",), (*TORCH[:3], "jax-scan"), cuda_graph=True),
    Block(DEEPBENCH[:1], ("fp32",)),
    Block((CTC, LONG, DEEP), ("fp32",), LAYERS),
    # nn.LSTM has no amp-bf16 on a GPU
    Block(DEEPBENCH[:1], ("amp-fp16",), TORCH[:3:2], sizes=(FLASHRNN,), modes=MODES),
    Block(DEEPBENCH[:1], ("amp-bf16",), TORCH[2:3], sizes=(FLASHRNN,), modes=MODES),
    Block(DEEPBENCH[:1], ("fp32", "amp-fp16"), TORCH[:1], sizes=CLIFFS),
    Block((SHORT,), ("tf32", "amp-bf16", "amp-fp16")),
    Block((LONG,), ("fp32", "amp-fp16"), ALL[:4]),
    Block(DEEPBENCH, ("fp32", "tf32"), (*LAYERS, "jax-scan")),
    Block((SHORT, DEEPBENCH[0]), PRECISIONS, TORCH, cuda_graph=True),
    Block((CTC, LONG, DEEP), PRECISIONS, (*LAYERS, "jax-scan")),
    Block((SHORT, *DEEPBENCH, LONG), PRECISIONS),
    Block((SHORT, *DEEPBENCH, LONG), PRECISIONS, TORCH, cuda_graph=True),
    Block(EVERY, PRECISIONS),
    Block(EVERY, PRECISIONS, TORCH, cuda_graph=True),
)


def requests(device: str, *, tiny: bool = False) -> list[CaptureRequest]:
    """Return all captures to run on ``device``, the most important first.

    With ``tiny``, all networks are small enough for a CPU.
    """
    found: dict[str, CaptureRequest] = {}
    for request in (r for block in BLOCKS for r in _of(block, device, tiny)):
        found.setdefault(run_name(request), request)
    return list(found.values())


def _of(block: Block, device: str, tiny: bool) -> Iterator[CaptureRequest]:
    asked = itertools.product(
        block.workloads, block.sizes, block.modes, block.precisions, block.implementations
    )
    for name, size, mode, precision, implementation in asked:
        workload = with_overrides(named(name), **{**size, **(_TINY if tiny else {})})
        yield CaptureRequest(
            implementation,
            workload,
            device,
            precision,
            mode,
            iterations=MOST_ITERATIONS,
            timing_s=0.1 if tiny else TIMING_S,
            profile_steps=profile_steps(implementation, workload),
            cuda_graph=block.cuda_graph,
        )


def profile_steps(implementation: str, workload: Workload) -> int:
    """Return the number of steps to profile: 1 for a long network unrolled in Python, else 3."""
    unrolled = implementation in TORCH and implementation not in LAYERS
    return 1 if unrolled and cells(workload) > MANY_CELLS else PROFILE_STEPS


def cells(workload: Workload) -> int:
    """Return the number of cells in a step: one per layer, direction and time step."""
    return workload.layers * workload.directions * workload.time_steps

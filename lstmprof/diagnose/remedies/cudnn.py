"""What keeps a recurrent layer from the fast paths of cuDNN and MIOpen.

The conditions are those of use_persist_common_heuristics and use_rnn_persist_small_h in
aten/src/ATen/native/cudnn/RNN.cpp of PyTorch; packed sequences as ``_cudnn_rnn`` treats them.
"""

from __future__ import annotations

from collections.abc import Iterator

from lstmprof.diagnose.causes import COPY, DISPATCH, GEMM, LAUNCH, MEMORY
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import TORCH, Remedy, Told, often, total
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import listed
from lstmprof.runs.metadata import WorkloadInfo

#: torch's limits of hidden units for cuDNN's kernels that keep small layers' weights (LSTM, GRU).
_SMALL = {"forward": 192, "train": 128}


def weights_copied(f: Finding) -> Told | None:
    """The weights of a layer are copied together inside its op: four a layer or more a call."""
    copies = [h for h in f.slow.seen.weights if h.within]
    calls = sum(
        r["count"] for r in f.slow.rows("ops") if r["name"] in {h.within for h in copies}
    ) / max(f.slow.steps, 1)
    if not copies or not calls or sum(h.count for h in copies) < 4 * calls:
        return None
    times = often(f.slow, sum(h.count for h in copies))
    return Told(
        f"{copies[0].within} copies its weights together at every call ({times}): call "
        "flatten_parameters() once the model is on its device, and share no weights between "
        "layers",
        total(copies),
    )


def persistent_kernels(f: Finding) -> Told | None:
    """cuDNN took its standard kernels: which of the persistent ones' conditions fail."""
    unmet = unmet_by_persistent_kernels(f.slow)
    return Told(f"cuDNN's persistent kernels would need {listed(unmet)}") if unmet else None


def unmet_by_persistent_kernels(profile: StepProfile) -> list[str]:
    """Why nn.LSTM on cuDNN takes its standard kernels, by torch's own conditions."""
    info, workload = profile.info, profile.info.workload
    by_torch = info.framework == "torch" and info.kernels_used == "cuDNN"
    if profile.device is None or not by_torch or not workload:
        return []
    if any(c.part == "rnn" and c.family == "persistent" for c in profile.contributors):
        return []
    if workload.variable_length:
        return ["sequences of one length: packed ones always take the standard kernels"]
    small = (workload.hidden or 0) <= _SMALL.get(str(info.mode), 0)
    return [] if small else list(_persistent(workload, str(info.precision)))


def _persistent(workload: WorkloadInfo, precision: str) -> Iterator[str]:
    if "fp16" not in precision:
        yield f"float16 (this is {precision})"
    if workload.layers != 1 or workload.bidirectional:
        yield "one layer in one direction"
    for name, size in (("hidden", workload.hidden), ("features", workload.features)):
        if size is not None and size % 128:
            yield f"{name} a multiple of 128 (it is {size})"
    if workload.hidden is not None and workload.hidden > 1024:
        yield f"at most 1,024 hidden units (it has {workload.hidden:,})"


FLATTEN_PARAMETERS = Remedy(
    name="flatten_parameters",
    cause="a layer's weights are not one piece of memory and are copied together at every call",
    condition="four copies or more inside each call of a cuDNN or MIOpen layer",
    kinds=(COPY, MEMORY, LAUNCH, DISPATCH),
    frameworks=TORCH,
    saves="these copies",
    decide=weights_copied,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html",
        "https://github.com/pytorch/examples/issues/248",
        "https://github.com/salesforce/awd-lstm-lm/issues/120",
    ),
)
PERSISTENT_KERNELS = Remedy(
    name="persistent kernels",
    cause="cuDNN runs its standard kernels where persistent ones would do",
    condition="cuDNN's standard kernels ran, and a condition of its persistent ones is not met",
    kinds=(GEMM,),
    frameworks=TORCH,
    decide=persistent_kernels,
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cudnn/RNN.cpp",
        "https://github.com/pytorch/pytorch/pull/62143",
    ),
)

"""Causes: waits for values, copies, other streams and ranks, the allocator, and Python."""

from __future__ import annotations

import re
from collections.abc import Callable

from lstmprof.base.numbers import cropped, listed, number_of
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.diagnose.findings import Finding, causes
from lstmprof.diagnose.findings.causes import (
    ALLOCATION,
    COLLECTIVE,
    COPY,
    INPUT,
    PYTHON,
    QUEUE,
    SYNC,
)
from lstmprof.diagnose.remedies.launching import INDUCTOR, SIZED_BY_DATA
from lstmprof.diagnose.remedies.rows import (
    TORCH,
    Match,
    Remedy,
    from_facts,
    in_ms,
    in_words,
    often,
    series_of_launches,
    times_called,
    total,
)
from lstmprof.diagnose.seen import Fact
from lstmprof.diagnose.step_profile import StepProfile, total_ns
from lstmprof.diagnose.step_profile.ranks import FOUND
from lstmprof.events.schema import KERAS_LAYER, PHASES
from lstmprof.events.threads import VALUE_READS
from lstmprof.implementations import LAYER_OP

_READ_ONCE = (
    "compute with whole tensors on the device, and call .item() or .tolist() only once, at the end"
)
#: Smallest share of the step at which lstmprof blames reads of GPU values, or Python code that the
#: profile does not show. Chosen by hand.
_MUCH = 0.2
#: Pattern of Python frames in profiles of torch.profiler.
_FRAME = re.compile(r"\.py\(\d+\): |^<built-in |^nn\.Module: ")
_COPIES = re.compile(r"aten::(?:copy_|_to_copy|to)$")
_WHOLE_DEVICE = re.compile(r"(?:Device|Ctx|Context)Synchronize$")
#: Beginning of the frames of modules in profiles of torch.profiler: ``nn.Module: LSTM_0``.
_MODULE = "nn.Module: "
_STEP = re.compile("|".join(("ProfilerStep", "^train$", "^step$", *(f"^{p}$" for p in PHASES))))
_FREES = re.compile(r"Free|Release")
_MAKES = re.compile(
    r"aten::(?:normal|uniform|bernoulli|random|rand\w*|multinomial|fill|zero|arange)_?$"
)
#: Pattern of frames and ranges that are not the script's own work: waits, framework, profiler.
_WAITS = re.compile(
    r"(?i)profiler|^Optimizer\.|^## ?(?:backward|forward)|block_until|try_to_block|\bwait\b"
    r"|synchroni[sz]e|sleep|_trace\b"
)
#: Fixes for distributed training: (pattern of a wrapper's ops, of its communication kernels, fix).
_OVERLAP = (
    (
        re.compile(r"FullyShardedDataParallel|FSDP::"),
        re.compile(r"(?i)all_?gather|reduce_?scatter"),
        "let FSDP prefetch (forward_prefetch=True, backward_prefetch), and wrap larger modules",
    ),
    (
        re.compile(r"DistributedDataParallel"),
        re.compile(r"(?i)all_?reduce"),
        "let DistributedDataParallel overlap all-reduces with the backward pass (bucket_cap_mb)",
    ),
)


def _blocking_calls_in(f: Finding, inside: Callable[[str], object]) -> list[Fact]:
    return [h for h in f.slow.seen.blocking_calls if h.within is not None and inside(h.within)]


@Remedy(
    name="ask for no value",
    cause="the host reads single values (.item()) and waits for each value",
    fix="avoid .item(): keep the value (such as the loss) as a tensor; read the tensor once in "
    "many steps",
    condition="The step reads tensor values on the host (aten::item). On a GPU, the reads block "
    "the host",
    kinds=(SYNC, *causes.WAITS),
    frameworks=TORCH,
    several_kinds=True,
    first=True,
    sources=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
)
def values_read(f: Finding) -> Match | None:
    if f.slow.device is not None:
        return _read_from_device(f)
    rows = {r["name"]: r["count"] / f.slow.steps for r in f.slow.rows("ops")}
    read = [(rows[name], name) for name in VALUE_READS if name in rows]
    if not read:
        return None
    times, name = max(read)
    loop = sum(c.ns for c in f.contributors if c.reading)
    saves = sum(c.ns for c in f.contributors if c.name in VALUE_READS or c.reading)
    return Match(
        f"{name} runs {often(f.slow, times)}", saves, _READ_ONCE if 2 * loop > saves else ""
    )


def _read_from_device(f: Finding) -> Match | None:
    """Find reads of GPU values for which the host waits."""
    reads = f.slow.seen.read
    times = sum(fact.count for fact in reads)
    much = total(reads) >= _MUCH * f.slow.length_ns
    if not reads or (f.kind != SYNC and not (times > 1 and much)):
        return None
    name = reads[0].name
    cause = (
        f"the host reads a value ({name}) {often(f.slow, times)}, and waits for the GPU each time"
    )
    return Match(
        f"{name} runs {often(f.slow, times)}",
        total(reads),
        _READ_ONCE if times > 1 else "",
        cause if times > 1 and much else "",
    )


@Remedy(
    name="pin memory",
    cause="copies from pageable memory cannot overlap the step",
    fix="use pin_memory() and non_blocking=True: copies of pinned memory can overlap the step",
    condition="The step copies from or to pageable memory. The driver sends such data through a "
    "pinned buffer, which takes a second copy",
    kinds=(SYNC, COPY, INPUT),
    sources=(
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#page-locked-host-memory",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers",
    ),
)
def pageable_copies(f: Finding) -> Match | None:
    rows = [r for r in f.slow.rows("copies") if r.get("host_memory") == "pageable"]
    if not rows:
        return None
    fix = (
        ""
        if f.slow.framework == "torch"
        else "copy from page-locked (pinned) memory: such copies can overlap the step"
    )
    if f.kind != causes.SYNC:
        took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
        return Match(f"copies from or to pageable memory take {in_ms(f.slow, took)}", took, fix)
    waits = total(_blocking_calls_in(f, _COPIES.match))
    seen = f"the host waits {in_ms(f.slow, waits)} for copies from or to pageable memory"
    return Match(seen, waits, fix) if waits else None


@Remedy(
    name="keep data on the GPU",
    cause="the GPU waits for copies from and to the host's memory",
    fix="leave the data on the GPU, or copy it on a second stream while kernels run",
    condition="Copies between host and GPU take at least half of the time in which the GPU only "
    "copies. Not all of these copies use pageable memory",
    kinds=(COPY,),
    sources=(
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#data-transfer-between-host-and-device",
    ),
)
def transfers(f: Finding) -> Match | None:
    rows = [r for r in f.slow.rows("copies") if r.get("direction") in ("HtoD", "DtoH")]
    rows = [r for r in rows if r.get("host_memory") != "pageable"]
    spent = sum(c.ns for c in f.contributors if c.part == "transfer")
    total_ns = sum(r["total_ns"] for r in rows)
    if f.slow.device is None or 2 * spent < f.slow_ns or not total_ns:
        return None
    moved = sum(r["bytes"] or 0 for r in rows)
    number = number_of(sum(r["count"] for r in rows) / f.slow.steps, "copy", "copies")
    speed = f" at {moved / total_ns:.1f} GB/s" if moved else ""
    seen = f"{number}{f.slow.per_step} between host and GPU{speed}"
    return Match(seen, spent)


@Remedy(
    name="synchronise once",
    cause="the step waits several times for all work of the device (cudaDeviceSynchronize)",
    fix="synchronise the device once per step, at the end of the code that you time",
    condition="The host waits two or more times per step for all work of the device",
    kinds=(SYNC,),
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://www.tensorflow.org/guide/gpu_performance_analysis",
        "https://docs.jax.dev/en/latest/async_dispatch.html",
    ),
)
def device_synchronised(f: Finding) -> Match | None:
    calls = [h for h in f.slow.seen.blocking_calls if _WHOLE_DEVICE.search(h.name)]
    times = sum(h.count for h in calls)
    if times < 2:
        return None
    within = f", mostly in {cropped(calls[0].within)}" if calls[0].within else ""
    seen = in_words(f.slow, "{name} runs {times}", calls) + within
    return Match(seen, round(total(calls) * (1 - 1 / times)))


@Remedy(
    name="event sooner",
    cause="work in a GPU stream waits for an event of another stream",
    fix="record the event right after the kernel that makes the data; launch other work before the "
    "wait",
    condition="Launched GPU work waits for an event of another stream, or for a host function in "
    "its own stream",
    kinds=(QUEUE,),
    sources=(
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#streams",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#host-functions-callbacks",
    ),
)
def queued_work(f: Finding) -> Match | None:
    waits = [h for h in f.slow.seen.queued if h.within]
    if not waits:
        return None
    most = waits[0]
    by_event = "Wait" in str(most.within)
    waits = [h for h in waits if ("Wait" in str(h.within)) == by_event]
    seen = f"{cropped(most.name)} waits {in_ms(f.slow, most.ns)} in its stream after {most.within}"
    if by_event:
        return Match(seen, total(waits))
    fix = "move the host function's work to another thread: the stream waits for the host function"
    return Match(
        seen,
        total(waits),
        fix,
        "queued GPU work waits for a host function in its stream (cudaLaunchHostFunc)",
    )


@Remedy(
    name="launch ahead",
    cause="the GPU goes idle, and starts launched work late, during a blocking call of the host",
    fix="let the host launch ahead: read values or synchronise once, after all launches",
    condition="The GPU is idle during two or more blocking calls per step (such as "
    "cudaStreamSynchronize), although launched work is queued",
    kinds=(QUEUE,),
    first=True,
    sources=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
)
def run_dry(f: Finding) -> Match | None:
    calls = f.slow.seen.run_dry
    times = sum(call.count for call in calls)
    if times < 2:
        return None
    number = number_of(times, "call", "calls")
    within = f", mostly in {cropped(calls[0].within)}" if calls[0].within else ""
    seen = f"during {number}{f.slow.per_step} of {cropped(calls[0].name)}{within}, the GPU is idle "
    seen += "and begins launched work late"
    return Match(seen, total(calls))


@Remedy(
    name="allocate once",
    cause="GPU memory is allocated or freed in later steps, not only in the first step",
    fix="keep shapes constant, or let the framework reuse memory (a memory pool)",
    condition="A runtime call such as cudaMalloc or cudaFree runs after the first step",
    kinds=(ALLOCATION,),
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        "https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        "https://docs.jax.dev/en/latest/gpu_memory_allocation.html",
    ),
)
def allocations(f: Finding) -> Match | None:
    calls = f.slow.seen.later_allocs
    if not calls:
        return None
    names = listed(sorted({h.name for h in calls})[:2])
    when = "after the first step" if f.slow.marked else "in the second half of the profile"
    number = sum(call.count for call in calls)
    fix = "" if f.slow.framework else "allocate memory once, before the loop, and reuse it"
    if f.slow.framework == "torch":
        fix = "keep shapes constant, or set PYTORCH_ALLOC_CONF=expandable_segments:True"
        if any(_FREES.search(h.name) for h in calls):
            fix = "do not call torch.cuda.empty_cache(); keep shapes constant, and leave some "
            fix += "memory free"
    return Match(f"{names} run {often(f.slow, number)} {when}", total(calls), fix)


@Remedy(
    name="overlap communication",
    cause="ranks communicate while their devices compute nothing",
    fix="start communication earlier, on another stream, so that it overlaps with computation",
    condition="Collectives run while the device computes nothing. They could overlap with the "
    "device's computation in the rest of the step",
    kinds=(COLLECTIVE,),
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        "https://docs.pytorch.org/docs/stable/fsdp.html",
        "https://www.tensorflow.org/guide/distributed_training",
        "https://docs.jax.dev/en/latest/gpu_performance_tips.html",
    ),
)
def collectives(f: Finding) -> Match | None:
    profile = f.slow
    computing = sum(
        c.ns for c in profile.contributors if c.state == "busy" and c.part != "collective"
    )
    if not computing or not f.contributors:
        return None
    name = str(max(f.contributors, key=lambda c: c.ns).name)
    has_wrapper = (
        fix
        for wrapper, kernel, fix in _OVERLAP
        if kernel.search(name) and times_called(profile, wrapper)
    )
    exposed = in_ms(profile, sum(c.ns for c in f.contributors))
    seen = f"{exposed} of communication while nothing computes, mostly {cropped(name, 40)}"
    transfer_ns = max(0, f.slow_ns - _waits_for_ranks(profile))
    return Match(seen, min(transfer_ns, computing), next(has_wrapper, ""))


def _waits_for_ranks(profile: StepProfile) -> int:
    return profile.straggler.waits_ns(profile.rank_device) if profile.straggler else 0


@Remedy(
    name="even out the ranks",
    cause="ranks wait in collectives for one late rank",
    fix="make the late rank faster, or give all ranks the same amount of work",
    condition="In most steps, the same rank arrives last in the collectives, and the other "
    "ranks wait for this rank",
    kinds=tuple(causes.KINDS),
    several_kinds=True,
    first=True,
    sources=("https://docs.pytorch.org/docs/stable/distributed.html",),
)
def late_rank(f: Finding) -> Match | None:
    profile, straggler = f.slow, f.slow.straggler
    if straggler is None:
        return None
    longest = straggler.longest
    share = 1.0 if straggler.saved_share is None else straggler.saved_share
    if (
        straggler.state == FOUND
        and straggler.rank_device == profile.rank_device
        and longest is not None
    ):
        name, other = lane_words(*profile.rank_device), lane_words(*longest.rank_device)
        waits = f"{other} waits {in_ms(profile, longest.ns)} for {name}, more than other ranks"
        does = f"; {name} {straggler.excess.words}" if straggler.excess else ""
        if straggler.meanwhile:
            does = f"; meanwhile {name} {straggler.meanwhile.words}"
        cause = f"{name} is late: {waits}{does}"
        return Match("", round(share * longest.ns), cause=cause)
    if f.kind != COLLECTIVE or straggler.state != FOUND or not _waits_for_ranks(profile):
        return None
    waits_ns = round(straggler.waits_for_late_ns(profile.rank_device))
    late = lane_words(*straggler.rank_device)
    does = f", which {straggler.meanwhile.words}" if straggler.meanwhile else ""
    cause = f"{lane_words(*profile.rank_device)} waits {in_ms(profile, waits_ns)} for {late}{does}"
    fix = f"run diagnose --rank to see why {late} is late, and give all ranks equal work"
    return Match("", round(share * waits_ns), fix, cause)


@Remedy(
    name="group by length",
    cause="ranks wait in collectives for a late rank, and the late rank changes from step to step",
    fix="give all ranks the same amount of work in each step: group samples by length",
    condition="At least three quarters of the steps have a rank that arrives late in the "
    "collectives, and this rank is not the same in all steps",
    kinds=tuple(causes.KINDS),
    several_kinds=True,
    first=True,
    sources=("https://github.com/huggingface/transformers/issues/47340",),
)
def late_in_turn(f: Finding) -> Match | None:
    profile, straggler = f.slow, f.slow.straggler
    waits_ns = _waits_for_ranks(profile)
    if f.kind != COLLECTIVE or straggler is None or not straggler.moves or not waits_ns:
        return None
    seen = f"in collectives, this rank waits {in_ms(profile, waits_ns)} for a late rank"
    return Match(seen, waits_ns)


@Remedy(
    name="compute on the device",
    cause="the GPU waits for an op that computes on the CPU",
    fix="move the op from the CPU to the GPU, to the DataLoader, or to the code before the "
    "first step",
    condition="While the GPU waits, an op computes on the CPU for 0.1 ms or more",
    kinds=(causes.CPU_OP,),
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://www.tensorflow.org/guide/gpu_performance_analysis",
        "https://docs.jax.dev/en/latest/async_dispatch.html",
    ),
)
def computed_on_cpu(f: Finding) -> Match | None:
    first = max(f.contributors, key=lambda c: c.ns, default=None)
    if first is None:
        return None
    name = cropped(str(first.name))
    seen = f"{name} computes on the CPU {often(f.slow, first.count)}"
    fix = ""
    if _MAKES.match(str(first.name)):
        fix = f"create the tensor on the GPU (device='cuda'): {name} then runs on the GPU"
    return Match(seen, total_ns(f.contributors), fix if f.slow.framework == "torch" else "")


@Remedy(
    name="record frames",
    cause="the GPU waits for Python code that the profile does not show",
    fix="record Python frames, to see which code runs: torch.profiler (with_stack=True) or "
    "lstmprof run",
    condition="The profile has no Python frames. The GPU waits for at least a fifth of the step "
    "while the host runs Python code, or work that the profile does not contain",
    kinds=(PYTHON, causes.UNRECORDED),
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/docs/stable/profiler.html",),
)
def hidden_python(f: Finding) -> Match | None:
    profile = f.slow
    if f.fast is not None or profile.device is None or profile.implementation:
        return None
    if any(_FRAME.search(c.name or "") for c in profile.contributors):
        return None
    if f.slow_ns < _MUCH * profile.length_ns or series_of_launches(f) is not None:
        return None
    if waits_for_python.decide(f) is not None:
        return None
    return Match("the profile has no Python frames")


@Remedy(
    name="look inside",
    cause="one Python function, or one annotated range, takes most of the time in which no op runs",
    fix="profile this function with a sampling profiler: py-spy record --native",
    condition="One Python function, or one annotated range (such as record_function), takes more "
    "than half of the time in which Python code runs between ops",
    kinds=(PYTHON, causes.RANGE),
    sources=("https://github.com/benfred/py-spy",),
)
def waits_for_python(f: Finding) -> Match | None:
    places = [c for c in f.largest if 2 * c.delta_ns > f.delta_ns]
    passed_over = (_STEP, _WAITS, INDUCTOR)
    if not places or any(pattern.search(places[0].name) for pattern in passed_over):
        return None
    first, name = places[0], cropped(places[0].name)
    layer = first.name.startswith((_MODULE, KERAS_LAYER))
    if layer and any(r["form"] != LAYER_OP for r in f.slow.rows("layers")):
        return None  # the layer is a loop over time steps, whose Python other rows match
    seen = f"'{name}' takes {in_ms(f.slow, first.delta_ns)} in which no op runs"
    fix = f"profile '{name}' with a sampling profiler: py-spy record --native"
    return Match(seen, first.delta_ns, fix=fix)


@Remedy(
    name="ask for no size",
    cause="the host waits for results whose size depends on the data",
    fix="use ops whose result has a fixed size: torch.where or masked_fill, with a mask",
    condition="The host blocks inside ops whose result size depends on the data (aten::nonzero)",
    kinds=(SYNC,),
    frameworks=TORCH,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html",),
)
def sizes_read(f: Finding) -> Match | None:
    return from_facts(f, _blocking_calls_in(f, SIZED_BY_DATA.match), "{within} waits {times}")


@Remedy(
    name="wait beside the step",
    cause="the script waits in the step",
    fix="remove this wait, or let another thread wait while the step computes",
    condition="A line of the script waits between ops: it sleeps, or waits for a lock, a queue, a "
    "file or another process",
    kinds=(causes.WAITING,),
    sources=("https://docs.python.org/3/library/queue.html",),
)
def script_waits(f: Finding) -> Match | None:
    return Match("", f.slow_ns)

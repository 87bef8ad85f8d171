"""What shortens waiting: for values, copies, other streams and ranks, the allocator, Python."""

from __future__ import annotations

import re
from collections.abc import Callable

from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import ALLOCATION, COLLECTIVE, COPY, INPUT, PYTHON, QUEUE, SYNC
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.launching import SIZED_BY_DATA
from lstmprof.diagnose.remedies.told import (
    TORCH,
    Example,
    Remedy,
    Told,
    each,
    often,
    often_in_all,
    total,
)
from lstmprof.diagnose.seen import Fact
from lstmprof.events.schema import PHASES
from lstmprof.events.threads import ASKS
from lstmprof.numbers import cropped, listed, milliseconds

_COPIES = re.compile(r"aten::(?:copy_|_to_copy|to)$")
_WHOLE_DEVICE = re.compile(r"(?:Device|Ctx|Context)Synchronize$")
_STEP = re.compile("|".join(("ProfilerStep", "^train$", "^step$", *(f"^{p}$" for p in PHASES))))
_FREES = re.compile(r"Free|Release")
#: Frames and ranges that only wait, or are a framework's or the profiler's own.
_WAITS = re.compile(
    r"(?i)profiler|^Optimizer\.|^## ?(?:backward|forward)|block_until|try_to_block|\bwait\b"
    r"|synchroni[sz]e|sleep|_trace\b"
)
_GATHERS = re.compile(r"(?i)all_?gather|reduce_?scatter")
_EXCHANGES = re.compile(r"(?i)send_?recv|all_?to_?all")
_REDUCES = re.compile(r"(?i)all_?reduce")


def _asked_in(f: Finding, inside: Callable[[str], object]) -> list[Fact]:
    """The blocking calls that ops of these names made."""
    return [h for h in f.slow.seen.asked if h.within is not None and inside(h.within)]


def values_asked_for(f: Finding) -> Told | None:
    """The host asks for values in the step."""
    rows = {r["name"]: r["count"] / f.slow.steps for r in f.slow.rows("ops")}
    asked = [(rows[name], name) for name in ASKS if name in rows]
    if not asked:
        return None
    times, name = max(asked)
    waits = total(_asked_in(f, lambda name: name in ASKS))
    loop = sum(c.ns for c in f.contributors if c.reading)
    saves = waits + sum(c.ns for c in f.contributors if c.name in ASKS or c.reading)
    if 2 * loop > saves:
        return Told(
            f"a loop asks for values one by one ({name}, {often(f.slow, times)}): count or compare "
            "whole tensors, and read what comes out once (.item(), .tolist())",
            saves,
        )
    return Told(
        f"{name} asks for a value {often(f.slow, times)} and waits for it: keep it on "
        "the device, and read it once in many steps",
        saves,
    )


def sizes_asked_for(f: Finding) -> Told | None:
    """Ops whose result is as large as the data say: the host asks the device for the size."""
    calls = _asked_in(f, SIZED_BY_DATA.match)
    if not calls:
        return None
    name, times = str(calls[0].within), sum(h.count for h in calls)
    return Told(
        f"{name} waits {often(f.slow, times)} for the size of its result: masks of a fixed size "
        "(torch.where, masked_fill) need none",
        total(calls),
    )


def pageable_copies(f: Finding) -> Told | None:
    """Copies from or to memory that the driver first has to copy itself."""
    rows = [r for r in f.slow.rows("copies") if r.get("host_memory") == "pageable"]
    if not rows:
        return None
    took = sum(r["total_ns"] for r in rows) / f.slow.steps
    waits = total(_asked_in(f, _COPIES.match)) if f.kind == causes.SYNC else 0
    if waits:
        what = f"the host waits {milliseconds(waits)} ms{each(f.slow)} for copies"
    else:
        what = f"{milliseconds(took)} ms{each(f.slow)} are copies"
    how = "pin_memory() and non_blocking=True" if f.slow.framework == "torch" else "page-locked"
    return Told(
        f"{what} of pageable memory: {how} let them run beside the step"
        if f.slow.framework == "torch"
        else f"{what} of pageable memory: from {how} memory they run beside the step",
        round(waits if f.kind == causes.SYNC else took),
    )


def device_synchronised(f: Finding) -> Told | None:
    """The whole device is waited for more than once in a step."""
    calls = [h for h in f.slow.seen.asked if _WHOLE_DEVICE.search(h.name)]
    times = sum(h.count for h in calls)
    if times < 2:
        return None
    within = f" (most of it in {cropped(calls[0].within)})" if calls[0].within else ""
    return Told(
        f"{calls[0].name} is called {often(f.slow, times)}{within}: synchronise once, at the end "
        "of what is timed",
        round(total(calls) * (1 - 1 / times)),
    )


def waits_for_event(f: Finding) -> Told | None:
    """Queued work whose stream was made to wait for an event of another one."""
    waits = [h for h in f.slow.seen.queued if h.within and "Wait" in h.within]
    if not waits:
        return None
    most = waits[0]
    return Told(
        f"{cropped(most.name)} waited {milliseconds(most.ns)} ms{each(f.slow)} for an event of "
        f"another stream ({most.within}): record that event as soon as what is needed is done, "
        "and launch first what does not need it",
        total(waits),
    )


def waits_for_host_function(f: Finding) -> Told | None:
    """Queued work behind a function of the host."""
    waits = [h for h in f.slow.seen.queued if h.within and "Wait" not in h.within]
    if not waits:
        return None
    most = waits[0]
    return Told(
        f"{cropped(most.name)} waited {milliseconds(most.ns)} ms{each(f.slow)} behind a function "
        f"of the host ({most.within}): the stream stands still until it returns; do its work "
        "in another thread",
        total(waits),
    )


def allocations(f: Finding) -> Told | None:
    """Calls that allocate or free in warm steps."""
    calls = f.slow.seen.later_allocs
    if not calls:
        return None
    names = listed(sorted({h.name for h in calls})[:2])
    how = "keep the shapes constant, or take the memory from a pool"
    if f.slow.framework == "torch":
        how = "keep the shapes constant; PYTORCH_ALLOC_CONF=expandable_segments:True "
        how += "(in older versions PYTORCH_CUDA_ALLOC_CONF) lets memory grow"
        if any(_FREES.search(h.name) for h in calls):
            how += "; call no torch.cuda.empty_cache(), and leave memory free for what is cached"
    where = "after the first step" if f.slow.marked else "in the later half of the profile"
    times = often_in_all(f.slow, calls)
    return Told(f"{names} are called {where}, {times}: {how}", total(calls))


def collectives(f: Finding) -> Told | None:
    """Communication that the device waits for, and work that it could run beside."""
    profile = f.slow
    computing = sum(
        c.ns for c in profile.contributors if c.state == "busy" and c.part != "collective"
    )
    if not computing or not f.contributors:
        return None
    most = max(f.contributors, key=lambda c: c.ns)
    how = "start it earlier, on a stream of its own, while something else is computed"
    name = str(most.name)
    if f.slow.framework == "torch":
        if _GATHERS.search(name):
            how = "FSDP fetches the next parameters meanwhile by forward_prefetch=True and "
            how += "backward_prefetch; larger wrapped units have fewer exchanges"
        elif _REDUCES.search(name):
            how = "DistributedDataParallel reduces gradients beside the backward pass, in buckets "
            how += "of bucket_cap_mb"
        elif _EXCHANGES.search(name):
            how = "exchange the next batch's while this one is computed"
    exposed = milliseconds(sum(c.ns for c in f.contributors))
    return Told(
        f"{exposed} ms{each(profile)} of communication run while nothing computes "
        f"(most of it {cropped(name, 40)}): {how}; what it waits for other ranks stays",
        min(f.slow_ns, computing),
    )


def python_stretches(f: Finding) -> Told | None:
    """One range or frame holds most of the time in which no op runs."""
    places = [c for c in f.largest if 2 * c.delta_ns > f.delta_ns]
    if not places or _STEP.search(places[0].name) or _WAITS.search(places[0].name):
        return None
    first = places[0]
    return Told(
        f"{milliseconds(first.delta_ns)} ms of it are inside '{cropped(first.name)}' and in no op: "
        "a sampling profiler (py-spy record --native) says what runs there",
        first.delta_ns,
    )


ASK_FOR_NO_VALUE = Remedy(
    name="ask for no value",
    cause="the host asks for values and waits for each of them",
    condition="ops that ask for a value (aten::item)",
    kinds=(SYNC,),
    frameworks=TORCH,
    saves="waiting in them",
    decide=values_asked_for,
    sources=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
    example=Example(
        of="drawn by the tests' simulator: .item() in each of 20 time steps",
        told="aten::item asks for a value 20 times per step and waits for it: keep it on the "
        "device, and read it once in many steps",
    ),
)
ASK_FOR_NO_SIZE = Remedy(
    name="ask for no size",
    cause="the host waits for results whose size the data decide",
    condition="blocking calls inside ops whose result's size the data decide (aten::nonzero)",
    kinds=(SYNC,),
    frameworks=TORCH,
    saves="these calls",
    decide=sizes_asked_for,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html",),
)
SYNCHRONISE_ONCE = Remedy(
    name="synchronise once",
    cause="the whole device is waited for several times per step",
    condition="the device is synchronised twice a step or more",
    kinds=(SYNC,),
    saves="all of it but one",
    decide=device_synchronised,
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        "https://www.tensorflow.org/guide/gpu_performance_analysis",
        "https://docs.jax.dev/en/latest/async_dispatch.html",
    ),
)
PIN_MEMORY = Remedy(
    name="pin memory",
    cause="copies of pageable memory, which the driver first copies itself, do not overlap",
    condition="copies of pageable memory",
    kinds=(SYNC, COPY, INPUT),
    saves="these copies, of synchronisations the waiting in them",
    decide=pageable_copies,
    sources=(
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#page-locked-host-memory",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers",
    ),
    example=Example(
        of="drawn by the tests' simulator: a batch copied from pageable memory",
        told="0.200 ms per step are copies of pageable memory: pin_memory() and "
        "non_blocking=True let them run beside the step",
    ),
)
EVENT_SOONER = Remedy(
    name="event sooner",
    cause="work that was queued waits for another stream",
    condition="work that was queued stood behind a wait for another stream's event",
    kinds=(QUEUE,),
    saves="this waiting",
    decide=waits_for_event,
    sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#streams",),
    example=Example(
        of="a language model that decodes on an AMD GPU",
        told="void (anonymous namespace)::resolve_future_token_ids_kernel… waited 463.2 ms for "
        "an event of another stream (hipStreamWaitEvent): record that event as soon as "
        "what is needed is done, and launch first what does not need it",
    ),
)
NO_HOST_FUNCTION = Remedy(
    name="no host function",
    cause="work that was queued waits for a function of the host",
    condition="work that was queued stood behind a function of the host",
    kinds=(QUEUE,),
    saves="this waiting",
    decide=waits_for_host_function,
    sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#host-functions-callbacks",),
)
ALLOCATE_ONCE = Remedy(
    name="allocate once",
    cause="memory is allocated or freed in warm steps",
    condition="memory is allocated or freed after the first step, without marks in the later half",
    kinds=(ALLOCATION,),
    saves="these calls",
    decide=allocations,
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        "https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        "https://docs.jax.dev/en/latest/gpu_memory_allocation.html",
    ),
)
OVERLAP_COMMUNICATION = Remedy(
    name="overlap communication",
    cause="ranks communicate while nothing computes",
    condition="collectives run while nothing computes, and there is work to run them beside",
    kinds=(COLLECTIVE,),
    saves="as much of them as there is such work",
    decide=collectives,
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        "https://docs.pytorch.org/docs/stable/fsdp.html",
        "https://www.tensorflow.org/guide/distributed_training",
        "https://docs.jax.dev/en/latest/gpu_performance_tips.html",
    ),
    example=Example(
        of="one of two ranks of a PyTorch job that exchange embeddings",
        told="151.8 ms per step of communication run while nothing computes (most of it "
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int…): exchange the next batch's while this "
        "one is computed; what it waits for other ranks stays",
    ),
)
LOOK_INSIDE = Remedy(
    name="look inside",
    cause="Python, or what no event shows, runs inside one range or function",
    condition="one range or frame holds most of it; no step or phase, no wait, none of a "
    "framework's own",
    kinds=(PYTHON, causes.RANGE),
    saves="this range or frame",
    decide=python_stretches,
    sources=("https://github.com/benfred/py-spy",),
    example=Example(
        of="NVTX ranges of a program on a Titan RTX, in Nsight Systems",
        told="4,820.7 ms of it are inside 'find_centers' and in no op: a sampling profiler "
        "(py-spy record --native) says what runs there",
    ),
)

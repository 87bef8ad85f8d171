"""What a run shows of waiting that a remedy answers: one function a remedy.

Each reads the facts of the run, the counts and the largest contributors of the finding; it says
nothing where these do not show its condition.
"""

from __future__ import annotations

from lstmprof import implementations
from lstmprof.diagnose.counts import QUANTITIES, counted
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.events.threads import ASKS
from lstmprof.numbers import count, cropped, listed, milliseconds, quantity, times_a_step

#: A call of the runtime that takes longer is no launch or allocation alone: it sets CUDA up.
_SETS_UP_NS = 5_000_000


def initialises(f: Finding) -> str | None:
    """Half of it are calls of the runtime so long that they set CUDA up."""
    calls = [c for c in f.contributors if c.part in ("launch call", "runtime", "alloc") and c.name]
    long = [c for c in calls if c.ns > _SETS_UP_NS * max(c.count, 1.0)]
    if not long or 2 * total_ns(long) < total_ns(f.contributors):
        return None
    most = max(long, key=lambda c: c.ns)
    each = quantity(most.ns / max(most.count, 1.0), "ns")
    return (
        f"{most.name} takes {each} a call: CUDA was being initialised or loaded modules; run a few "
        "steps before those that are profiled"
    )


def recompiles(f: Finding) -> str | None:
    """An op of a compiler ran in a step."""
    names = listed([cropped(c.name) for c in f.largest])
    return f"a warm step should not compile ({names}): give every step the same shapes and types"


def cuda_graph(f: Finding) -> str | None:
    """A step of PyTorch on a GPU that is launched kernel by kernel."""
    info, workload = f.slow.info, f.slow.info.workload
    refused = workload.loss == "ctc" or workload.variable_length
    if refused or f.slow.device is None or info.framework != "torch":
        return None
    if info.cuda_graph:
        return None
    launches = count(counted(f.slow, "launches"))
    return f"replay the step as a CUDA graph, one launch for {launches} (capture --cuda-graph)"


def xla(f: Finding) -> str | None:
    """A step of TensorFlow that is not compiled, of a row that can be."""
    if f.slow.info.framework != "tensorflow" or f.slow.info.xla or not _compiles(f):
        return None
    return "compile the step with XLA: jit_compile=True (capture --xla)"


def _compiles(f: Finding) -> bool:
    """Whether XLA compiles the slow run's implementation where it ran; False unknown."""
    row = implementations.ROWS.get(f.slow.implementation or "")
    where = "cpu" if f.slow.device is None else "cuda"
    return row is not None and not {"xla", f"xla on {where}"} & row.refusals().keys()


def values_asked_for(f: Finding) -> str | None:
    """The host asks for values in the step."""
    rows = {r["name"]: r["count"] / f.slow.steps for r in f.slow.rows("ops")}
    asked = [(rows[name], name) for name in ASKS if name in rows]
    if not asked:
        return None
    times, name = max(asked)
    return (
        f"{name} asks for a value {times_a_step(times)} and waits for it: keep it where it "
        "is computed, and read it once in many steps"
    )


def pageable_copies(f: Finding) -> str | None:
    """Copies from or to memory that the driver first has to copy itself."""
    slow = [r for r in f.slow.rows("copies") if r.get("host_memory") == "pageable"]
    if not slow:
        return None
    took = milliseconds(sum(r["total_ns"] for r in slow) / f.slow.steps)
    return f"{took} ms a step are copies of pageable memory: pin it and copy with non_blocking=True"


def input_in_line(f: Finding) -> str | None:
    """The step prepares its own input."""
    how = {
        "torch": "a DataLoader with num_workers prepares it meanwhile",
        "tensorflow": "tf.data's prefetch prepares it meanwhile",
    }.get(str(f.slow.info.framework), "prepare it in another thread or process")
    return f"the next batch can be prepared while this one computes: {how}"


def python_stretches(f: Finding) -> str | None:
    """In which ranges the long stretches of Python are."""
    places = [c for c in f.largest if 2 * c.delta_ns > f.delta_ns]
    if not places:
        return None
    first = places[0]
    return (
        f"{milliseconds(first.delta_ns)} ms of it are in '{cropped(first.name)}' and in no op: "
        "look there for waiting, or for work on the host"
    )


def repeated_ops(f: Finding) -> str | None:
    """An op that is called more often than in the other run of the same implementation."""
    grown = f.repeated
    if grown is None:
        return None
    calls = f"{count(grown.slow_count)} times a step against {count(grown.fast_count)}"
    return f"{cropped(grown.name)} is called {calls}: do it once on a larger tensor, or not at all"


def allocations(f: Finding) -> str | None:
    """Runtime calls that allocate, in a warm step."""
    if initialises(f):
        return None
    return "memory is allocated in a warm step: keep the shapes constant, call no empty_cache()"


def collectives(f: Finding) -> str | None:
    """Communication that the device waits for."""
    return "overlap it with the backward pass: larger or fewer buckets, no synchronisation between"


def small_batch(f: Finding) -> str | None:
    """Kernels on a GPU that take less time than the host needs to bring the next one."""
    kernel, gap = (QUANTITIES[name].of(f.slow) for name in ("mean_kernel_ns", "mean_gap_ns"))
    if kernel is None or gap is None or kernel >= gap or initialises(f):
        return None
    return (
        f"a kernel takes {quantity(kernel, 'ns')} and the next one comes {quantity(gap, 'ns')} "
        "later: a larger batch gives every launch more to do at the same price"
    )

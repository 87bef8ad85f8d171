"""What a run shows of waiting that a remedy answers: one function a remedy.

Each reads the facts of the run, the counts and the largest contributors of the finding; it says
nothing where these do not show its condition.
"""

from __future__ import annotations

from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.remedies.situation import Situation
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.events.threads import ASKS
from lstmprof.numbers import count, listed, milliseconds, quantity, short_name, times_a_step

#: A call of the runtime that takes longer is no launch or allocation alone: it sets CUDA up.
_SETS_UP_NS = 5_000_000


def initialises(s: Situation) -> str | None:
    """Half of it are calls of the runtime so long that they set CUDA up."""
    calls = [i for i in s.contributors if i.part in ("launch call", "runtime", "alloc") and i.name]
    long = [i for i in calls if i.ns > _SETS_UP_NS * max(i.count, 1.0)]
    if not long or 2 * total_ns(long) < total_ns(s.contributors):
        return None
    most = max(long, key=lambda i: i.ns)
    each = quantity(most.ns / max(most.count, 1.0), "ns")
    return (
        f"{most.name} takes {each} a call: CUDA was being initialised or loaded modules; run a few "
        "steps before those that are profiled"
    )


def recompiles(s: Situation) -> str | None:
    """An op of a compiler ran in a step."""
    names = listed([short_name(c.name) for c in s.finding.largest])
    return f"a warm step should not compile ({names}): give every step the same shapes and types"


def cuda_graph(s: Situation) -> str | None:
    """A step of PyTorch on a GPU that is launched kernel by kernel."""
    workload = s.slow.facts.get("workload") or {}
    refused = workload.get("loss") == "ctc" or workload.get("variable_length")
    if not s.on_gpu or s.fact("framework") != "torch" or s.fact("cuda_graph") or refused:
        return None
    launches = count(s.counted("launches"))
    return f"replay the step as a CUDA graph, one launch for {launches} (capture --cuda-graph)"


def xla(s: Situation) -> str | None:
    """A step of TensorFlow that is not compiled, of a row that can be."""
    if s.fact("framework") != "tensorflow" or s.fact("xla") or not s.can("xla"):
        return None
    return "compile the step with XLA: jit_compile=True (capture --xla)"


def values_asked_for(s: Situation) -> str | None:
    """The host asks for values in the step."""
    rows = {r["name"]: r["count"] / s.slow.steps for r in s.slow.rows("ops")}
    asked = [(rows[name], name) for name in ASKS if name in rows]
    if not asked:
        return None
    times, name = max(asked)
    return (
        f"{name} asks for a value {times_a_step(times)} and waits for it: keep it where it "
        "is computed, and read it once in many steps"
    )


def pageable_copies(s: Situation) -> str | None:
    """Copies from or to memory that the driver first has to copy itself."""
    slow = [r for r in s.slow.rows("copies") if r.get("host_memory") == "pageable"]
    if not slow:
        return None
    took = milliseconds(sum(r["total_ns"] for r in slow) / s.slow.steps)
    return f"{took} ms a step are copies of pageable memory: pin it and copy with non_blocking=True"


def input_in_line(s: Situation) -> str | None:
    """The step prepares its own input."""
    how = {
        "torch": "a DataLoader with num_workers prepares it meanwhile",
        "tensorflow": "tf.data's prefetch prepares it meanwhile",
    }.get(str(s.fact("framework")), "prepare it in another thread or process")
    return f"the next batch can be prepared while this one computes: {how}"


def python_stretches(s: Situation) -> str | None:
    """In which ranges the long stretches of Python are."""
    places = [c for c in s.finding.largest if 2 * c.delta_ns > s.finding.delta_ns]
    if not places:
        return None
    first = places[0]
    return (
        f"{milliseconds(first.delta_ns)} ms of it are in '{short_name(first.name)}' and in no op: "
        "look there for waiting, or for work on the host"
    )


def repeated_ops(s: Situation) -> str | None:
    """An op that is called more often than in the other run of the same implementation."""
    grown = s.done_more_often()
    if grown is None:
        return None
    calls = f"{count(grown.slow_count)} times a step against {count(grown.fast_count)}"
    return (
        f"{short_name(grown.name)} is called {calls}: do it once on a larger tensor, or not at all"
    )


def allocations(s: Situation) -> str | None:
    """Runtime calls that allocate, in a warm step."""
    if initialises(s):
        return None
    return "memory is allocated in a warm step: keep the shapes constant, call no empty_cache()"


def collectives(s: Situation) -> str | None:
    """Communication that the device waits for."""
    return "overlap it with the backward pass: larger or fewer buckets, no synchronisation between"


def small_batch(s: Situation) -> str | None:
    """Kernels on a GPU that take less time than the host needs to bring the next one."""
    kernel, gap = (QUANTITIES[name].of(s.slow) for name in ("mean_kernel_ns", "mean_gap_ns"))
    if kernel is None or gap is None or kernel >= gap or initialises(s):
        return None
    return (
        f"a kernel takes {quantity(kernel, 'ns')} and the next one comes {quantity(gap, 'ns')} "
        "later: a larger batch gives every launch more to do at the same price"
    )

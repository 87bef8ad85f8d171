"""The kinds of time (bottlenecks), and the rules that assign each op, kernel or call to one kind.

The first rule that holds decides, so every nanosecond has exactly one kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from lstmprof.base.names import PART_WORDS
from lstmprof.breakdown.attribution import CALL, LATENCY, QUEUED
from lstmprof.breakdown.clean.script_waits import SCRIPT_WAITS
from lstmprof.breakdown.lacks import RANGES_WITHOUT_OPS
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.contributors import Contributor
from lstmprof.events.annotate.calls import is_launch
from lstmprof.events.threads import VALUE_READS

LAUNCH, DISPATCH, PYTHON = "launch", "dispatch", "Python"
RUNTIME, CPU_OP = "runtime", "CPU op"
SYNC, CAST, COPY, GEMM, MEMORY = "sync", "cast", "copy", "matmul", "elementwise"
INPUT, COMPILE, ALLOCATION, START = "input", "compile", "allocation", "initialisation"
EMBEDDING, COLLECTIVE, CTC, QUEUE = "embedding", "communication", "CTC", "queued"
SLOWER, RANGE, WAITING = "slower calls", "ranges", "waiting"
PROFILER, UNRECORDED, UNKNOWN = "profiler", "unrecorded", "unknown"

#: Kind of time → description for users.
KINDS = {
    LAUNCH: "kernel launches",
    RUNTIME: "runtime calls other than launches",
    CPU_OP: "ops that compute on the CPU",
    DISPATCH: "dispatch in the framework",
    PYTHON: "Python between ops",
    WAITING: "waits of the script",
    SYNC: "synchronisation",
    CAST: "casts",
    COPY: "copies",
    GEMM: "matmuls",
    MEMORY: "elementwise ops and reductions",
    EMBEDDING: "embedding lookups",
    INPUT: "preparation of the input",
    COMPILE: "compilation, or capture of a graph, inside the step",
    START: "initialisation of the GPU's runtime and loading of code",
    ALLOCATION: "memory allocation",
    RANGE: "ranges in which no op was recorded",
    UNRECORDED: "unrecorded host time",
    COLLECTIVE: "communication between ranks",
    CTC: "the CTC loss",
    QUEUE: "idle time although the device has queued work",
    SLOWER: "calls that take longer than in the faster run",
    PROFILER: "profiler overhead",
    UNKNOWN: "time without a known cause",
}


def shown(kind: str) -> str:
    """Return the name of a kind of time for users."""
    words = {UNRECORDED: PART_WORDS["host"], UNKNOWN: PART_WORDS["unattributed"]}
    return words.get(kind) or PART_WORDS.get(kind.lower(), kind)


#: Kinds of time in which a device waits for its host (``breakdown.mean_step.WAITS_FOR_HOST``).
WAITS = (LAUNCH, RUNTIME, CPU_OP, DISPATCH, PYTHON, RANGE, UNRECORDED, ALLOCATION)

_PRODUCTS = ("gemm", "conv", "attention")
#: Pattern of Python frames that start or stop jax.profiler or torch.profiler.
_PROFILER_FRAME = re.compile(r"\bprofiler\.py(?::\d+|\(\d+\):) (?:start|stop)(?:_trace)?$")
#: Pattern of the name of a range around PyTorch's backward pass.
_BACKWARD = re.compile(r"\W*backward\W*", re.IGNORECASE)
_MOVES = ("layout", "transfer", "memset")


@dataclass(frozen=True)
class Comparison:
    """Facts about a whole profile that the rules need."""

    on_device: bool
    ranges_only: bool = False  # ranges, but no ops
    markers: frozenset[str] = frozenset()  # names of step markers
    no_backward: bool = False  # PyTorch ops, but none of the backward pass


@dataclass(frozen=True)
class Rule:
    """A rule that assigns ops, kernels or calls to one kind of time."""

    kind: str
    holds: Callable[[Contributor, Comparison], bool]
    reason: str


def _part(*parts: str) -> Callable[[Contributor, Comparison], bool]:
    return lambda c, run: c.part in parts


RULES = (
    Rule(INPUT, lambda c, run: c.state == "input", "loading, preparing and copying the batch"),
    Rule(PROFILER, _part("profiler"), "overhead that the profiler recorded"),
    Rule(
        PROFILER,
        lambda c, run: c.part == "python" and bool(_PROFILER_FRAME.search(c.name or "")),
        "Python of the profiler itself, which starts or stops it",
    ),
    Rule(
        COMPILE,
        lambda c, run: c.compiling,
        "work of a compiler, and everything that a compiler calls",
    ),
    Rule(
        START,
        lambda c, run: c.starting,
        "a call, made only in early steps, that initialises the runtime or loads code",
    ),
    Rule(
        SLOWER,
        lambda c, run: c.slower,
        "calls that both runs make equally often, but that take longer in the slower run",
    ),
    Rule(SYNC, lambda c, run: c.reading, "a loop that reads single values (.item())"),
    Rule(SYNC, _part("sync"), "a blocking runtime call"),
    Rule(QUEUE, _part(QUEUED), "time in which a device has queued work but does not start it"),
    Rule(
        SYNC,
        lambda c, run: c.name in VALUE_READS and not run.on_device,
        "an op that reads a value to Python, in a run on a CPU",
    ),
    Rule(CAST, _part("cast"), "work that changes only the element type"),
    Rule(
        CAST,
        lambda c, run: c.purpose == "cast" and not run.on_device,
        "the call that issues a cast",
    ),
    Rule(ALLOCATION, _part("alloc"), "a runtime call that allocates or frees"),
    Rule(LAUNCH, _part(CALL, LATENCY), "a launch call for which the idle device waits"),
    Rule(
        LAUNCH,
        lambda c, run: c.part == "runtime" and (c.enqueues or is_launch(c.name or "")),
        "a launch call for another stream or device, or for unrecorded work",
    ),
    Rule(RUNTIME, _part("runtime"), "any other call of the GPU's runtime or driver"),
    Rule(
        COPY,
        lambda c, run: c.purpose in _MOVES and not c.tiny and not run.on_device,
        "a call that issues a copy",
    ),
    Rule(CPU_OP, lambda c, run: c.on_cpu, "an op that computes on the CPU while the device waits"),
    Rule(
        DISPATCH,
        _part("dispatch"),
        "an op that computes nothing itself, such as a view or a wrapper around other ops",
    ),
    Rule(
        DISPATCH,
        lambda c, run: c.call_overhead,
        "on a CPU, at most 10 µs of Python before an op, in which Python calls the op",
    ),
    Rule(
        DISPATCH,
        lambda c, run: c.state == "busy" and c.tiny and not run.on_device,
        "on a CPU, an op of at most 3 µs, because the call of such an op takes most of the time",
    ),
    Rule(
        WAITING,
        _part(SCRIPT_WAITS),
        "time in which a line of your script sleeps or waits (lstmprof run)",
    ),
    Rule(
        UNRECORDED,
        lambda c, run: c.part == "python" and run.ranges_only and (c.name or "") in run.markers,
        "time of a step outside the ranges in the step, if the profile has no ops",
    ),
    Rule(
        UNRECORDED,
        lambda c, run: (
            c.part == "python" and run.no_backward and bool(_BACKWARD.fullmatch(c.name or ""))
        ),
        "time in the range of a backward pass whose ops were not recorded",
    ),
    Rule(
        RANGE,
        lambda c, run: c.part == "python" and run.ranges_only,
        "time in a range of a profile without ops: Python, the framework or waits",
    ),
    Rule(PYTHON, _part("python"), "any other time in a step or range while no op runs"),
    Rule(UNRECORDED, _part("host"), "time in which no event was recorded on the host"),
    Rule(GEMM, _part(*_PRODUCTS), "matmuls, convolutions, attention"),
    Rule(
        MEMORY,
        lambda c, run: c.part == "rnn" and c.family == "pointwise",
        "elementwise work of a recurrent layer",
    ),
    Rule(
        GEMM, _part("rnn"), "a recurrent layer that runs as one op, which mostly computes matmuls"
    ),
    Rule(COPY, _part(*_MOVES), "work that moves or fills memory and computes nothing"),
    Rule(COLLECTIVE, _part("collective"), "work that moves data between ranks"),
    Rule(
        EMBEDDING, _part("embedding"), "lookups of rows in an embedding table, and their gradients"
    ),
    Rule(CTC, _part("ctc"), "connectionist temporal classification"),
    Rule(
        MEMORY,
        lambda c, run: c.state == "busy" and c.part != "other",
        "other work that memory bandwidth limits",
    ),
    Rule(
        UNKNOWN,
        lambda c, run: True,
        "any other time, such as work of unknown category, or idle time before work whose launch "
        "was not recorded",
    ),
)


def kind_of(contributor: Contributor, comparison: Comparison) -> str:
    return next(rule.kind for rule in RULES if rule.holds(contributor, comparison))


def by_kind(
    profile: StepProfile, comparison: Comparison | None = None
) -> dict[str, list[Contributor]]:
    """Group a step's ops, kernels and calls by kind of time, such as matmul."""
    comparison = comparison or comparison_of(profile)
    comparison = replace(comparison, on_device=profile.device is not None)
    kinds: dict[str, list[Contributor]] = {kind: [] for kind in KINDS}
    for contributor in profile.contributors:
        kinds[kind_of(contributor, comparison)].append(contributor)
    return kinds


def comparison_of(slow: StepProfile) -> Comparison:
    """Return the facts about the slow run that the rules need for both runs."""
    lacks_ops = any(lack.kind == RANGES_WITHOUT_OPS for lack in slow.lacks)
    markers = frozenset(row["name"] for row in slow.rows("ranges") if row["kind"] == "step")
    names = [row["name"] for row in slow.rows("ops")]
    torch = any(name.startswith("aten::") for name in names)
    no_backward = torch and not any("Backward" in name for name in names)
    return Comparison(slow.device is not None, lacks_ops, markers, no_backward)

"""What bounds a step: the kinds of bottleneck, and which of them a contributor's time belongs to.

One ordered table; the first rule that holds decides, so that every nanosecond has one kind and the
kinds' differences sum to that of the steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lstmprof.diagnose.step_profile import Contributor, StepProfile
from lstmprof.events.threads import ASKS

LAUNCH, DISPATCH, PYTHON = "launch-bound", "dispatch-bound", "Python-bound"
SYNC, CAST, COPY, GEMM, MEMORY = (
    "sync-bound",
    "cast-bound",
    "copy-bound",
    "GEMM-bound",
    "memory-bound",
)
INPUT, COMPILE, ALLOCATION = "input-bound", "compile-bound", "allocation-bound"
COLLECTIVE, CTC, QUEUE = "collective-bound", "CTC-bound", "queue-bound"
PROFILER, UNRECORDED, UNKNOWN = "profiler", "unrecorded host", "unknown"

#: What the time of each kind is, in a sentence.
KINDS = {
    LAUNCH: "launching kernels",
    DISPATCH: "framework dispatch",
    PYTHON: "Python between the ops",
    SYNC: "waiting for synchronisations",
    CAST: "casts between element types",
    COPY: "copies that compute nothing",
    GEMM: "matrix products",
    MEMORY: "element-by-element work and reductions",
    INPUT: "preparing the input",
    COMPILE: "compiling inside the step",
    ALLOCATION: "allocating memory",
    UNRECORDED: "host activity not recorded",
    COLLECTIVE: "communication between ranks",
    CTC: "the CTC loss",
    QUEUE: "waiting with work queued",
    PROFILER: "what profiling changed",
    UNKNOWN: "work and waiting of unknown cause",
}
#: The kinds in which a device waits for its host: an infinitely fast host would have none.
WAITS = (LAUNCH, DISPATCH, PYTHON, UNRECORDED, ALLOCATION)

_COMPILES = re.compile(
    r"(?i)xlacompile|\bcompile_?fx|convert_frame|backend_?compile|::compile\b|compileandrun"
    r"|pjrtclient::compile|jit_compile|triton.*\bcompile\b|nvrtc"
)
_PRODUCTS = ("gemm", "conv", "attention")
_MOVES = ("layout", "transfer", "memset")


@dataclass(frozen=True)
class Comparison:
    """What a contributor is judged by besides itself.

    ``many_tiny_kernels``: there are so many more kernels too short to hide the next launch than in
    the run compared with, that their time is that of launching.
    """

    on_device: bool
    many_tiny_kernels: bool = False


@dataclass(frozen=True)
class Rule:
    """Time of a contributor for which ``holds`` is of this ``kind``."""

    kind: str
    holds: Callable[[Contributor, Comparison], bool]
    reason: str


def _part(*parts: str) -> Callable[[Contributor, Comparison], bool]:
    return lambda c, run: c.part in parts


RULES = (
    Rule(
        INPUT, lambda c, run: c.state == "input", "whatever is done then, it is done for the input"
    ),
    Rule(PROFILER, _part("profiler"), "the profiler recorded its own overhead"),
    Rule(
        COMPILE,
        lambda c, run: bool(c.name and _COMPILES.search(c.name)),
        "an op of a compiler: in a warm step it compiles again",
    ),
    Rule(SYNC, _part("sync"), "a blocking runtime call"),
    Rule(QUEUE, _part("queued"), "the device had the work: no host could have made it start"),
    Rule(SYNC, lambda c, run: c.name in ASKS, "the host asks for a value and waits for it"),
    Rule(CAST, _part("cast"), "only the element type changes"),
    Rule(
        CAST,
        lambda c, run: c.purpose == "cast" and not run.on_device,
        "the call that arranges a cast is part of its price",
    ),
    Rule(ALLOCATION, _part("alloc"), "a runtime call that allocates or frees"),
    Rule(
        LAUNCH, _part("launch call", "launch latency", "runtime"), "the device waits for launches"
    ),
    Rule(
        COPY,
        lambda c, run: c.purpose in _MOVES and not c.tiny and not run.on_device,
        "elements move; the call that arranges it is part of its price",
    ),
    Rule(DISPATCH, _part("dispatch"), "an op that arranges work and computes nothing"),
    Rule(DISPATCH, lambda c, run: c.call_overhead, "the way from Python into an op"),
    Rule(
        DISPATCH,
        lambda c, run: c.state == "busy" and c.tiny and not run.on_device,
        "an op this short computes next to nothing: its time is that of calling it",
    ),
    Rule(PYTHON, _part("python"), "a long stretch of a step or range without an op"),
    Rule(UNRECORDED, _part("host"), "the host did something that was not recorded"),
    Rule(GEMM, _part(*_PRODUCTS), "matrix products, convolutions, attention"),
    Rule(
        LAUNCH,
        lambda c, run: c.state == "busy" and c.tiny and run.many_tiny_kernels,
        "many kernels, each over before the host can launch the next",
    ),
    Rule(
        MEMORY,
        lambda c, run: c.part == "rnn" and c.family == "pointwise",
        "the recurrent layer's work between its products",
    ),
    Rule(GEMM, _part("rnn"), "a recurrent layer in one op is mostly its products"),
    Rule(COPY, _part(*_MOVES), "elements move and do not change"),
    Rule(COLLECTIVE, _part("collective"), "between ranks"),
    Rule(CTC, _part("ctc"), "connectionist temporal classification"),
    Rule(
        MEMORY,
        lambda c, run: c.state == "busy" and c.part != "other",
        "few operations an element: the memory sets the pace",
    ),
    Rule(UNKNOWN, lambda c, run: True, "no category or no launch is known"),
)


def kind_of(contributor: Contributor, comparison: Comparison) -> str:
    """The kind to which the time of ``contributor`` belongs."""
    return next(rule.kind for rule in RULES if rule.holds(contributor, comparison))


def by_kind(profile: StepProfile, comparison: Comparison) -> dict[str, list[Contributor]]:
    """The contributors of ``profile`` by kind, in the order of ``KINDS``."""
    kinds: dict[str, list[Contributor]] = {kind: [] for kind in KINDS}
    for contributor in profile.contributors:
        kinds[kind_of(contributor, comparison)].append(contributor)
    return kinds


def comparison_of(slow: StepProfile, fast: StepProfile | None) -> Comparison:
    """How the contributors of both are judged, by one comparison: like against like.

    Twice as many short kernels are many.
    """
    if slow.device is None:
        return Comparison(on_device=False)
    grown = fast is not None and _tiny_kernels(slow) >= 2 * _tiny_kernels(fast)
    return Comparison(on_device=True, many_tiny_kernels=grown)


def _tiny_kernels(profile: StepProfile) -> float:
    return sum(c.count for c in profile.contributors if c.state == "busy" and c.tiny)

"""The colour, the name and the meaning of every part of the breakdown.

The parts of a family are shades of one hue. Any two shades differ, also for readers with
red-green blindness. Shades of one family also differ in lightness. Every shade has a contrast of
3:1 on a light and on a dark page (WCAG 2.2, 1.4.11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import shown_name
from lstmprof.breakdown.attribution import TAIL
from lstmprof.diagnose.findings import causes


@dataclass(frozen=True)
class Part:
    """A part of the breakdown with its colours on a light and a dark page."""

    name: str
    colour: str
    dark: str
    meaning: str

    @property
    def shown(self) -> str:
        """Return the name that users see, such as ``matmul`` for gemm."""
        return PART_WORDS.get(self.name, self.name)


@dataclass(frozen=True)
class Family:
    """Related parts of the breakdown, which are shades of one hue."""

    name: str
    meaning: str
    parts: tuple[Part, ...]


RECURRENT = Family(
    "recurrent layers",
    "recurrent layers that run as one op",
    (
        Part(
            "rnn",
            "#423bc0",
            "#b5bffd",
            "one op for a whole recurrent layer, with everything it launches",
        ),
    ),
)
PRODUCTS = Family(
    "matrix products",
    "matmuls and ops that consist of them",
    (
        Part("gemm", "#4c97e0", "#2e9afa", "matrix multiplications"),
        Part("conv", "#003d74", "#69aff5", "convolutions"),
        Part("attention", "#1e5577", "#0c81bd", "attention"),
    ),
)
ELEMENTS = Family(
    "elementwise and reductions",
    "arithmetic on each element, sums, losses",
    (
        Part(
            "pointwise",
            "#319f5f",
            "#a2ecb9",
            "arithmetic on each element: gates, additions, activations",
        ),
        Part("reduction", "#175332", "#5ac687", "sums, means and norms"),
        Part("normalization", "#739d74", "#5dbe62", "batch and layer normalisation"),
        Part("softmax_loss", "#134c17", "#379a3c", "softmax and the loss"),
        Part("ctc", "#588a66", "#359257", "the CTC loss"),
    ),
)
MOVING = Family(
    "copies and casts",
    "elements are moved, looked up, set or converted; nothing is computed",
    (
        Part("cast", "#5c0066", "#9942a4", "conversion to another element type"),
        Part(
            "layout",
            "#853e88",
            "#cd8bce",
            "copies on one device: transpose, concat, split, contiguous",
        ),
        Part(
            "transfer", "#ae51df", "#ad51de", "copies between host and device, or between devices"
        ),
        Part("memset", "#8a568f", "#a57ea9", "memory set to a value"),
        Part("embedding", "#9f5cb3", "#c475dc", "rows looked up in a table"),
    ),
)
COLLECTIVES = Family(
    "communication",
    "ranks exchange data, or wait for each other to do so",
    (
        Part(
            "collective",
            "#18a3a7",
            "#93bfc0",
            "communication between ranks: all-reduce and the like",
        ),
    ),
)
OTHERS = Family(
    "other work",
    "everything else that is computed",
    (
        Part("optimizer", "#494949", "#637474", "the optimizer's update"),
        Part("rng", "#686572", "#9895a3", "random numbers and dropout"),
        Part("other", "#726c60", "#aba497", "ops of unknown category"),
        Part("input", "#717b85", "#77818c", "preparation of the input"),
        Part("compiling", "#383838", "#a1a2a3", "compilation inside the step"),
        Part(
            "starting",
            "#1a171c",
            "#d9e2e0",
            "initialisation of the GPU's runtime and loading of code",
        ),
        Part("ranges", "#888888", "#72645f", "ranges in which no op was recorded"),
        Part(
            "slower calls",
            "#5e534a",
            "#d1c5ba",
            "the same calls as in the baseline, each taking longer",
        ),
    ),
)
BY_HOST = Family(
    "host overhead",
    "nothing is computed while the host runs Python, dispatches ops or launches kernels; a faster "
    "host would help",
    (
        Part(
            "launch latency",
            "#4c2406",
            "#ba6230",
            "the launch call has returned, but the kernel has not started yet",
        ),
        Part("launch call", "#9c3503", "#f39d18", "the host is inside the call that launches"),
        Part(
            "runtime", "#d87355", "#f4774f", "the host is in another call of the runtime or driver"
        ),
        Part("alloc", "#3f1203", "#f9c99c", "the host allocates or frees memory"),
        Part(
            "dispatch",
            "#cd581b",
            "#be776f",
            "the host is in a framework op that computes nothing itself",
        ),
        Part("python", "#632f05", "#a24d03", "the host is in Python between two ops"),
        Part("host", "#9d5132", "#e2b99f", "the host does something that was not recorded"),
    ),
)
OTHERWISE = Family(
    "other waits",
    "nothing is computed, and a faster host would not help",
    (
        Part("sync", "#a3940b", "#dccf67", "the host waits for the device in a blocking call"),
        Part("waiting", "#6d6447", "#f0ec9e", "the script sleeps, or waits for a lock or a file"),
        Part(
            "queued",
            "#9e8c37",
            "#bba432",
            "the device does not start queued work, mostly because this work waits for another "
            "stream",
        ),
        Part("profiler", "#675f17", "#e0d88c", "the profiler's own overhead"),
        Part(
            "unattributed",
            "#777444",
            "#6e6b3a",
            "unknown cause: the profile has no launch call for the work that follows",
        ),
    ),
)
#: Families of parts in the order in which bars stack them: busy before idle.
FAMILIES = (RECURRENT, PRODUCTS, ELEMENTS, MOVING, COLLECTIVES, OTHERS, BY_HOST, OTHERWISE)
#: Grey part that stands for a whole step, or for all small parts of a step together.
WHOLE = Part("step", "#7a8494", "#6b7585", "the whole step")
PARTS = {part.name: part for family in FAMILIES for part in family.parts} | {WHOLE.name: WHOLE}
_FAMILY_OF = {part.name: family for family in FAMILIES for part in family.parts}
#: Each family as a single part, in the colour of its first part.
HUES = {f.name: Part(f.name, f.parts[0].colour, f.parts[0].dark, f.meaning) for f in FAMILIES}
UNKNOWN = PARTS["other"]
#: Kind of time → part of the breakdown whose colour charts use for this kind.
_OF_KIND = {
    causes.LAUNCH: "launch call",
    causes.RUNTIME: "runtime",
    causes.CPU_OP: "rng",
    causes.DISPATCH: "dispatch",
    causes.PYTHON: "python",
    causes.WAITING: "waiting",
    causes.SYNC: "sync",
    causes.CAST: "cast",
    causes.COPY: "layout",
    causes.GEMM: "gemm",
    causes.MEMORY: "pointwise",
    causes.EMBEDDING: "embedding",
    causes.INPUT: "input",
    causes.COMPILE: "compiling",
    causes.START: "starting",
    causes.ALLOCATION: "alloc",
    causes.RANGE: "ranges",
    causes.UNRECORDED: "host",
    causes.COLLECTIVE: "collective",
    causes.CTC: "ctc",
    causes.QUEUE: "queued",
    causes.SLOWER: "slower calls",
    causes.PROFILER: "profiler",
    causes.UNKNOWN: "unattributed",
}
_ORDER = {name: place for names in (PARTS, HUES) for place, name in enumerate(names)}


def part_of(state: str, part: str) -> Part:
    """Return the colour and the meaning of a part of the breakdown."""
    if state == "input":
        return PARTS["input"]
    return PARTS.get(part.removeprefix(TAIL), UNKNOWN)


def part_of_kind(kind: str) -> Part:
    """Return the part of the breakdown whose colour charts use for a kind of time."""
    return PARTS.get(_OF_KIND.get(kind, ""), UNKNOWN)


def family_of(part: Part) -> Family:
    return _FAMILY_OF[part.name]


def families_of(names: Iterable[str]) -> list[Family]:
    """Return the families of these parts of the breakdown, with only these parts."""
    wanted = set(names)
    some = [
        # add a part for the whole family, because some charts draw a family as one part
        (family, tuple(p for p in (HUES[family.name], *family.parts) if p.name in wanted))
        for family in FAMILIES
    ]
    return [Family(family.name, family.meaning, parts) for family, parts in some if parts]


def order_of(name: str) -> int:
    """Return the position for sorting: busy before idle, unknown names last."""
    return _ORDER.get(name, len(_ORDER))


def label_of(state: str, part: str) -> str:
    """Name a part of the breakdown: ``Python, at the end of the step``."""
    base = part.removeprefix(TAIL)
    words = PARTS[base].shown if base in PARTS else shown_name(base)
    words = f"input: {words}" if state == "input" else words
    return words if base == part else f"{words}, at the end of the step"

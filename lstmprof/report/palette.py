"""The colour and the meaning of every part of the ledger: one colour means one thing everywhere.

Hues stand for families that people with red-green blindness tell apart (blue: products, green:
element by element, violet: moving, yellow to red: a device that waits); inside a family parts
differ in lightness, and every mark is named on hover and in a table. A part has one hue and two
lightnesses: on either ground it is at 3:1 (WCAG 2.2, 1.4.11). Meanings: docs/ledger.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstmprof.breakdown.undisturbed import PROFILER
from lstmprof.diagnose import causes
from lstmprof.numbers import shown_name

#: What the ledger writes before an idle part at the end of a window.
TAIL = "tail:"


@dataclass(frozen=True)
class Part:
    """One part: its colours on light and on dark ground, 3:1 and more there, and what it is."""

    name: str
    colour: str
    dark: str
    meaning: str


BUSY = (
    Part(
        "rnn",
        "#0b4a86",
        "#3a66a6",
        "a recurrent layer in one op, and all that was launched beneath it",
    ),
    Part("gemm", "#2d7ec2", "#3d8ed0", "matrix products"),
    Part("conv", "#12718f", "#12718f", "convolutions"),
    Part("attention", "#5798cc", "#74b3e8", "attention"),
    Part("pointwise", "#0f6b4a", "#1a7f5a", "element by element: gates, additions, activations"),
    Part("reduction", "#3ea27c", "#5fc29a", "sums, means, norms over elements"),
    Part("normalization", "#136f78", "#2f9e83", "batch and layer normalisation"),
    Part("softmax_loss", "#6d9b86", "#8fd0b5", "softmax and the loss"),
    Part("ctc", "#3f6b1f", "#457125", "the CTC loss"),
    Part("embedding", "#7d9d28", "#8fae3a", "looking up rows of a table"),
    Part("rng", "#889a46", "#c0d27a", "random numbers, dropout"),
    Part("cast", "#6d3aa8", "#804bbb", "an element type changed: the price of mixed precision"),
    Part(
        "layout", "#a779d9", "#a779d9", "elements moved: transpose, concat, split, contiguous copy"
    ),
    Part("transfer", "#8a4f9e", "#8a4f9e", "copies between host and device"),
    Part("memset", "#a187bd", "#cdb2ea", "memory set to a value"),
    Part("optimizer", "#86685a", "#86685a", "the optimizer's update"),
    Part("collective", "#ad8c68", "#b08f6a", "communication between ranks"),
    Part("other", "#7d838c", "#7d838c", "work that no rule knows"),
)
IDLE = (
    Part(
        "launch latency",
        "#857300",
        "#f6d869",
        "the launch had returned and the kernel had not started",
    ),
    Part(
        "launch call", "#d57d00", "#e58a00", "the host was inside the call that launches the kernel"
    ),
    Part("runtime", "#7d4700", "#9a5a00", "the host was in another runtime or driver call"),
    Part(
        "dispatch",
        "#f0643c",
        "#f0643c",
        "the host was in a framework op that computes nothing itself",
    ),
    Part("python", "#a3261f", "#b7392d", "the host was in a step, a range or Python, and in no op"),
    Part("host", "#d27971", "#f0938a", "the host did something that was not recorded"),
    Part("sync", "#d6337c", "#d6337c", "the host was in a blocking call: it waited for the device"),
    Part("alloc", "#c77b9d", "#f5a6c8", "the host was allocating or freeing memory"),
    Part("profiler", "#9f9169", "#c8b98f", "the profiler's own overhead"),
    Part(
        "queued",
        "#6b5b2e",
        "#c98f5a",
        "the device had the work and did not start it: it waited for another stream or itself",
    ),
    Part("unattributed", "#8d929b", "#a9aeb7", "unknown: no launch in the profile leads there"),
)
#: Parts of a comparison that the ledger of a step does not have.
COMPARED = (
    Part("input", "#4a5a76", "#7f93b8", "preparing the input, whatever was done then"),
    Part("compiling", "#5b3fa0", "#9a84d6", "a compiler ran inside the step"),
    Part("ranges", "#7a5230", "#b98a5e", "ranges of a profile in which no op was recorded"),
    Part("slower calls", "#7a3b2e", "#c4806f", "the same calls as in the faster run, each longer"),
    Part("the profiler's effect", "#8793a7", "#94a0b4", "undisturbed steps less profiled ones"),
    Part("step", "#6b7689", "#6b7689", "the whole step"),
)
PARTS = {part.name: part for part in (*BUSY, *IDLE, *COMPARED)}
UNKNOWN = PARTS["other"]
#: Kind of a finding → the part whose colour it has: that of most of its time.
_OF_KIND = {
    causes.LAUNCH: "launch call",
    causes.RUNTIME: "runtime",
    causes.DISPATCH: "dispatch",
    causes.PYTHON: "python",
    causes.SYNC: "sync",
    causes.CAST: "cast",
    causes.COPY: "layout",
    causes.GEMM: "gemm",
    causes.MEMORY: "pointwise",
    causes.INPUT: "input",
    causes.COMPILE: "compiling",
    causes.ALLOCATION: "alloc",
    causes.RANGE: "ranges",
    causes.UNRECORDED: "host",
    causes.COLLECTIVE: "collective",
    causes.CTC: "ctc",
    causes.QUEUE: "queued",
    causes.SLOWER: "slower calls",
    causes.PROFILER: "the profiler's effect",
    causes.UNKNOWN: "unattributed",
}
_ORDER = {name: place for place, name in enumerate(PARTS)}


def part_of(state: str, part: str) -> Part:
    """The part whose colour and meaning (state, part) of a ledger has."""
    if state == "input":
        return PARTS["input"]
    if state == PROFILER:
        return PARTS["the profiler's effect"]
    return PARTS.get(part.removeprefix(TAIL), UNKNOWN)


def part_of_kind(kind: str) -> Part:
    """The part whose colour a kind of ``diagnose.causes`` has."""
    return PARTS.get(_OF_KIND.get(kind, ""), UNKNOWN)


def order_of(part: str) -> int:
    """The place of a part where several are stacked: busy before idle."""
    return _ORDER.get(part, len(_ORDER))


def label_of(state: str, part: str) -> str:
    """What a part is called on the page: ``idle: python, at the end``."""
    if part.startswith(TAIL):
        return f"{state}: {shown_name(part.removeprefix(TAIL))}, at the end"
    return f"{state}: {shown_name(part)}" if state else shown_name(part)

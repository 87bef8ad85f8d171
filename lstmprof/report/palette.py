"""The colour and the meaning of every part of the ledger: one colour means one thing everywhere.

Hues stand for families that people with red-green blindness tell apart (blue: products, green:
element by element, violet: moving, yellow to red: a device that waits); inside a family parts
differ in lightness, and every mark is named on hover and in a table. Meanings: docs/ledger.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstmprof.report.names import shown_name

#: What the ledger writes before an idle part at the end of a window.
TAIL = "tail:"


@dataclass(frozen=True)
class Part:
    """One part: its colour, on light and dark ground, and what it is."""

    name: str
    colour: str
    meaning: str


BUSY = (
    Part("rnn", "#0b4a86", "a recurrent layer in one op, and all that was launched beneath it"),
    Part("gemm", "#3d8ed0", "matrix products"),
    Part("conv", "#12718f", "convolutions"),
    Part("attention", "#74b3e8", "attention"),
    Part("pointwise", "#1a7f5a", "element by element: gates, additions, activations"),
    Part("reduction", "#5fc29a", "sums, means, norms over elements"),
    Part("normalization", "#2f9e83", "batch and layer normalisation"),
    Part("softmax_loss", "#8fd0b5", "softmax and the loss"),
    Part("ctc", "#3f6b1f", "the CTC loss"),
    Part("embedding", "#8fae3a", "looking up rows of a table"),
    Part("rng", "#c0d27a", "random numbers, dropout"),
    Part("cast", "#6d3aa8", "an element type changed: the price of mixed precision"),
    Part("layout", "#a779d9", "elements moved: transpose, concat, split, contiguous copy"),
    Part("transfer", "#8a4f9e", "copies between host and device"),
    Part("memset", "#cdb2ea", "memory set to a value"),
    Part("optimizer", "#86685a", "the optimizer's update"),
    Part("collective", "#b08f6a", "communication between ranks"),
    Part("other", "#7d838c", "work that no rule knows"),
)
IDLE = (
    Part("launch latency", "#f6d869", "the launch had returned and the kernel had not started"),
    Part("launch call", "#e58a00", "the host was inside the call that launches the kernel"),
    Part("runtime", "#9a5a00", "the host was in another runtime or driver call"),
    Part("dispatch", "#f0643c", "the host was in a framework op that computes nothing itself"),
    Part("python", "#a3261f", "the host was in a step, a range or Python, and in no op"),
    Part("host", "#f0938a", "the host did something that was not recorded"),
    Part("sync", "#d6337c", "the host was in a blocking call: it waited for the device"),
    Part("alloc", "#f5a6c8", "the host was allocating or freeing memory"),
    Part("profiler", "#c8b98f", "the profiler's own overhead"),
    Part("unattributed", "#a9aeb7", "unknown: no launch in the profile leads there"),
)
#: Parts of a comparison that the ledger of a step does not have.
COMPARED = (
    Part("input", "#5b6b86", "preparing the input, whatever was done then"),
    Part("the profiler's effect", "#94a0b4", "profiled steps less undisturbed ones"),
    Part("step", "#6b7689", "the whole step"),
)
PARTS = {part.name: part for part in (*BUSY, *IDLE, *COMPARED)}
UNKNOWN = PARTS["other"]
_ORDER = {name: place for place, name in enumerate(PARTS)}


def part_of(state: str, part: str) -> Part:
    """The part whose colour and meaning (state, part) of a ledger has."""
    if state == "input":
        return PARTS["input"]
    return PARTS.get(part.removeprefix(TAIL), UNKNOWN)


def order_of(part: str) -> int:
    """The place of a part where several are stacked: busy before idle."""
    return _ORDER.get(part, len(_ORDER))


def label_of(state: str, part: str) -> str:
    """What a part is called on the page: ``idle: python, at the end``."""
    if part.startswith(TAIL):
        return f"{state}: {shown_name(part.removeprefix(TAIL))}, at the end"
    return f"{state}: {shown_name(part)}" if state else shown_name(part)

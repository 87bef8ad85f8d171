"""The colour and the meaning of every part of the ledger: one hue means one thing everywhere.

Parts stand in eight families, each of one hue: a part is a shade of it. Of any two families every
two shades can be told apart with and without red-green blindness, and their first shades, by which
one knows them, by far; inside a family shades differ in lightness, and every mark is named on hover
and in a table. A part has one hue and two lightnesses: on either ground it is at 3:1 (WCAG 2.2,
1.4.11). Meanings: docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lstmprof.breakdown.attribution import TAIL
from lstmprof.diagnose import causes
from lstmprof.numbers import shown_name


@dataclass(frozen=True)
class Part:
    """One part: its colours on light and on dark ground, 3:1 and more there, and what it is."""

    name: str
    colour: str
    dark: str
    meaning: str


@dataclass(frozen=True)
class Family:
    """Parts of one hue, what they are together, and what one calls that."""

    name: str
    meaning: str
    parts: tuple[Part, ...]


RECURRENT = Family(
    "recurrent layers",
    "one op that computes a whole layer",
    (
        Part(
            "rnn",
            "#423bc0",
            "#b5bffd",
            "a recurrent layer in one op, and all that was launched beneath it",
        ),
    ),
)
PRODUCTS = Family(
    "products",
    "products of matrices, and what consists of them",
    (
        Part("gemm", "#4c97e0", "#2e9afa", "matmuls"),
        Part("conv", "#003d74", "#69aff5", "convolutions"),
        Part("attention", "#1e5577", "#0c81bd", "attention"),
    ),
)
ELEMENTS = Family(
    "element by element",
    "arithmetic on each element, sums over them, losses",
    (
        Part(
            "pointwise", "#319f5f", "#a2ecb9", "element by element: gates, additions, activations"
        ),
        Part("reduction", "#175332", "#5ac687", "sums, means, norms over elements"),
        Part("normalization", "#739d74", "#5dbe62", "batch and layer normalisation"),
        Part("softmax_loss", "#134c17", "#379a3c", "softmax and the loss"),
        Part("ctc", "#588a66", "#359257", "the CTC loss"),
    ),
)
MOVING = Family(
    "moving elements",
    "elements copied, rearranged, looked up, set or changed in type: nothing is computed",
    (
        Part("cast", "#5c0066", "#9942a4", "an element type changed: the price of mixed precision"),
        Part(
            "layout",
            "#853e88",
            "#cd8bce",
            "elements moved: transpose, concat, split, contiguous copy",
        ),
        Part("transfer", "#ae51df", "#ad51de", "copies between host and device"),
        Part("memset", "#8a568f", "#a57ea9", "memory set to a value"),
        Part("embedding", "#9f5cb3", "#c475dc", "looking up rows of a table"),
    ),
)
COLLECTIVES = Family(
    "collectives",
    "what ranks do together, the waiting for each other included",
    (Part("collective", "#18a3a7", "#93bfc0", "communication between ranks"),),
)
OTHERS = Family(
    "other work",
    "busy with anything else",
    (
        Part("optimizer", "#494949", "#637474", "the optimizer's update"),
        Part("rng", "#686572", "#9895a3", "random numbers, dropout"),
        Part("other", "#726c60", "#aba497", "work that no rule knows"),
        Part("input", "#717b85", "#77818c", "preparing the input, whatever was done then"),
        Part("compiling", "#383838", "#a1a2a3", "a compiler ran inside the step"),
        Part("ranges", "#888888", "#72645f", "ranges of a profile in which no op was recorded"),
        Part(
            "slower calls", "#5e534a", "#d1c5ba", "the same calls as in the faster run, each longer"
        ),
    ),
)
BY_HOST = Family(
    "idle by the host",
    "nothing is computed because of what the host does; of a device, all waits for the host",
    (
        Part(
            "launch latency",
            "#7c2000",
            "#b7501c",
            "the launch had returned and the kernel had not started",
        ),
        Part(
            "launch call",
            "#f5663f",
            "#f4b3a1",
            "the host was inside the call that launches the kernel",
        ),
        Part("runtime", "#b3512a", "#be8570", "the host was in another runtime or driver call"),
        Part("alloc", "#dd7559", "#f8a28b", "the host was allocating or freeing memory"),
        Part(
            "dispatch",
            "#904d31",
            "#b7765b",
            "the host was in a framework op that computes nothing itself",
        ),
        Part(
            "python",
            "#ce4e0b",
            "#d36235",
            "the host was in a step, a range or Python, and in no op",
        ),
        Part("host", "#923b00", "#ffc3a3", "the host did something that was not recorded"),
    ),
)
OTHERWISE = Family(
    "idle otherwise",
    "nothing is computed, and no faster host is known to change that",
    (
        Part(
            "sync",
            "#a3940b",
            "#dccf67",
            "the host was in a blocking call: it waited for the device",
        ),
        Part(
            "queued",
            "#9e8c37",
            "#bba432",
            "the device had the work and did not start it: it waited for another stream or itself",
        ),
        Part("profiler", "#675f17", "#e0d88c", "the profiler's own overhead"),
        Part("unattributed", "#777444", "#6e6b3a", "unknown: no launch in the profile leads there"),
    ),
)
#: In the order in which they are stacked: busy before idle.
FAMILIES = (RECURRENT, PRODUCTS, ELEMENTS, MOVING, COLLECTIVES, OTHERS, BY_HOST, OTHERWISE)
#: A bar of no part: it is neutral.
WHOLE = Part("step", "#7a8494", "#6b7585", "the whole step")
PARTS = {part.name: part for family in FAMILIES for part in family.parts} | {WHOLE.name: WHOLE}
_FAMILY_OF = {part.name: family for family in FAMILIES for part in family.parts}
#: A family in its first shade, where its parts are not told apart.
HUES = {f.name: Part(f.name, f.parts[0].colour, f.parts[0].dark, f.meaning) for f in FAMILIES}
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
    causes.PROFILER: "profiler",
    causes.UNKNOWN: "unattributed",
}
_ORDER = {name: place for names in (PARTS, HUES) for place, name in enumerate(names)}


def part_of(state: str, part: str) -> Part:
    """The part whose colour and meaning (state, part) of a ledger has."""
    if state == "input":
        return PARTS["input"]
    return PARTS.get(part.removeprefix(TAIL), UNKNOWN)


def part_of_kind(kind: str) -> Part:
    """The part whose colour a kind of ``diagnose.causes`` has."""
    return PARTS.get(_OF_KIND.get(kind, ""), UNKNOWN)


def family_of(part: Part) -> Family:
    """The family whose hue ``part`` has."""
    return _FAMILY_OF[part.name]


def families_of(names: Iterable[str]) -> list[Family]:
    """The families of these parts, each with these alone, in their order.

    One that is named itself has its ``HUES`` for its only part.
    """
    wanted = set(names)
    some = [
        (family, tuple(p for p in (HUES[family.name], *family.parts) if p.name in wanted))
        for family in FAMILIES
    ]
    return [Family(family.name, family.meaning, parts) for family, parts in some if parts]


def order_of(name: str) -> int:
    """The place of a part among parts, or of a family among families: busy before idle."""
    return _ORDER.get(name, len(_ORDER))


def label_of(state: str, part: str) -> str:
    """What a part is called on the page: ``idle: python, at the end``."""
    if part.startswith(TAIL):
        return f"{state}: {shown_name(part.removeprefix(TAIL))}, at the end"
    return f"{state}: {shown_name(part)}" if state else shown_name(part)

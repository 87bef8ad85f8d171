"""Counts and durations per step that are evidence for kinds of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lstmprof.base.numbers import number_of
from lstmprof.diagnose.findings.causes import KINDS
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.tally import Spread
from lstmprof.events.threads import VALUE_READS

Rows = Iterable[dict[str, Any]]
Amount = Callable[[StepProfile], float | None]


@dataclass(frozen=True)
class Quantity:
    """A number per step, such as launches, with its words for users."""

    name: str
    text: str
    unit: str
    amount: Amount
    singular: str = ""
    length_of: str = ""  # noun of the events, if this is a duration
    statistic: str = ""  # mean, median or longest

    def with_noun(self, number: float) -> str:
        return number_of(number, self.singular, self.text)


def spread_of(profile: StepProfile, noun: str) -> Spread | None:
    """Return the number and durations of, for example, all launches (``"launch"``)."""
    spread = profile.tally.get(noun)
    return spread if spread and spread.count else None


def _counted(noun: str) -> Amount:
    def each_step(profile: StepProfile) -> float | None:
        spread = profile.tally.get(noun)
        return None if spread is None else spread.count / profile.steps

    return each_step


def _per_step(profile: StepProfile, rows: Rows, column: str = "count") -> float:
    total: int = sum(row[column] for row in rows)
    return total / profile.steps


def _ratio(amount: float | None, base: float | None) -> float | None:
    return amount / base if amount is not None and base else None


def _ops(profile: StepProfile) -> float | None:
    rows = profile.rows("ops")
    return _per_step(profile, rows) if rows else None


def _bytes(table: str) -> Amount:
    """Return a function that sums the bytes per step in a table, such as ``casts``."""

    def moved_bytes(profile: StepProfile) -> float | None:
        rows = [row for row in profile.rows(table) if row.get("kind") != "memset"]
        complete = rows and all(row["bytes"] is not None for row in rows)
        return _per_step(profile, rows, "bytes") if complete else None

    return moved_bytes


def _value_reads(profile: StepProfile) -> float:
    """Count the values that the host reads per step."""
    outer = [row for row in profile.rows("ops") if row["name"] in VALUE_READS]
    # count each read once, because ``aten::item`` calls ``aten::_local_scalar_dense``
    inner = [row for row in outer if row["name"] == "aten::_local_scalar_dense"]
    return _per_step(profile, inner or outer)


def _each_time_step(amount: Amount) -> Amount:
    return lambda profile: _ratio(amount(profile), profile.time_steps)


def _layers(on_device: bool) -> Amount:
    """Return a function that counts recurrent layers on a device, or on a host."""
    layers = _counted("layer")
    return lambda profile: layers(profile) if (profile.device is not None) == on_device else None


def _lengths(noun: str, text: str) -> tuple[Quantity, ...]:
    """Return the mean, median and longest duration of, for example, launches."""

    def length(statistic: str) -> Amount:
        name = f"{statistic}_ns"
        return lambda profile: getattr(spread_of(profile, noun), name, None)

    return tuple(
        Quantity(
            f"{which}_{noun}_ns", f"{which} {text}", "ns", length(which), "", noun, statistic=which
        )
        for which in ("mean", "median", "longest")
    )


#: Type of work → (name in ``QUANTITIES``, plural for users, singular for users).
NOUNS = {
    "op": ("computing_ops", "ops that compute (not views or wrappers)", "op that computes"),
    "kernel": ("kernels", "kernels", "kernel"),
    "launch": ("launches", "kernel launches", "kernel launch"),
    "product": ("products", "matmuls", "matmul"),
    "convolution": ("convolutions", "convolutions", "convolution"),
    "attention": ("attentions", "fused attentions", "fused attention"),
    "cell": ("cell_ops", "recurrent-cell ops", "recurrent-cell op"),
    "pointwise": ("pointwise", "elementwise ops and reductions", "elementwise op or reduction"),
    "embedding": ("embeddings", "embedding lookups", "embedding lookup"),
    "copy": ("copies", "copies", "copy"),
    "memset": ("memsets", "memsets", "memset"),
}
#: Type of work → words that texts put after ``mean``, ``median`` or ``longest``.
_LASTING = {noun: singular for noun, (_, _, singular) in NOUNS.items() if noun != "memset"} | {
    **{"op": "computing op", "gap": "idle gap of the device", "launch": "launch call"},
    **{"layer": "recurrent layer", "cell": "recurrent cell"},
}
_launches = _counted("launch")
_PER_TIME_STEP = {"ops": _ops, "kernels": _counted("kernel"), "launches": _launches}
_KERNEL = "persistent recurrent kernel"
_WAIT = "for a value or for the device"
_ALL = (
    *(
        Quantity(name, text, "", _counted(n), singular)
        for n, (name, text, singular) in NOUNS.items()
    ),
    *(length for noun, text in _LASTING.items() for length in _lengths(noun, text)),
    *(
        Quantity(f"{name}_per_time_step", f"{name} per time step", "", _each_time_step(amount))
        for name, amount in _PER_TIME_STEP.items()
    ),
    Quantity("ops", "ops", "", _ops, "op"),
    Quantity(
        "launches_per_s",
        "launches per second",
        "1/s",
        lambda c: _ratio(_launches(c), c.length_ns / 1e9),
    ),
    Quantity("layer_ops", "recurrent-layer ops", "", _layers(False), "recurrent-layer op"),
    Quantity("layer_kernels", f"{_KERNEL}s", "", _layers(True), _KERNEL),
    Quantity("casts", "casts", "", lambda c: _per_step(c, c.rows("casts")), "cast"),
    Quantity("cast_bytes", "bytes cast", "bytes", _bytes("casts")),
    Quantity("copied_bytes", "bytes copied", "bytes", _bytes("copies")),
    Quantity(
        "syncs",
        f"waits of the host {_WAIT}",
        "",
        lambda c: _value_reads(c) if c.sync_calls is None else c.sync_calls,
        f"wait of the host {_WAIT}",
    ),
)

QUANTITIES = {quantity.name: quantity for quantity in _ALL}


def counted(profile: StepProfile, name: str) -> float:
    """Return a count by name, such as ``launches``, or 0 if the count is unknown."""
    return QUANTITIES[name].amount(profile) or 0.0


def _with_lengths(count: str, noun: str) -> tuple[str, ...]:
    return count, f"mean_{noun}_ns", f"median_{noun}_ns", f"longest_{noun}_ns"


_PACE = (*_with_lengths("kernels", "kernel"), *_with_lengths("", "gap")[1:])
_HOST = ("ops", "ops_per_time_step", "computing_ops", *_PACE)
_LAUNCHES = (
    *("launches", "launches_per_time_step", "launches_per_s"),
    *_with_lengths("", "launch")[1:],
    *_PACE,
)

#: Kind of time → names of the counts and durations that are evidence.
EVIDENCE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(KINDS, ()),
    "launch": _LAUNCHES,
    "dispatch": _HOST,
    "Python": _HOST,
    "unrecorded": _LAUNCHES,
    "sync": ("syncs",),
    "cast": ("casts", "cast_bytes"),
    "copy": (*_with_lengths("copies", "copy"), "memsets", "copied_bytes"),
    "matmul": (
        *_with_lengths("products", "product"),
        *_with_lengths("convolutions", "convolution"),
        *_with_lengths("attentions", "attention"),
        *("layer_ops", *_with_lengths("layer_kernels", "layer")),
        *_with_lengths("cell_ops", "cell"),
    ),
    "elementwise": (*_with_lengths("pointwise", "pointwise"), *_with_lengths("kernels", "kernel")),
    "embedding": _with_lengths("embeddings", "embedding"),
    "input": ("copied_bytes",),
}

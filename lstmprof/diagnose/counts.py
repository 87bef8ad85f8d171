"""How often a step does what: the counts behind the parts of its time.

Reads the tables of a profile; every count is of the mean profiled step, None where it is unknown or
does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lstmprof.diagnose.causes import KINDS
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.events.annotate.calls import direction, is_kernel_launch
from lstmprof.events.threads import ASKS

Rows = Iterable[dict[str, Any]]


@dataclass(frozen=True)
class Quantity:
    """One count: what it is in a sentence, its unit (empty for a plain number), how it is made."""

    name: str
    text: str
    unit: str
    of: Callable[[StepProfile], float | None]


def _sum(rows: Rows, column: str) -> int:
    return sum(row[column] for row in rows)


def _per_step(profile: StepProfile, rows: Rows, column: str = "count") -> float:
    return _sum(rows, column) / profile.steps


def _ratio(amount: float | None, base: float | None) -> float | None:
    return amount / base if amount is not None and base else None


def _ops(profile: StepProfile) -> float | None:
    rows = profile.rows("ops")
    return _per_step(profile, rows) if rows else None


def _work(profile: StepProfile, *categories: str) -> list[dict[str, Any]]:
    """Rows of the kernels, on a host of the computing ops, of these categories; of all by none."""
    rows = profile.rows("kernels")
    return [row for row in rows if not categories or row["category"] in categories]


def _kernel_rows(profile: StepProfile) -> list[dict[str, Any]]:
    """The kernels of a device, without what copies or sets memory; on a host none."""
    if profile.device is None:
        return []
    return [row for row in _work(profile) if not _is_copy(row)]


def _is_copy(row: dict[str, Any]) -> bool:
    """Whether the device's copy engine did it, and no kernel: a memcpy, a memset."""
    on_device = row["category"] == "layout" and direction(row["name"]) is not None
    return row["category"] in ("transfer", "memset") or on_device


def _kernels(profile: StepProfile) -> float | None:
    return None if profile.device is None else _per_step(profile, _kernel_rows(profile))


def _computing_ops(profile: StepProfile) -> float | None:
    return _per_step(profile, _work(profile)) if profile.device is None else None


def _launch_rows(profile: StepProfile) -> list[dict[str, Any]]:
    rows = profile.rows("launches")
    return [row for row in rows if row["kind"] == "kernel" or is_kernel_launch(row["name"])]


def _launches(profile: StepProfile) -> float | None:
    rows = _launch_rows(profile)
    return _per_step(profile, rows) if rows else None


def _mean(rows: list[dict[str, Any]], total: str = "total_ns") -> float | None:
    return _ratio(_sum(rows, total), _sum(rows, "count"))


def _gap(profile: StepProfile) -> float | None:
    return _ratio(profile.profiled_ns - profile.busy_ns, _kernels(profile))


def _products(profile: StepProfile) -> list[dict[str, Any]]:
    """Products; of a recurrent layer's kernels those that are one."""
    inside = [r for r in _work(profile, "rnn") if r["family"] in ("gemm", "persistent")]
    return [*_work(profile, "gemm", "conv", "attention"), *inside]


def _layer_ops(profile: StepProfile) -> float | None:
    """Ops that hold a whole recurrent layer; on a device unknown, as its kernels are counted."""
    return _per_step(profile, _work(profile, "rnn")) if profile.device is None else None


_POINTWISE = ("pointwise", "reduction", "softmax_loss", "normalization", "embedding", "rng")


def _pointwise(profile: StepProfile) -> list[dict[str, Any]]:
    return _work(profile, *_POINTWISE, "optimizer")


def _copies(profile: StepProfile) -> float | None:
    return _per_step(profile, [*_work(profile, "layout", "transfer"), *_work(profile, "memset")])


def _bytes(table: str) -> Callable[[StepProfile], float | None]:
    """Bytes of a table a step; None where there are no rows, or one does not say."""

    def moved_bytes(profile: StepProfile) -> float | None:
        rows = profile.rows(table)
        complete = rows and all(row["bytes"] is not None for row in rows)
        return _per_step(profile, rows, "bytes") if complete else None

    return moved_bytes


def _asked(profile: StepProfile) -> float:
    """Values asked for: ``aten::item`` is the same question as what is inside it."""
    outer = [row for row in profile.rows("ops") if row["name"] in ASKS]
    inner = [row for row in outer if row["name"] == "aten::_local_scalar_dense"]
    return _per_step(profile, inner or outer)


def _syncs(profile: StepProfile) -> float | None:
    return _asked(profile) if profile.sync_calls is None else profile.sync_calls


def _each_time_step(
    amount: Callable[[StepProfile], float | None],
) -> Callable[[StepProfile], float | None]:
    return lambda profile: _ratio(amount(profile), profile.time_steps)


_ALL = (
    Quantity("ops", "ops", "", _ops),
    Quantity("ops_per_time_step", "ops a time step", "", _each_time_step(_ops)),
    Quantity("computing_ops", "computing ops", "", _computing_ops),
    Quantity("kernels", "kernels", "", _kernels),
    Quantity("kernels_per_time_step", "kernels a time step", "", _each_time_step(_kernels)),
    Quantity(
        "mean_kernel_ns",
        "mean kernel",
        "ns",
        lambda c: _mean(_kernel_rows(c)),
    ),
    Quantity("mean_gap_ns", "mean gap between kernels", "ns", _gap),
    Quantity("launches", "kernel launches", "", _launches),
    Quantity("launches_per_time_step", "launches a time step", "", _each_time_step(_launches)),
    Quantity(
        "launches_per_s",
        "launches a second",
        "1/s",
        lambda c: _ratio(_launches(c), c.profiled_ns / 1e9),
    ),
    Quantity(
        "mean_launch_ns",
        "mean launch call",
        "ns",
        lambda c: _mean(_launch_rows(c), "call_total_ns"),
    ),
    Quantity("products", "matrix products", "", lambda c: _per_step(c, _products(c))),
    Quantity("mean_product_ns", "mean product", "ns", lambda c: _mean(_products(c))),
    Quantity("layer_ops", "recurrent-layer ops", "", _layer_ops),
    Quantity("pointwise", "element-by-element ops", "", lambda c: _per_step(c, _pointwise(c))),
    Quantity("mean_pointwise_ns", "mean of these", "ns", lambda c: _mean(_pointwise(c))),
    Quantity("casts", "casts", "", lambda c: _per_step(c, c.rows("casts"))),
    Quantity("cast_bytes", "bytes cast", "bytes", _bytes("casts")),
    Quantity("copies", "copies", "", _copies),
    Quantity("copied_bytes", "bytes copied between memories", "bytes", _bytes("copies")),
    Quantity("syncs", "waits for a value or the device", "", _syncs),
)

#: Name → quantity.
QUANTITIES = {quantity.name: quantity for quantity in _ALL}


def counted(profile: StepProfile, name: str) -> float:
    """The quantity of this name, 0 where it is unknown."""
    return QUANTITIES[name].of(profile) or 0.0


_HOST = ("ops", "ops_per_time_step", "computing_ops", "kernels", "mean_kernel_ns", "mean_gap_ns")
_LAUNCHES = (
    *("launches", "launches_per_time_step", "launches_per_s", "mean_launch_ns"),
    *("kernels", "mean_kernel_ns", "mean_gap_ns"),
)

#: Kind → the counts that are its evidence; the first that is known is said in its sentence.
EVIDENCE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(KINDS, ()),
    "launch-bound": _LAUNCHES,
    "dispatch-bound": _HOST,
    "Python-bound": _HOST,
    "unrecorded host": _LAUNCHES,
    "sync-bound": ("syncs",),
    "cast-bound": ("casts", "cast_bytes"),
    "copy-bound": ("copies", "copied_bytes"),
    "GEMM-bound": ("products", "mean_product_ns", "layer_ops"),
    "memory-bound": ("pointwise", "mean_pointwise_ns", "kernels", "mean_kernel_ns"),
    "input-bound": ("copied_bytes",),
}

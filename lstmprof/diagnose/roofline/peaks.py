"""What a device does at best: measured with a run, or given by the user.

run.json's ``peaks`` are those of one framework's library, which may miss what the device can do
(MKL on another maker's CPU): of runs on one device and precision the highest is the device's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from lstmprof.errors import UsageError

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_NUMBER = r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*"
_RATES = {
    "products": re.compile(_NUMBER + r"(?:([kmgtp]?)flops?(?:/s)?)?\s*", re.IGNORECASE),
    "copies": re.compile(_NUMBER + r"(?:([kmgtp]?)b(?:ytes)?/s)?\s*", re.IGNORECASE),
}
_EXAMPLE = "write it like 67e12,3.35e12 or 67TFLOP/s,3.35TB/s"


@dataclass(frozen=True)
class Peaks:
    """The highest rates of products and of copies, where reads and writes both count."""

    gemm_flops_per_s: float
    copy_bytes_per_s: float


def recorded(facts: Mapping[str, Any]) -> Peaks | None:
    """The peaks in run.json; None where one was not measured or is no rate."""
    found = facts.get("peaks")
    if not isinstance(found, Mapping):
        return None
    products, copies = found.get("gemm_flops_per_s"), found.get("copy_bytes_per_s")
    return Peaks(products, copies) if _is_rate(products) and _is_rate(copies) else None


def _is_rate(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value < math.inf


def highest(peaks: Iterable[Peaks]) -> Peaks | None:
    """The device's, of what several runs on it measured; None of none."""
    found = list(peaks)
    if not found:
        return None
    return Peaks(
        max(one.gemm_flops_per_s for one in found), max(one.copy_bytes_per_s for one in found)
    )


def parsed(text: str) -> Peaks:
    """The peaks that a user gives: ``67e12,3.35e12`` or ``67TFLOP/s,3.35TB/s``.

    Prefixes are decimal. Without units they are flops and bytes a second.

    Raises:
        UsageError: it is not two rates in this order, both above 0.
    """
    parts = text.split(",")
    if len(parts) != 2:
        raise UsageError(f"peaks '{text}' are not a rate of products and one of copies", _EXAMPLE)
    return Peaks(*(_rate(kind, part) for kind, part in zip(_RATES, parts, strict=True)))


def _rate(kind: str, text: str) -> float:
    found = _RATES[kind].fullmatch(text)
    rate = float(found[1]) * _PREFIXES[(found[2] or "").lower()] if found else 0.0
    if not 0 < rate < math.inf:
        raise UsageError(f"peak '{text.strip()}' is no rate of {kind} above 0", _EXAMPLE)
    return rate

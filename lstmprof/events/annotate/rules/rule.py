"""What a row of the table of rules is, and the categories that rows speak of."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Every category, in the order in which tables show them.
CATEGORIES = (
    "rnn",
    "gemm",
    "conv",
    "attention",
    "pointwise",
    "reduction",
    "softmax_loss",
    "ctc",
    "embedding",
    "normalization",
    "rng",
    "cast",
    "layout",
    "transfer",
    "memset",
    "optimizer",
    "collective",
    "other",
)


@dataclass(frozen=True)
class Rule:
    """One row: names that match ``pattern`` are ``category``; None: arranges work only."""

    category: str | None
    framework: str
    pattern: re.Pattern[str]
    reason: str


def named(category: str | None, framework: str, pattern: str, reason: str) -> Rule:
    """A rule whose pattern is written out."""
    return Rule(category, framework, re.compile(pattern), reason)

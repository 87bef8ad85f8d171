"""What a row of the table of rules is, and the categories that rows speak of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

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
    expression: str
    reason: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """``expression``, compiled when a name is first asked about: most commands ask of none."""
        return re.compile(self.expression)

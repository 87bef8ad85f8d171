"""The class of the rules that classify work by name, and the categories of work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

#: Names of the categories, in the order in which tables show the categories.
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
    """A regular expression that assigns ops, kernels or copies to a category by name."""

    category: str | None  # None: the op only calls other ops
    framework: str
    expression: str
    reason: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.expression)

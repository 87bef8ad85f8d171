"""Rules that classify work by the names of ops and kernels: ``aten::addmm`` is ``gemm``.

The first matching rule decides. A rule without a category is for ops that only call other ops, such
as views: the next op around decides. Sources: docs/ledger.md, and names in profiles.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lstmprof.events.annotate.rules.graphs import MXNET_RULES, ONNX_RULES, PYTENSOR_RULES
from lstmprof.events.annotate.rules.kernels import KERNEL_RULES, kernel_name
from lstmprof.events.annotate.rules.rule import Rule
from lstmprof.events.annotate.rules.tensorflow import (
    PRIMITIVE_RULES,
    TENSORFLOW_RULES,
    UNKNOWN_TYPE,
    XLA_RULES,
)
from lstmprof.events.annotate.rules.torch import CAFFE2_RULES, INDUCTOR_OPS, LIBRARY_OP, TORCH_RULES

OP_RULES: tuple[Rule, ...] = (
    *TORCH_RULES,
    *INDUCTOR_OPS,
    *TENSORFLOW_RULES,
    *PYTENSOR_RULES,
    *ONNX_RULES,
    *MXNET_RULES,
    *CAFFE2_RULES,
    *XLA_RULES,
    UNKNOWN_TYPE,
    LIBRARY_OP,
)

#: Rules that categories.py chooses, because a name does not show whether such a rule applies.
COPY_THAT_CASTS = Rule("cast", "torch", r"aten::copy_", "a copy to another element type")
COPY_ON_DEVICE = Rule("layout", "any", r"(?i)memcpy", "a copy on or between devices")
TRANSFER = Rule("transfer", "any", r"(?i)memcpy", "a copy between host and device")
MEMSET = Rule("memset", "any", r"(?i)memset", "memory is set")
OPTIMIZER_WORK = Rule(
    "optimizer", "any", r"", "elementwise, reducing, copying or unknown work of the optimizer"
)
UNNAMED = Rule("other", "any", r"", "no rule knows op or kernel")

RULES: tuple[Rule, ...] = (
    *OP_RULES,
    *PRIMITIVE_RULES,
    *KERNEL_RULES,
    *(COPY_THAT_CASTS, COPY_ON_DEVICE, TRANSFER, MEMSET, OPTIMIZER_WORK, UNNAMED),
)
_SUBJECTS = (
    ("op", len(OP_RULES) + len(PRIMITIVE_RULES)),
    ("kernel name", len(KERNEL_RULES)),
    ("activity", len(RULES)),
)

#: Kinds of kernels inside a recurrent op (category ``rnn``); the first matching kind decides.
RNN_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("persistent", re.compile(r"(?i)persist")),
    ("gemm", re.compile(r"(?i)gemm|cutlass|cublas|cijk_|xmma|splitk|nvjet")),
    ("pointwise", re.compile(r"(?i)element|pointwise|rnncell|lstm|gru|functor|fill|copy")),
)
#: Pattern of the number that TensorFlow appends to a repeated name: ``MatMul_1``.
_NUMBERED = re.compile(r"_\d+$")


@lru_cache(maxsize=65536)
def op_rule(name: str) -> Rule | None:
    return next((rule for rule in OP_RULES if rule.pattern.fullmatch(name)), None)


@lru_cache(maxsize=65536)
def path_rule(path: str) -> Rule | None:
    """Find the rule for an XLA op_name by the last part of its path: ``/MatMul_1``."""
    if ":" in path[path.rfind("/") + 1 :]:
        return op_rule(path)
    last = path[path.rfind("/") :]
    rule = next((rule for rule in PRIMITIVE_RULES if rule.pattern.fullmatch(last)), None)
    if rule is None and last[1:2].isupper():
        rule = op_rule(f":{_NUMBERED.sub('', last[1:])}")
    matches = rule is not None and rule is not UNKNOWN_TYPE
    return rule if matches else kernel_rule(last[1:])


@lru_cache(maxsize=65536)
def kernel_rule(name: str) -> Rule | None:
    """Find a kernel's rule by function, then by namespaces, then by template arguments."""
    parts = kernel_name(name)
    for text in (parts.short, parts.qualified, parts.template):
        for rule in KERNEL_RULES:
            if rule.pattern.search(text):
                return rule
    return None


def rnn_family(name: str) -> str | None:
    """Return the kind of a kernel inside a recurrent op: gemm, pointwise, persistent."""
    return next((family for family, pattern in RNN_FAMILIES if pattern.search(name)), None)


def rule_text(number: int) -> str:
    """Return a rule's text for the column ``rule``: ``op: <reason> (<framework>)``."""
    rule, place = RULES[number], number
    for subject, rows in _SUBJECTS:
        if place < rows:
            return f"{subject}: {rule.reason} ({rule.framework})"
        place -= rows
    raise IndexError(number)

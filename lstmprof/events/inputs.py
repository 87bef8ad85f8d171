"""What ``shapes`` and ``dtypes`` hold: a JSON list with one entry an input of the op."""

from __future__ import annotations

import json
from typing import Any

#: A list of lists of shapes is 3 deep; whoever walks such a list does so by recursion.
MOST_DEPTH = 32


def recorded_inputs(text: str) -> list[Any]:
    """The entries of ``text``; empty where it is no JSON list, or nested without end."""
    if text.count("[") > MOST_DEPTH and _depth(text) > MOST_DEPTH:
        return []
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):  # braces nest too
        return []
    return entries if isinstance(entries, list) else []


def _depth(text: str) -> int:
    depth = most = 0
    for character in text:
        if character == "[":
            depth += 1
            most = max(most, depth)
        elif character == "]":
            depth -= 1
    return most

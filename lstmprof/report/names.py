"""Names from profiles as text that is safe to show: one line, of bearable length."""

from __future__ import annotations

import json
from typing import Any

from lstmprof.errors import one_line

#: Characters of a C++ name beyond which nobody reads on.
MOST = 400


def shown_name(name: str, most: int = MOST) -> str:
    """``name`` without control or direction characters, its middle cut where it is too long."""
    text = one_line(name)
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def script_json(value: Any) -> str:
    """``value`` as JSON that no HTML parser can leave early: ``</script>`` cannot occur in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text

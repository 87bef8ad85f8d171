"""Format numbers (durations, shares, counts) and names (of runs and kernels) as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from lstmprof.base.errors import one_line

UNKNOWN = "–"
#: Most characters of names that ``shown_name`` returns by default.
MOST_SHOWN = 400
#: Pattern of common parts of kernel names: ``void``, ``at::``, anonymous namespaces.
_COMMON = re.compile(
    r"^(?:static )?void |\b(?:at|native|detail|c10|std)::"
    r"|(?:\(anonymous(?: namespace)?\)|<unnamed>)::"
)
#: Pattern of a mangled C++ name's beginning: ``_ZN2at6native13reduce_kernelILi512E…``.
MANGLED = re.compile(r"_ZN?K?L?(?=\d)")
_LENGTH = re.compile(r"\d{1,5}")


def or_dash(value: float | None, form: str = "{:,}") -> str:
    return UNKNOWN if value is None else form.format(value)


def milliseconds(ns: float | None, digits: int = 1) -> str:
    """Format ns in ms: ``1_234_000`` -> ``1.2``, three decimals below 1 ms, a dash for None."""
    if ns is None:
        return UNKNOWN
    ms = abs(ns) / 1e6
    digits = digits if ms >= 1 else 3
    return f"{ns / 1e6:,.{digits}f}"


def percent(share: float) -> str:
    """Format a share (0 to 1): ``68 %``, or ``0.4 %`` below 1 %."""
    return f"{share:.{0 if abs(share) >= 0.01 else 1}%}".replace("%", " %")


def count(number: float) -> str:
    """Format a number: ``2,412``, ``0.5`` or ``0.003``; only zero becomes ``0``."""
    if 0 < abs(number) < 0.05:
        return f"{number:.1g}"
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def file_size(size_bytes: int) -> str:
    """Format a size: ``512 bytes``, ``3.1 kB`` or ``1.2 MB``."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"


def number_of(number: float, singular: str, plural: str) -> str:
    """Format a number with its noun: ``60 kernel launches``."""
    return f"{count(number)} {singular if number == 1 else plural}"


def times_a_step(number: float) -> str:
    """Format a count: ``40 times per step`` or ``once per step``."""
    return "once per step" if number == 1 else f"{count(number)} times per step"


def quantity(number: float | None, unit: str) -> str:
    """Format a number with its unit: ``5.0 µs``, ``1.20 MB``, ``14,000 /s``."""
    if number is None:
        return UNKNOWN
    if unit == "ns":
        if abs(number) < 100:
            return f"{number:,.0f} ns"
        return f"{number / 1e3:,.1f} µs" if number < 1e6 else f"{number / 1e6:,.3f} ms"
    if unit == "bytes":
        return f"{number / 1e6:,.2f} MB" if number >= 1e4 else f"{number:,.0f} B"
    return f"{count(number)} {unit.replace('1/', '/')}".strip()


def listed(words: Iterable[str]) -> str:
    """Join words for a sentence: ``a, b and c``."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def cropped(name: str, room: int = 60) -> str:
    name = name if len(name) <= room else bare(name)
    if len(name) <= room:
        return name
    if "/" in name and "<" not in name:
        return "…" + name[len(name) - room + 1 :]
    return name[: room - 1] + "…"


def cut_text(text: str, room: int) -> str:
    """Shorten a text to ``room`` characters, if possible after a word outside of brackets."""
    if len(text) <= room:
        return text
    spaces = [match.start() for match in re.finditer(" ", text[:room])]
    ends = [end for end in spaces if text.count("(", 0, end) == text.count(")", 0, end)]
    end = ends[-1] if ends and ends[-1] >= room // 2 else room - 1
    return text[:end].rstrip(" ;:,+") + "…"


def with_short_names(sentence: str, names: Iterable[str], most: int = 60) -> str:
    """Shorten each of ``names`` in a sentence to ``most`` characters."""
    for name in sorted({n for n in names if len(n) > most}, key=len, reverse=True):
        sentence = sentence.replace(name, cropped(name, most))
    return sentence


def bare(name: str) -> str:
    """Shorten a kernel's name to its function: ``at::native::f<int>(T*)`` -> ``f<int>``."""
    match = MANGLED.match(name)
    if match is not None:
        parts, end = unmangled(name, match.end())
        plain = "::".join(part for part in parts if part not in ("_", "at", "native"))
        return (plain + ("<…>" if name[end : end + 1] == "I" else "")) or name
    if "::" not in name and "<" not in name:
        return name
    return _without_parameters(_COMMON.sub("", name.removesuffix(" [clone .kd]")))


def unmangled(symbol: str, place: int) -> tuple[list[str], int]:
    """Split a mangled C++ name: ``2at6native3mulE`` -> ``at``, ``native``, ``mul``."""
    parts: list[str] = []
    # A mangled name has the length before each part. Source: the Itanium C++ ABI.
    while length := _LENGTH.match(symbol, place):
        end = length.end() + int(length.group())
        if end > len(symbol):
            break
        place, part = end, symbol[length.end() : end]
        parts.append("_" if part.startswith("_GLOBAL__N_") else part)
    return parts, place


def _without_parameters(name: str) -> str:
    """Remove a function's parameters: ``f<int>(float*)`` becomes ``f<int>``."""
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and not depth and place and name.endswith(")"):
            return name[:place]
    return name


def shown_name(name: str, most: int = MOST_SHOWN) -> str:
    """Shorten a long name in the middle, and remove control characters."""
    text = one_line(name)
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def made_unique(names: Iterable[str]) -> list[str]:
    """Add numbers to repeated names: ``same``, ``same (2)``."""
    distinct: dict[str, None] = {}
    for name in names:
        free, number = name, 1
        while free in distinct:
            number += 1
            free = f"{name} ({number})"
        distinct[free] = None
    return list(distinct)


def labels(names: Sequence[str], short: Sequence[str]) -> list[str]:
    """Label each run by its short text, or by its name if the text is empty or repeated."""
    uses = Counter(short)
    return [
        text if text and uses[text] == 1 else name for name, text in zip(names, short, strict=True)
    ]


def in_prose(name: str) -> str:
    """Quote a run's name that could be read as a word: ``'base'``, but ``run-2``."""
    return f"'{name}'" if len(name) > 1 and name.isalpha() else name


def escaped(text: str) -> str:
    """Escape a text as one line of Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", one_line(text))

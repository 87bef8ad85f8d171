"""Numbers and names for reading: a length, a share, a count, what a run or a kernel is called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from lstmprof.errors import one_line

UNKNOWN = "–"
#: Characters of a C++ name beyond which nobody reads on.
MOST_SHOWN = 400
#: What is in the names of many kernels and tells none from another: no return type, the namespaces
#: of PyTorch, those without a name.
_COMMON = re.compile(
    r"^(?:static )?void |\b(?:at|native|detail|c10|std)::"
    r"|(?:\(anonymous(?: namespace)?\)|<unnamed>)::"
)
#: ``_ZN2at6native13reduce_kernelILi512E…``: each name behind the number of its letters.
MANGLED = re.compile(r"_ZN?K?L?(?=\d)")
_LENGTH = re.compile(r"\d{1,5}")


def known(value: float | None, form: str = "{:,}") -> str:
    """``value`` in the ``form``; a dash where it is unknown."""
    return UNKNOWN if value is None else form.format(value)


def milliseconds(ns: float | None, digits: int = 1) -> str:
    """``18.1``; more digits where the number is small."""
    if ns is None:
        return UNKNOWN
    ms = abs(ns) / 1e6
    digits = digits if ms >= 1 else 3
    return f"{ns / 1e6:,.{digits}f}"


def percent(share: float) -> str:
    """``68 %``; under one in a hundred with a digit more."""
    return f"{share:.{0 if abs(share) >= 0.01 else 1}%}".replace("%", " %")


def count(number: float) -> str:
    """``2,412``, ``0.5``: whole where it is large, never 0 where it is not."""
    if 0 < abs(number) < 0.05:
        return f"{number:.1g}"
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def file_size(size_bytes: int) -> str:
    """``512 bytes``, ``3.1 kB``, ``1.2 MB``: never 0 of a file that holds something."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"


def number_of(number: float, one: str, many: str) -> str:
    """``1 kernel launch``, ``60 kernel launches``: a number with the noun that it counts."""
    return f"{count(number)} {one if number == 1 else many}"


def times_a_step(number: float) -> str:
    """``40 times per step``, ``once per step``."""
    return "once per step" if number == 1 else f"{count(number)} times per step"


def quantity(number: float | None, unit: str) -> str:
    """A number with its unit: ``5.0 µs``, ``1 ns``, ``1.2 MB``, ``14,000 /s``."""
    if number is None:
        return UNKNOWN
    if unit == "ns":
        if abs(number) < 100:
            return f"{number:,.0f} ns"
        return f"{number / 1e3:,.1f} µs" if number < 1e6 else f"{number / 1e6:,.3f} ms"
    if unit == "bytes":
        return f"{number / 1e6:,.2f} MB" if number >= 1e4 else f"{number:,.0f} B"
    return f"{count(number)} {unit.replace('1/', '/')}".strip()


def listed(words: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def cropped(name: str, room: int = 60) -> str:
    """``name`` in ``room`` characters: graph nodes keep their end, C++ names their start.

    What does not fit is first rid of what tells no kernel from another.
    """
    name = name if len(name) <= room else bare(name)
    if len(name) <= room:
        return name
    if "/" in name and "<" not in name:
        return "…" + name[len(name) - room + 1 :]
    return name[: room - 1] + "…"


def with_short_names(sentence: str, names: Iterable[str], most: int = 60) -> str:
    """``sentence`` with those of ``names`` that are longer than ``most`` shortened to it."""
    for name in sorted({n for n in names if len(n) > most}, key=len, reverse=True):
        sentence = sentence.replace(name, cropped(name, most))
    return sentence


def bare(name: str) -> str:
    """A kernel's ``name`` without what most share, and readable where it is mangled.

    Its parameters go too: the template arguments before them tell more.
    """
    match = MANGLED.match(name)
    if match is not None:
        parts, end = unmangled(name, match.end())
        plain = "::".join(part for part in parts if part not in ("_", "at", "native"))
        return (plain + ("<…>" if name[end : end + 1] == "I" else "")) or name
    if "::" not in name and "<" not in name:
        return name
    return _without_parameters(_COMMON.sub("", name.removesuffix(" [clone .kd]")))


def unmangled(symbol: str, place: int) -> tuple[list[str], int]:
    """The names from ``place`` on in a C++ symbol of the Itanium ABI, and where they end.

    A namespace without a name is ``_``.
    """
    parts: list[str] = []
    while length := _LENGTH.match(symbol, place):
        end = length.end() + int(length.group())
        if end > len(symbol):
            break
        place, part = end, symbol[length.end() : end]
        parts.append("_" if part.startswith("_GLOBAL__N_") else part)
    return parts, place


def _without_parameters(name: str) -> str:
    """``f<int>`` of ``f<int>(float*)``; what does not end with its parameters as it is."""
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and not depth and place and name.endswith(")"):
            return name[:place]
    return name


def shown_name(name: str, most: int = MOST_SHOWN) -> str:
    """``name`` without control or direction characters, its middle cut where it is too long."""
    text = one_line(name)
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def told_apart(names: Iterable[str]) -> list[str]:
    """``names``, of which each is used once: ``same``, ``same (2)``."""
    distinct: dict[str, None] = {}
    for name in names:
        free, number = name, 1
        while free in distinct:
            number += 1
            free = f"{name} ({number})"
        distinct[free] = None
    return list(distinct)


def labels(names: Sequence[str], short: Sequence[str]) -> list[str]:
    """What tells runs apart: the ``short`` text of each where no other has it, else its name."""
    uses = Counter(short)
    return [
        text if text and uses[text] == 1 else name for name, text in zip(names, short, strict=True)
    ]


def in_prose(name: str) -> str:
    """Return the name of a run for a sentence, in quotes if it could be read as a word of it."""
    return f"'{name}'" if len(name) > 1 and name.isalpha() else name


def escaped(text: str) -> str:
    """``text`` in one line of Markdown, in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", one_line(text))

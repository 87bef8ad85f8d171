"""JSON with its structure changed: values of other types, keys lost, doubled and swapped, nesting.

What JSON's own writer cannot say (a key twice, a number of thousands of digits, bytes of no
encoding) is written through marks: texts that are replaced once the document is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from attack import bytes_mutations
from attack.bytes_mutations import INTEGERS, REALS, TEXTS

#: Each is written as it stands in place of a value.
_RAW = (
    *(b"NaN", b"-Infinity", b"1e999", b"-1e999", b"9" * 5000, b"0." + b"9" * 5000, b"1.", b".5"),
    *(
        b"01",
        b"+1",
        b"'x'",
        b'"\xff\xfe"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\x41"',
        b'"\t\x01"',
    ),
    *(b"undefined", b"1,", b'"' + b"y" * 70_000 + b'"', b"[" * 3000 + b"]" * 3000, b"// x\n1"),
)
_MARK, _DOUBLE = "@raw{0}@", "@twice@"
_MARKS = tuple((json.dumps(_MARK.format(number)).encode(), raw) for number, raw in enumerate(_RAW))

Node = dict[str, Any] | list[Any]
_Tokens = Sequence[Any]


def tokens(seeds: Sequence[bytes]) -> list[Any]:
    """The values and keys that stand in ``seeds``, for others to be given."""
    texts: dict[str, Any] = {}
    for seed in seeds:
        for node in _nodes(json.loads(seed)):
            for key in _keys(node):
                texts[repr(node[key])[:300]] = node[key]
                texts[repr(key)] = key
    return [*texts.values()]


def mutated(content: bytes, draw: Random, pool: _Tokens = (), most: int = 3) -> bytes:
    """``content`` with up to ``most`` changes of its structure; of its bytes if it is no JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return bytes_mutations.mutated(content, draw)
    nodes = [node for node in _nodes(document) if len(node)]
    if not nodes:
        return bytes_mutations.mutated(content, draw)
    try:
        for _ in range(draw.randint(1, most)):
            node = draw.choice(nodes)
            if len(node):
                draw.choice(_CHANGES)(node, draw, pool)
    except RecursionError:  # nested deeper with every generation of a guided attack
        return bytes_mutations.mutated(content, draw)
    return _written(document, draw)


def _nodes(document: Any) -> list[Any]:
    nodes, waiting = [], [document]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (dict, list)):
            nodes.append(node)
            waiting += node.values() if isinstance(node, dict) else node
    return nodes


def _keys(node: Node) -> list[Any]:
    return [*node] if isinstance(node, dict) else [*range(len(node))]


def value(draw: Random, pool: _Tokens) -> Any:
    """A value that a reader may not expect."""
    kind = draw.randrange(8)
    if kind == 0:
        return _MARK.format(draw.randrange(len(_RAW)))
    if kind == 1 and pool:
        return draw.choice(pool)
    if kind == 2:
        return draw.choice((None, True, False, [], {}, [[]], [None], {"": None}))
    if kind == 3:
        return draw.choice(REALS)
    if kind == 4:
        return str(draw.choice(INTEGERS))
    return draw.choice(INTEGERS) if kind in (5, 6) else draw.choice(TEXTS)


def _other_value(node: Any, draw: Random, pool: _Tokens) -> None:
    node[draw.choice(_keys(node))] = value(draw, pool)


def _near_value(node: Any, draw: Random, pool: _Tokens) -> None:
    """Another number near the one that stands there, or the same in another type."""
    key = draw.choice(_keys(node))
    old = node[key]
    if isinstance(old, bool) or not isinstance(old, (int, float)):
        node[key] = draw.choice(([old], str(old), {"value": old}, None))
        return
    node[key] = draw.choice((-old, old + 1, old - 1, old * 1000, str(old), [old], float(old)))


def _lost(node: Any, draw: Random, pool: _Tokens) -> None:
    del node[draw.choice(_keys(node))]


def _doubled(node: Any, draw: Random, pool: _Tokens) -> None:
    key = draw.choice(_keys(node))
    if isinstance(node, list):
        node.insert(draw.randint(0, len(node)), node[key])
    elif not str(key).startswith(_DOUBLE):
        node[_DOUBLE + key] = value(draw, pool)


def _swapped(node: Any, draw: Random, pool: _Tokens) -> None:
    one, other = draw.choice(_keys(node)), draw.choice(_keys(node))
    node[one], node[other] = node[other], node[one]


def _renamed(node: Any, draw: Random, pool: _Tokens) -> None:
    if isinstance(node, list):
        draw.shuffle(node)
        return
    names = [name for name in (*pool, *TEXTS) if isinstance(name, str)]
    node[draw.choice(names)] = node.pop(draw.choice(_keys(node)))


def _nested(node: Any, draw: Random, pool: _Tokens) -> None:
    key, inner = draw.choice(_keys(node)), node
    inner = node[key]
    for _ in range(draw.choice((1, 1, 2, 2, 60, 600))):
        inner = [inner] if draw.random() < 0.7 else {"a": inner}
    node[key] = inner


def _repeated(node: Any, draw: Random, pool: _Tokens) -> None:
    """An element many times over, or moved by some time each."""
    if not isinstance(node, list):
        _other_value(node, draw, pool)
        return
    element = draw.choice(node)
    for number in range(draw.choice((1, 2, 30))):
        ts = element.get("ts") if isinstance(element, dict) else None
        node.append({**element, "ts": ts + number} if isinstance(ts, int) else element)


_CHANGES: tuple[Callable[[Any, Random, _Tokens], None], ...] = (
    *(_other_value, _other_value, _other_value, _near_value, _near_value, _lost, _lost),
    *(_doubled, _swapped, _renamed, _nested, _repeated),
)


def _written(document: Any, draw: Random) -> bytes:
    try:
        text = json.dumps(document, indent=1 if draw.random() < 0.03 else None)
    except RecursionError:
        return b"[" * 5000
    content = text.replace(_DOUBLE, "").encode()
    if b'"@raw' in content:
        for mark, raw in _MARKS:
            content = content.replace(mark, raw)
    if draw.random() < 0.15:
        content = bytes_mutations.mutated(content, draw)
    if draw.random() < 0.02:
        encoding = draw.choice(("utf-16", "utf-32", "utf-8-sig", "latin-1"))
        content = content.decode("utf-8", "replace").encode(encoding, "replace")
    return content

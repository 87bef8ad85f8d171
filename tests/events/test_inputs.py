"""Whatever text stands for an op's inputs, a list comes of it, which a recursion can walk."""

from __future__ import annotations

import pytest

from lstmprof.events.launch_config import MOST_DEPTH, recorded_inputs

DEEP = 100_000


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("[[9,6,10],[],[[1,6],[1,6]]]", [[9, 6, 10], [], [[1, 6], [1, 6]]]),
        ('["float","Scalar"]', ["float", "Scalar"]),
        ("[" + ",".join(["[1]"] * 99) + "]", [[1]] * 99),
        ('["\\ud800", "a\\uDCFFb"]', ["\ufffd", "a\ufffdb"]),
        ("", []),
        ("7", []),
        ('{"a":1}', []),
        ("[[9,6", []),
        (nested(DEEP), []),
        ("[" * DEEP, []),
        ('[{"a":' * DEEP, []),
        ('{"a":' * DEEP + "1" + "}" * DEEP, []),
        ("[0," + nested(MOST_DEPTH) + "]", []),
    ],
)
def test_the_entries_are_those_of_a_list_of_readable_depth(
    text: str, entries: list[object]
) -> None:
    assert recorded_inputs(text) == entries


def test_a_list_that_is_as_deep_as_may_be_is_read() -> None:
    assert len(recorded_inputs(nested(MOST_DEPTH))) == 1

"""Kineto in pieces says what Kineto as a whole says, event by event, or leaves the file to it."""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from kineto_documents import as_a_whole, document, facts, op
from shared_traces import FOLDER, needed

from lstmprof.formats.kineto import pieces, records, stream

SMALL_BYTES = 300


def in_pieces(
    content: bytes, piece_bytes: int = SMALL_BYTES, part_bytes: int = records.PART_BYTES
) -> dict[str, Any] | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "PIECE_BYTES", piece_bytes)
        patch.setattr(records, "PART_BYTES", part_bytes)
        found = stream.profile("trace.json", io.BytesIO(content))
    return found and facts(found)


@needed
@pytest.mark.parametrize("piece_bytes", [2**16, stream.PIECE_BYTES])
@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("kineto/*.json*")), ids=lambda path: str(path.name)
)
def test_a_real_profile(path: Path, piece_bytes: int) -> None:
    content = path.read_bytes()
    found = in_pieces(content, piece_bytes)
    assert found is not None
    assert found == as_a_whole(content)


@needed
def test_most_of_a_real_profile_is_read_by_columns() -> None:
    content = gzip.decompress((FOLDER / "kineto/hm-amp-a100-bs128.json.gz").read_bytes())
    opening = content.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    read = pieces.read_columns(content[opening : content.rindex(b"]")].rstrip())
    assert len(read.columns) == 4082
    assert len(read.left_out.spans) == 1


def test_an_odd_event_takes_its_piece_alone_through_the_plain_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_rows = []
    plain = pieces._read_rows
    monkeypatch.setattr(
        pieces,
        "_read_rows",
        lambda label, text: by_rows.append(text) or plain(label, text),
    )
    events = [op(n) for n in range(30)]
    events[15] |= {"ts": -1.5, "name": "odd"}
    content = document(*events)
    assert in_pieces(content) == as_a_whole(content)
    assert [b'"odd"' in text for text in by_rows] == [True]
    assert len(by_rows[0]) < len(content) / 3


@pytest.mark.parametrize(
    "name",
    [
        "a},{b",
        'a"},{"ph',
        "]}",
        "}, \n {",
        '\\"}],"x":[{',
        "nul\x00",
        "é\ud800",
        '"traceEvents": [',
    ],
)
def test_borders_inside_a_name_are_none(name: str) -> None:
    content = document(*(op(n, name=name) for n in range(9)))
    assert in_pieces(content, 64) == as_a_whole(content)


def test_lists_of_objects_after_the_events(tmp_path: Path) -> None:
    content = document(op(1), op(2), deviceProperties=[{"id": 0, "name": "A"}, {"id": 1}])
    assert in_pieces(content, 64) == as_a_whole(content)
    assert in_pieces(content, 10_000) == as_a_whole(content) is not None


@pytest.mark.measured
def test_a_long_list_after_the_events_costs_little_more_than_parsing_it() -> None:
    after = [{"id": n, "name": "frame"} for n in range(200_000)]
    content = json.dumps({"schemaVersion": 1, "traceEvents": [op(0)], "stacks": after}).encode()
    spent: list[list[float]] = [[], []]
    for _ in range(2):
        for times, read in zip(spent, (json.loads, lambda t: in_pieces(t, 2**20)), strict=True):
            began = time.process_time()
            read(content)
            times.append(time.process_time() - began)
    # 28 times where each guess at the end is mended
    assert min(spent[1]) < 14 * min(spent[0])


@pytest.mark.parametrize(
    "content",
    [
        b'{"schemaVersion": 1, "x": {"traceEvents": [%s]}}',
        b'{"schemaVersion": 1, "traceEvents": [%s], "traceEvents": []}',
        b'{"schemaVersion": 1, "traceEvents": [%s], "x": {"traceEvents": []}}',
        b'{"schemaVersion": 1, "traceEvents": [%s]',
        b'{"schemaVersion": 1, "traceEvents": [%s,',
        b'{"schemaVersion": 1, "traceEvents": [%s] x}',
        b"[%s]",
        b'{"schemaVersion": 1, "traceEvents": []}',
    ],
)
def test_unusual_documents_are_left_to_the_plain_reader(content: bytes) -> None:
    events = ",".join(json.dumps(op(n)) for n in range(5)).encode()
    assert in_pieces(content.replace(b"%s", events)) is None


@pytest.mark.parametrize("damage", [b"", b"\x00" * 9, b"\xff\xff"])
def test_a_gzip_cut_short_or_damaged_is_left_to_the_plain_reader(damage: bytes) -> None:
    packed = gzip.compress(document(*(op(n) for n in range(200))))
    assert in_pieces(packed) == as_a_whole(packed) is not None
    assert in_pieces(packed[: len(packed) // 2] + damage) is None


def test_a_gzip_bomb_is_left_to_the_plain_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FREE_BYTES", 1000)
    monkeypatch.setattr(stream, "MAX_RATIO", 5)
    assert in_pieces(gzip.compress(document(*(op(0) for _ in range(200))))) is None


_TIMES = st.one_of(
    st.integers(-2, 3 * 10**18),
    st.floats(0, 1e13),
    st.sampled_from(["1.5", "x", None, True, [], 1e300, 1e-300, -0.0, 5656330066032.4045]),
    st.decimals(0, 10**10, places=3).map(float),
)
_IDS = st.one_of(
    st.integers(-2, 9),
    st.sampled_from([2**31, 2**63, -(2**63), "7", "stream 7", "x", 1.5, None, True, {}, []]),
)
_NAMES = st.one_of(
    st.sampled_from(["aten::mm", "ProfilerStep#3", "step", "Optimizer.step#Adam.step", 7, None]),
    st.text(max_size=8),
)
_CATS = st.sampled_from(
    [
        *("cpu_op", "kernel", "Kernel", "gpu_memcpy", "cuda_runtime", "user_annotation", "Trace"),
        *("Operator", "gpu_user_annotation", "python_function", "overhead", "new", "xpu_driver"),
        *(3, None),
    ]
)
_LISTS = st.sampled_from([[[2, 3], []], [[1.5]], [], ["é", '"\\'], "no", None, [None, {"a": 1}]])
_ARGS = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("correlation", "External id", "external id", "device"), _IDS),
            **dict.fromkeys(("stream", "graph node id", "bytes", "Bytes"), _IDS),
            **dict.fromkeys(("Sequence number", "Fwd thread id"), _IDS),
            **dict.fromkeys(("Input Dims", "Input dims", "Input type", "Input Type"), _LISTS),
            "other": st.one_of(_LISTS, st.just(float("nan"))),
        },
    ),
    st.sampled_from([None, [], "args", 3]),
)
_EVENTS = st.one_of(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "X", "i", "M", 1])},
        optional={
            **{"cat": _CATS, "name": _NAMES, "ts": _TIMES, "dur": _TIMES},
            **{"pid": _IDS, "tid": _IDS, "args": _ARGS},
        },
    ),
    st.builds(op, st.integers(0, 9), args=_ARGS),
    st.builds(op, st.integers(0, 9), cat=_CATS, pid=_IDS, tid=_IDS),
    st.sampled_from([None, 3, "x", []]),
)
_HEADERS = st.sampled_from(
    [{}, {"schemaVersion": 1}, {"distributedInfo": {"rank": 3}}, {"baseTimeNanoseconds": 10**18}]
)
_SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")])


@given(
    events=st.lists(_EVENTS, max_size=8),
    header=_HEADERS,
    after=_HEADERS,
    separators=_SEPARATORS,
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
    piece_bytes=st.sampled_from([1, 50, 200, 10**6]),
    part_bytes=st.sampled_from([100, records.PART_BYTES]),
)
def test_whatever_the_events_and_their_formatting(
    events: list[Any],
    header: dict[str, Any],
    after: dict[str, Any],
    separators: tuple[str, str],
    indent: int | None,
    ascii_only: bool,
    piece_bytes: int,
    part_bytes: int,
) -> None:
    written = json.dumps(
        {**header, "traceEvents": events, **after},
        separators=separators,
        indent=indent,
        ensure_ascii=ascii_only,
    )
    content = written.encode("utf-8", errors="surrogatepass")
    found = in_pieces(content, piece_bytes, part_bytes)
    if found is not None:
        assert found == as_a_whole(content)


@given(
    ts=st.lists(st.from_regex(r"\A[0-9]{1,16}(\.[0-9]{1,10})?\Z"), min_size=1, max_size=5),
    dur=st.from_regex(r"\A[0-9]{1,9}(\.[0-9]{1,10})?\Z"),
)
def test_times_of_any_number_of_decimals(ts: list[str], dur: str) -> None:
    events = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{at},"dur":{dur}}}' for at in ts
    )
    content = f'{{"schemaVersion":1,"traceEvents":[{events}]}}'.encode()
    assert in_pieces(content) == as_a_whole(content)


def test_events_with_arguments_and_texts_among_many_without() -> None:
    events = [op(n, cat="python_function") for n in range(40)]
    events[7] |= {"pid": "Spans", "tid": "PyTorch Profiler"}
    events[8] |= {"cat": "kernel", "pid": "3", "tid": "stream 7", "args": {"correlation": 5}}
    events[21] |= {"cat": "cpu_op", "args": {"Input Dims": [[2, 3]], "External id": "9"}}
    events[22] |= {"cat": "kernel", "args": {"device": "1", "stream": "of no meaning"}}
    events[39] |= {"cat": "Trace", "args": {"Op count": 0}}
    content = document(*events)
    assert in_pieces(content, 10**6, part_bytes=400) == as_a_whole(content) is not None
    text = b",".join(json.dumps(event).encode() for event in events)
    assert pieces.read_columns(text).rows == 39  # none of it is odd


@pytest.mark.parametrize("least", [-(2**63), 1 - 2**63, 2 - 2**63, -(2**70), 2**63, 2**64])
@pytest.mark.parametrize(
    "more",
    [
        *(lambda n, name=name: {name: n} for name in ("pid", "tid", "dur")),
        *(
            lambda n, name=name: {"cat": "kernel", "args": {"block": [1, 1, 1], name: n}}
            for name in ("correlation", "External id", "stream", "bytes", "registers per thread")
        ),
        *(
            lambda n, name=name: {"ph": "i", "name": "[memory]", "args": {"Bytes": 3, name: n}}
            for name in ("Bytes", "Device Id", "Total Allocated")
        ),
    ],
)
def test_numbers_at_the_ends_of_what_a_column_holds(
    least: int, more: Callable[[int], dict[str, Any]]
) -> None:
    content = document(op(1), op(2, **more(least)), op(3))
    assert in_pieces(content) == as_a_whole(content) is not None


def test_the_least_number_in_an_argument_of_no_use_is_not_odd() -> None:
    args = {"Concrete Inputs": ["-9223372036854775808", ""], "External id": 7}
    text = json.dumps(op(1, args=args)).encode()
    assert pieces.read_columns(text).columns["external_id"].to_pylist() == [7]


@pytest.mark.parametrize("first", ["of no meaning", -1, 7])
def test_the_first_spelling_of_an_argument_counts_even_where_it_means_nothing(first: Any) -> None:
    args = {"External id": first, "external id": 5, "Fwd thread id": first}
    content = document(*(op(n, args=args) for n in range(9)))
    assert in_pieces(content) == as_a_whole(content) is not None


@pytest.mark.parametrize(
    "odd",
    [
        *({"grid": grid} for grid in ("grid(100,)", [80.0, 1, 1], [], [1, 1], None, 7, [10**30])),
        *({"block": block} for block in ("x", [[1]], [2048, 1, 1], None)),
        *({"registers per thread": number} for number in ("32", 96.5, None, -1, True)),
        *({"shared memory": number} for number in ("64", 1e3, -1, 10**30)),
        *({"est. achieved occupancy %": n} for n in ("inf", "31", 31.5, None, 10**400, {}, 101)),
    ],
    ids=str,
)
def test_odd_arguments_of_a_launch(odd: dict[str, Any]) -> None:
    usual = {"grid": [8, 1, 1], "block": [32, 1, 1], "registers per thread": 16}
    usual |= {"shared memory": 64, "est. achieved occupancy %": 5}
    events = [op(n, cat="kernel", args={"device": 0, "stream": 7} | usual) for n in range(4)]
    events[1]["args"] |= odd
    events.append(op(9, args=usual))
    content = document(*events)
    found = in_pieces(content)
    assert found == as_a_whole(content)
    configs = [row["launch_config"] for row in found["events"]] if found else []
    assert configs[0] == configs[2] == configs[3] != None  # noqa: E711
    assert (configs[4], len(configs)) == (None, 5)

"""Columns of events decoded from bytes are those that the protobuf library's messages give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import raw_file, read, xplane
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane import lines as xplane_lines, schema, wire
from lstmprof.formats.xplane.events import PlaneTables
from lstmprof.formats.xplane.lines import Line, LineEvents
from lstmprof.formats.xplane.schema import OddError
from lstmprof.formats.xplane.wire import Outline

INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-(10**12), 10**12)
#: Of a plane: ``unread`` is none of the stats that are read.
STATS = ("correlation_id", "cuda_graph_node_id", "kernel_details", "memcpy_details", "tf_op")
STATS += ("step_num", "shape", "hlo_op", "hlo_module", "correlation_id", "unread")
STATS += ("allocator_name", "index_on_host", "bytes_allocated", "allocation_bytes")
NAMES = ("gemm", "MemcpyH2D", "step", "forward", "$f.py:1 g", "end: x", "a#correlation_id=5#")
NAMES += ("MemoryAllocation", "MemoryDeallocation")
TEXTS = st.sampled_from((b"", b"x", b"size:12", b"(float[2,3])", b"dot", b"\xff", b"7"))
VALUES = st.one_of(
    st.fixed_dictionaries({"uint64_value": st.integers(0, 2**64 - 1)}),
    st.fixed_dictionaries({"int64_value": INT64 | st.integers(-1, 3)}),
    st.fixed_dictionaries({"double_value": st.floats(allow_nan=False)}),
    st.fixed_dictionaries({"str_value": TEXTS}),
    st.fixed_dictionaries({"bytes_value": TEXTS}),
    st.fixed_dictionaries({"ref_value": st.integers(0, len(STATS) + 1)}),
    st.just({}),
)
STAT = st.builds(
    lambda number, value: {"metadata_id": number, **value},
    st.integers(0, len(STATS) + 1),
    VALUES,
)
EVENT = st.fixed_dictionaries(
    {"metadata_id": st.integers(0, len(NAMES) + 1), "duration_ps": NEAR},
    optional={"offset_ps": NEAR, "stats": st.lists(STAT, max_size=5)},
) | st.just({"metadata_id": 1, "num_occurrences": 3})


def plane() -> Any:
    message = schema.message("XPlane")(name=b"/host:CPU")
    for number, stat in enumerate(STATS, 1):
        message.stat_metadata.add(key=number, value={"name": stat.encode()})
    for number, name in enumerate(NAMES, 1):
        message.event_metadata.add(key=number, value={"name": name.encode()})
    return message


def outlined(tmp: Path, message: Any) -> tuple[RawFile, Outline]:
    space = schema.message("XSpace")(planes=[message])
    file = tmp / "x.xplane.pb"
    file.write_bytes(space.SerializeToString())
    raw = raw_file.load(file)
    return raw, wire.outline(raw)


def listed(found: LineEvents) -> list[dict[str, Any]]:
    names = ("kind", "name", "start_ns", "dur_ns", "tid", "device", "stream", "correlation_id")
    names += ("graph_node_id", "op_name", "shapes", "dtypes", "bytes")
    columns = pa.table({}) if found.columns is None else found.columns.select(names)
    rows: list[dict[str, Any]] = columns.to_pylist()
    return rows


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(EVENT, min_size=1, max_size=2), min_size=1, max_size=12),
    st.sampled_from((None, (1, 14))),
    st.sampled_from((0, 1_600_000_000_000_000_000, -5)),
)
def test_columns_are_those_of_the_messages(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[list[dict[str, Any]]],
    place: tuple[int, int] | None,
    start_ns: int,
) -> None:
    message = plane()
    line = message.lines.add()
    for parts in events:  # two of one event: the later field counts, stats are added
        event = line.events.add()
        for part in parts:
            event.MergeFrom(schema.message("XEvent")(**part))
    raw, outline = outlined(tmp_path_factory.getbasetemp(), message)
    read = Line(PlaneTables(message), {("dot", "x"): "jit/f"}, start_ns, 7, place)
    (plain,) = xplane_lines.one_by_one(read, line.events)
    pieces = outline.pieces[0][0]
    try:
        found = [xplane_lines.by_columns(read, raw.part(p.start, p.stop), p) for p in pieces]
    except OddError:
        assert any(has_id_twice(event) for event in line.events)
        return
    assert sum(part.untimed for part in found) == plain.untimed
    assert [row for part in found for row in listed(part)] == listed(plain)
    assert counted(*found) == counted(plain)


def counted(*found: LineEvents) -> list[dict[str, Any]]:
    """What the parts tell of memory, by time."""
    rows = [row for part in found if part.counters is not None for row in part.counters.to_pylist()]
    return sorted(rows, key=lambda row: int(row["time_ns"]))


def has_id_twice(event: Any) -> bool:
    of = {number: STATS[number - 1] for number in range(1, len(STATS) + 1)}
    ids = [of.get(stat.metadata_id) for stat in event.stats]
    return max(ids.count("correlation_id"), ids.count("cuda_graph_node_id")) > 1


@pytest.mark.parametrize("far", [2**61 + 1, -(2**62)])
def test_far_times_are_for_the_messages(tmp_path: Path, far: int) -> None:
    message = plane()
    message.lines.add().events.add(metadata_id=1, offset_ps=far)
    raw, outline = outlined(tmp_path, message)
    (piece,) = outline.pieces[0][0]
    line = Line(PlaneTables(message), {}, 0, 7, None)
    with pytest.raises(OddError):
        xplane_lines.by_columns(line, raw.part(piece.start, piece.stop), piece)


def a_space(seed: int) -> bytes:
    """A host thread, a stream and a derived line, a hundred events each."""
    chance = random.Random(seed)
    space = schema.message("XSpace")(errors=[b"no libcupti"])
    lines = (("/host:CPU", "python"), ("/device:GPU:0", "Stream #7"), ("/device:GPU:0", "Steps"))
    for name, of in lines:
        message = plane()
        message.name = name.encode()
        line = message.lines.add(id=3, name=of.encode(), timestamp_ns=5, display_name=b"t")
        for number in range(100):
            event = line.events.add(metadata_id=chance.randrange(8), duration_ps=5000)
            event.offset_ps = number * 10_000
            event.stats.add(metadata_id=1, uint64_value=chance.randrange(2 ** chance.randrange(64)))
            event.stats.add(metadata_id=chance.randrange(2, 9), str_value=b"size:5")
        space.planes.append(message)
    content: bytes = space.SerializeToString()
    return content


def outcome(content: bytes) -> tuple[Any, ...]:
    """What reading gives, an error's text in its place."""
    raw = RawFile("x", content)
    try:
        profile: Profile = xplane.read(raw)
    except ProfileError as error:
        return xplane.recognises(raw), str(error)
    facts = (profile.base_ns, profile.notes, profile.metadata, profile.events.to_pylist())
    return xplane.recognises(raw), *facts


def both(content: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The outcomes by columns, in pieces of some ten events, and by the protobuf library alone."""
    few = mock.patch.object(xplane_lines, "_FEW_EVENTS", 4)
    with few, mock.patch.multiple(wire, PIECE_BYTES=512, PIECE_EVENTS=7):
        found = outcome(content)
    odd = mock.Mock(side_effect=OddError)
    with mock.patch.multiple(xplane, outline=odd, plane_names=odd):
        return found, outcome(content)


def test_no_more_than_some_events_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PIECE_EVENTS", 40)
    raw = RawFile("x", a_space(1))
    (pieces, *_), *_ = wire.outline(raw).pieces
    assert [len(piece) for piece in pieces] == [40, 40, 20]
    message = schema.xspace().FromString(raw.content).planes[0]
    line = Line(PlaneTables(message), {}, 5, 3, None)
    parts = list(xplane_lines.one_by_one(line, message.lines[0].events))
    rows = [part.columns.num_rows if part.columns is not None else 0 for part in parts]
    assert len(rows) == 3
    assert max(rows) <= 40


def test_pieces_of_a_file_are_read_as_the_whole() -> None:
    found, plain = both(a_space(1))
    assert found == plain
    assert len(found[-1]) > 150


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_told_or_read_as_by_the_protobuf_library(seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray(a_space(seed))
    for _ in range(chance.randrange(1, 4)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    if chance.random() < 0.2:
        del content[chance.randrange(len(content)) :]
    found, plain = both(bytes(content))
    assert found == plain


def test_a_field_of_another_version_is_for_the_protobuf_library() -> None:
    space = schema.xspace().FromString(a_space(1))
    event = space.planes[0].lines[0].events[50]
    event.MergeFromString(b"\x78\x05")  # field 15
    found, plain = both(space.SerializeToString())
    assert found == plain
    assert len(found[-1]) > 150


@pytest.mark.parametrize("inside", [b"\x0a\x00", b"\x1a\x00", b"\x22\x02\x08\x01"])
def test_planes_lines_and_names_without_end_are_refused(
    inside: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bytes of a file are a plane or a line, which takes a hundred in memory."""
    monkeypatch.setattr(wire, "_MOST_PARTS", 1000)
    content = inside * 1001
    if inside[0] != 0x0A:  # in one plane
        size = len(content)
        content = b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7]) + content
    (tmp_path / "a.xplane.pb").write_bytes(content)
    with pytest.raises(ProfileError, match="has more than 1,000 planes, lines and names"):
        read(tmp_path / "a.xplane.pb")


def test_an_event_that_is_not_whole_is_not_of_a_run() -> None:
    event = bytes([wire._EVENTS, 10, *range(10)])
    assert wire._run_of_events(event + event, 0) == [12, 24]
    assert wire._run_of_events(event + event[:-1], 0) == [12]

"""The first step of a big file, read by itself, is the first step of the whole file, or nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from big_kineto import OPS, STEP_US, blocks, event, shuffled, write
from shared_traces import events as events_of, name, needed, profiles

from lstmprof import formats
from lstmprof.breakdown import first_step as module
from lstmprof.breakdown.attribution import LATENCY, QUEUED
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.first_step import LATENCY_OR_QUEUED, FirstStep, first_step, matches
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.table import EventTable
from lstmprof.formats.kineto.beginning import MOST_SHARE, Samples, beginning
from lstmprof.formats.raw_file import OpenFile

STEPS = 700


def of_whole(path: Path) -> tuple[object, list[Window]]:
    """The ledger and the windows of the whole file at ``path``."""
    events = annotated(formats.read(path).events, captured=False)
    steps = windows(events, captured=False)
    return ledger(events, steps[:1]), steps


def first_of(path: Path) -> FirstStep:
    """The first step of ``path``, which is there."""
    first = first_step(path, 0)
    assert first is not None
    return first


@pytest.fixture(scope="module")
def in_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which all host events stand before all calls, and these before all kernels."""
    return write(tmp_path_factory.mktemp("big") / "big.json", blocks(STEPS))


def test_it_is_the_first_step_of_the_whole_file(in_blocks: Path) -> None:
    first = first_of(in_blocks)
    assert first.name == "ProfilerStep#3"
    assert first.read_bytes < MOST_SHARE * first.file_bytes == MOST_SHARE * in_blocks.stat().st_size
    (lane,) = first.mean_steps
    assert (lane.device, lane.steps, lane.total_ns) == (0, 1, STEP_US * 1000)
    assert matches(first, *of_whole(in_blocks))


def test_events_beyond_the_step_are_not_among_its_own(in_blocks: Path) -> None:
    begun = beginning(in_blocks, 0)
    assert begun is not None
    kinds = begun.profile.events.column("kind").to_pylist()
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        **dict.fromkeys(("op", "runtime", "kernel"), OPS),
        "step": 1,
    }


def test_steps_one_after_the_other_as_in_a_grown_file(tmp_path: Path) -> None:
    host, calls, kernels = blocks(STEPS)
    mixed = [
        host[n * (OPS + 1) : (n + 1) * (OPS + 1)]
        + calls[n * OPS : (n + 1) * OPS]
        + kernels[n * OPS : (n + 1) * OPS]
        for n in range(STEPS)
    ]
    path = write(tmp_path / "big.json", mixed)
    assert matches(first_of(path), *of_whole(path))


def test_a_latency_that_only_the_whole_tells_is_told_with_what_is_queued(tmp_path: Path) -> None:
    path = write(tmp_path / "big.json", blocks(STEPS, queued_us=150))
    first = first_of(path)
    parts = {part for _, part, _ in first.mean_steps[0].parts}
    assert LATENCY_OR_QUEUED in parts
    assert not parts & {LATENCY, QUEUED}
    assert matches(first, *of_whole(path))


@pytest.mark.parametrize("why", ["shuffled", "one step", "gzipped", "cut", "small", "not Kineto"])
def test_nothing_is_said_of(why: str, tmp_path: Path, in_blocks: Path) -> None:
    path = tmp_path / "big.json"
    content = in_blocks.read_bytes()
    if why == "shuffled":
        write(path, shuffled(blocks(STEPS)))
    elif why == "one step":
        path.write_bytes(content.replace(b"ProfilerStep#", b"SomethingElse", STEPS))
    elif why == "gzipped":
        path.write_bytes(gzip.compress(content, 1))
    elif why == "cut":
        path.write_bytes(content[:-5000])
    elif why == "not Kineto":
        path.write_text(json.dumps({"events": ["x" * 100] * 1000}))
    else:
        path.write_bytes(content)
    assert first_step(path, path.stat().st_size + (why == "small")) is None


@pytest.mark.parametrize("piece", ['{"a": [', '"x', "\\ud8", '}, {"ph": "X"', "[" * 999])
def test_damage_makes_no_other_step_the_first(piece: str, tmp_path: Path, in_blocks: Path) -> None:
    content = in_blocks.read_bytes()
    path = tmp_path / "big.json"
    for place in (300, len(content) // 2, len(content) - 9000):
        path.write_bytes(content[:place] + piece.encode() + content[place + len(piece) :])
        first = first_step(path, 0)
        assert first is None or first.name == "ProfilerStep#3"


@pytest.mark.parametrize(
    "time", ["1e400", '"nan"', "-1e300", '"-inf"', "null", "1e18", '"?"', "[]"]
)
def test_times_that_are_none(time: str, tmp_path: Path) -> None:
    host, *others = blocks(STEPS)
    odd = [line.replace('"ts": ', f'"ts": {time}, "was": ') for line in host[::40]]
    path = write(tmp_path / "big.json", [[*odd, *host], odd, *others, odd])
    first = first_step(path, 0)
    assert first is None or first.mean_steps[0].total_ns == STEP_US * 1000


def test_names_of_threads_before_all_else(tmp_path: Path) -> None:
    name = '{"ph": "M", "name": "process_name", "pid": 40, "args": {"name": "python"}}'
    path = write(tmp_path / "big.json", [[name] * 900, *blocks(STEPS)])
    assert matches(first_of(path), *of_whole(path))


def test_a_file_of_something_else_in_its_middle(tmp_path: Path, in_blocks: Path) -> None:
    content = in_blocks.read_bytes()
    half = len(content) // 2
    path = tmp_path / "big.json"
    path.write_bytes(content[:half] + b"x" * (len(content) // 4) + content[half:])
    assert first_step(path, 0) is None


def test_flows_between_the_events(tmp_path: Path) -> None:
    host, *others = blocks(STEPS)
    flow = '{"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 0, "pid": 1, "tid": 1}'
    followed = [[line for event in of for line in (event, flow)] for of in others]
    path = write(tmp_path / "big.json", [host, *followed, [flow] * 30])
    assert matches(first_of(path), *of_whole(path))


def test_no_more_samples_are_taken_than_are_worth_it(in_blocks: Path) -> None:
    samples = Samples(OpenFile(in_blocks), in_blocks.read_bytes().index(b"[\n{") + 1)
    count = len(samples)
    assert samples.before(2**62)[0][0] < samples.last_at
    assert len(samples) < 3 * count + 2**10
    assert samples.unreadable == 0
    assert samples.categories == {"user_annotation", "cpu_op", "cuda_runtime", "kernel"}


def test_markers_of_two_threads_say_nothing(tmp_path: Path) -> None:
    host, *others = blocks(STEPS)
    other = event("user_annotation", "ProfilerStep#3", 1500, 900, tid=99)
    path = write(tmp_path / "big.json", [[*host[:5], other, *host[5:]], *others])
    assert first_step(path, 0) is None


def test_a_device_that_works_later_only(tmp_path: Path) -> None:
    late = blocks(STEPS, kernels_from=9)
    assert first_step(write(tmp_path / "named.json", late), 0) is None
    assert first_step(write(tmp_path / "unnamed.json", late, device=False), 0) is None


def test_a_host_alone(tmp_path: Path) -> None:
    host, _, _ = blocks(3 * STEPS)
    path = write(tmp_path / "big.json", [host], device=False)
    first = first_of(path)
    assert [lane.device for lane in first.mean_steps] == [None]
    assert matches(first, *of_whole(path))


def test_what_no_sample_hits_is_found_when_all_is_read(tmp_path: Path) -> None:
    host, calls, kernels = blocks(STEPS)
    hidden = event("kernel", "k0", 1000.5 + STEP_US - 700, 300, device=0, stream=8)
    middle = len(host) // 2
    path = write(tmp_path / "big.json", [host[:middle], [hidden], host[middle:], calls, kernels])
    first = first_of(path)
    assert not matches(first, *of_whole(path))


@needed
@pytest.mark.parametrize("path", [p for p in profiles() if "/kineto/" in str(p)], ids=name)
def test_what_began_before_the_end_is_all_that_a_device_needs(path: Path) -> None:
    events = EventTable.of(events_of(path))
    whole = annotated(events, captured=False)
    rank = whole.ranks()[0]
    start = whole.start_ns[whole.rows_of_rank(rank)]
    for share in (0.1, 0.5):
        end_ns = int(start[int(share * len(start))])
        window = Window(rank, 0, int(start[0]), end_ns, None)
        cut = annotated(EventTable(events.arrow.filter(whole.start_ns < end_ns)), captured=False)
        if end_ns == start[0]:
            continue
        for latency_ns in (module.LEAST_LATENCY_NS, 2**60):
            expected = {of.device: of for of in module._mean_steps(whole, window, latency_ns)}
            for lane in module._mean_steps(cut, window, latency_ns):
                assert lane.device is None or lane == expected[lane.device]

"""Several ranks as one profile.

::

    rank 0   since 100   ▆▆ mm 5…15
    rank 1   since 130     ▆▆ mm 5…15     which is 35…45 since 100
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lacking import lacks

from lstmprof.events import Profile
from lstmprof.events.table import events_table
from lstmprof.formats import sources


def profile(
    base_ns: int | None = 100, rank: int | None = None, size: int | None = None, **fields: Any
) -> Profile:
    events = events_table({"kind": ["op"], "name": ["mm"], "start_ns": [5], "dur_ns": [10]})
    given = {"rank": rank, "world_size": size}
    metadata = {name: number for name, number in given.items() if number is not None}
    return Profile(
        **{"format": "kineto", "base_ns": base_ns, "events": events, "metadata": metadata, **fields}
    )


def files(*names: str) -> list[sources.Source]:
    """The files of a folder ``job``, as they are found there."""
    label = [sources.Source(Path("job", name), raw, "", str(Path("job", name).parent))
             for name in names]  # fmt: skip
    return [source for group in sources._grouped(label) for source in group]


def raw() -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("names", "said", "expected"),
    [
        (["a.json", "b.json"], [1, 0], [1, 0]),  # what the profile says counts
        (["rank-3.json", "rank-1.json"], [None, None], [3, 1]),
        (["worker0.12.json", "worker1.13.json"], [None, None], [0, 1]),
        (["rank1.12.json", "rank1.13.json"], [None, None], None),  # two sessions of one rank
        (["a1.json", "a2.json"], [None, None], None),
        (["rank0.json", "rank1.json"], [0, 0], None),
        (["rank0.json", "rank1.json"], [0, None], None),
    ],
)
def test_ranks_are_said_by_the_profiles_or_their_names(
    names: list[str], said: list[int | None], expected: list[int] | None
) -> None:
    assert sources.ranks_of(files(*names), [profile(rank=rank) for rank in said]) == expected


@pytest.mark.parametrize(
    ("names", "said", "expected"),
    [
        (["rank0/a.json", "rank1/a.json"], [None, None], [0, 1]),
        (["rank0/a.json", "rank1/a.json"], [1, 0], [1, 0]),  # what the profile says counts
        (["rank_0/a.json", "rank_2/a.json"], [None, None], [0, 2]),
        (["worker0/a.json", "worker1/a.json"], [None, None], [0, 1]),
        (["rank0/host_71.json", "rank1/host_72.json"], [None, None], [0, 1]),
        (["node0/rank1.json", "node1/rank2.json"], [None, None], [1, 2]),
        (["node0/rank0/a.json", "node0/rank1/a.json"], [None, None], [0, 1]),
        (["node0/rank1/a.json", "node1/rank0/a.json", "node1/rank1/a.json"], [None] * 3, [0, 1, 2]),
        (["rank0/a.json", "rank1/a.json"], [0, 0], None),
        (["rank0/a1.json", "rank0/a2.json", "rank1/a1.json"], [None] * 3, None),
    ],
)
def test_ranks_in_folders_are_said_by_the_profiles_or_the_folders(
    names: list[str], said: list[int | None], expected: list[int] | None
) -> None:
    assert sources.ranks_of(files(*names), [profile(rank=rank) for rank in said]) == expected


@pytest.mark.parametrize("names", [("rank0/a.json", "rank1/a.json"), ("rank0.json", "rank1.json")])
def test_profiles_of_jobs_of_two_sizes_are_no_ranks_of_one_job(names: tuple[str, str]) -> None:
    assert sources.ranks_of(files(*names), [profile(rank=0, size=2), profile(rank=1)]) == [0, 1]
    two = [profile(rank=0, size=2), profile(rank=1, size=4)]
    assert sources.ranks_of(files(*names), two) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({(0, 1), (0, 2)}, {(0, 1), (1, 3)}, [0, 1]),
        ({(0, 2)}, {(1, 3)}, [0, 1]),
        ({(0, 1)}, {(1, 3)}, None),  # rank 1 is not in the group of which rank 0 tells
        ({(0, 1)}, set(), [0, 1]),  # an old PyTorch does not list the groups
    ],
)
def test_profiles_that_contradict_each_other_on_their_process_groups_are_no_job(
    first: set[tuple[int, int]], second: set[tuple[int, int]], expected: list[int] | None
) -> None:
    two = [
        profile(rank=rank, process_groups=frozenset(map(frozenset, groups)))
        for rank, groups in enumerate((first, second))
    ]
    assert sources.ranks_of(files("rank0/a.json", "rank1/a.json"), two) == expected


# rank 0   ▆▆ 105…115
# rank 1     ▆▆ since its base plus 5
@pytest.mark.parametrize(("base_ns", "overlaps"), [(110, True), (111, False), (None, True)])
def test_folders_of_profiles_of_two_times_are_no_job(base_ns: int | None, overlaps: bool) -> None:
    two = [profile(100), profile(base_ns)]
    said = sources.ranks_of(files("rank0/a.json", "rank1/a.json"), two)
    assert said == ([0, 1] if overlaps else None)
    assert sources.ranks_of(files("rank0.json", "rank1.json"), two) == [0, 1]


def test_profiles_of_two_profilers_are_no_ranks_of_one_job() -> None:
    two = [profile(rank=0), profile(rank=1, format="nsys")]
    assert sources.ranks_of(files("rank0.json", "rank1.sqlite"), two) is None


@pytest.mark.parametrize("format_", ["xplane", "trace_viewer"])
def test_tensorflows_hosts_are_counted(format_: str) -> None:
    hosts = [profile(format=format_), profile(format=format_)]
    assert sources.ranks_of(files("anna.xplane.pb", "bert.xplane.pb"), hosts) == [0, 1]


def test_times_count_from_the_earliest_profile() -> None:
    one = sources.join_ranks([1, 0], [profile(130), profile(100)])
    rows = one.events.select(["event_id", "rank", "start_ns", "dur_ns"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 0, 5, 10), (1, 1, 35, 10)]
    assert (one.base_ns, one.notes) == (100, ())


def test_clocks_that_cannot_be_compared_are_told() -> None:
    one = sources.join_ranks([0, 1], [profile(100), profile(None)])
    assert one.base_ns is None
    assert one.events.column("start_ns").to_pylist() == [5, 5]
    assert "separate clocks" in lacks(one)
    assert "separate clocks" not in lacks(sources.join_ranks([0, 1], [profile(0), profile(9)]))


@pytest.mark.parametrize("number", [2**31, 10**20])
def test_a_number_that_no_rank_has_makes_no_job(number: int) -> None:
    assert sources.ranks_of(files("a", "b"), [profile(rank=0), profile(rank=number)]) is None
    assert sources.ranks_of(files("rank0", f"rank{number}"), [profile(), profile()]) is None


def test_a_files_number_may_have_thousands_of_digits() -> None:
    many = files("rank0", "rank" + "9" * 5000)
    assert sources.ranks_of(many, [profile(), profile()]) is None


def test_clocks_that_are_a_lifetime_apart_are_not_compared() -> None:
    one = sources.join_ranks([0, 1], [profile(1), profile(2**63 - 1)])
    assert one.base_ns is None
    assert one.events.column("start_ns").to_pylist() == [5, 5]

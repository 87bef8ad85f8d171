"""Which files a word means, and which of them are tried as ranks of one job."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import tomllib
import uuid
from pathlib import Path

import fsspec
import pytest
from fsspec.registry import known_implementations

from lstmprof.base.errors import ProfileError, url_fault
from lstmprof.formats import raw_file, sources


def touched(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def names(word: Path | str) -> list[list[str]]:
    return [[source.name for source in group] for group in sources.groups(word)]


def test_a_file_is_itself_whatever_its_name(tmp_path: Path) -> None:
    touched(tmp_path, "odd.name")
    assert names(tmp_path / "odd.name") == [["odd.name"]]


def of_ranks(folder: Path, size: int, **ranks: int) -> Path:
    for stem, rank in ranks.items():
        info = {"backend": "nccl", "rank": rank, "world_size": size}
        content = json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": []})
        (folder / f"{stem}.json").write_text(content)
    return folder


def test_ranks_of_one_job_may_have_any_names(tmp_path: Path) -> None:
    of_ranks(tmp_path, 4, master=0, rank1=1, rank2=2, rank3=3)
    assert names(tmp_path) == [["master.json", "rank1.json", "rank2.json", "rank3.json"]]


@pytest.mark.parametrize(
    ("size", "ranks"),
    [
        (4, {"master": 0, "rank1": 1, "rank2": 2}),  # one rank is missing
        (3, {"master": 1, "rank1": 1, "rank2": 2}),  # two captures of one rank
    ],
)
def test_files_that_are_no_whole_job_stay_apart(
    size: int, ranks: dict[str, int], tmp_path: Path
) -> None:
    of_ranks(tmp_path, size, **ranks)
    assert names(tmp_path) == [["master.json"], ["rank1.json", "rank2.json"]]


def test_names_that_differ_in_digits_alone_may_be_ranks(tmp_path: Path) -> None:
    touched(
        tmp_path,
        "worker0.1694128201545.pt.trace.json",
        "worker1.1694128201556.pt.trace.json",
        "other.json",
    )
    found = names(tmp_path)
    assert [len(group) for group in found] == [1, 2]
    assert found[1][0].startswith("worker0")


def test_folders_are_jobs_of_their_own(tmp_path: Path) -> None:
    touched(tmp_path, "a/rank0.json", "a/rank1.json", "b/rank0.json")
    assert names(tmp_path) == [["rank0.json", "rank1.json"], ["rank0.json"]]


@pytest.mark.parametrize("pair", [("rank0", "rank1"), ("worker-3", "worker-12"), ("node0/rank0",
                                  "node1/rank0")])  # fmt: skip
def test_folders_of_ranks_are_one_job(pair: tuple[str, str], tmp_path: Path) -> None:
    touched(tmp_path, *(f"{run}/{of}/trace.json" for run in ("run1", "run2") for of in pair))
    assert names(tmp_path) == [["trace.json"] * 2] * 2
    first, second = sources.groups(tmp_path / "run1")[0]
    assert {first.folder, second.folder} == {f"{tmp_path}/run1/{of}" for of in pair}
    memory, place = fsspec.filesystem("memory"), f"/{uuid.uuid4()}"
    memory.pipe({f"{place}/{of}/trace.json": b"" for of in pair})
    assert [len(group) for group in sources.groups(f"memory:/{place}")] == [2]


def test_a_folder_of_a_rank_around_all_files_is_no_job(tmp_path: Path) -> None:
    touched(tmp_path / "rank7", "a/trace.json", "b/trace.json")
    assert names(tmp_path / "rank7") == [["trace.json"], ["trace.json"]]
    assert [s.numbers for group in sources.groups(tmp_path / "rank7") for s in group] == [(), ()]


def test_ranks_of_one_job_may_be_in_folders_of_any_names(tmp_path: Path) -> None:
    for size, folders in {2: ("run/anna", "run/bert"), 3: ("a/0", "a/1", "b/0")}.items():
        for rank, folder in enumerate(folders):
            (tmp_path / folder).mkdir(parents=True)
            of_ranks(tmp_path / folder, size, trace=rank)
    of_ranks(tmp_path / "a", 2, alone=0)
    assert names(tmp_path) == [["trace.json"] * 3, ["alone.json"], ["trace.json"] * 2]


def test_the_hosts_of_a_tensorboard_session_are_together_without_the_viewers_copies(
    tmp_path: Path,
) -> None:
    session = "logs/plugins/profile/2026_11_21/"
    touched(
        tmp_path,
        session + "anna.xplane.pb",
        session + "bert.xplane.pb",
        session + "anna.trace.json.gz",
        "logs/events.out.tfevents.1",
    )
    assert names(tmp_path) == [["anna.xplane.pb", "bert.xplane.pb"]]


def test_hosts_of_which_only_the_viewers_copies_are_left_are_together_too(tmp_path: Path) -> None:
    session = "plugins/profile/2026_11_21/"
    touched(tmp_path, session + "anna.trace.json.gz", session + "bert.trace.json.gz")
    assert [len(group) for group in names(tmp_path)] == [2]


def test_hidden_files_and_files_of_other_names_are_not_tried(tmp_path: Path) -> None:
    touched(tmp_path, ".cache/a.json", "b.txt")
    with pytest.raises(ProfileError, match="has no run and no profile in it"):
        sources.groups(tmp_path)


def packed(path: Path, mode: str, **members: bytes) -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            facts = tarfile.TarInfo(f"./job/{name}.json")
            facts.size = len(content)
            tar.addfile(facts, io.BytesIO(content))
        link = tarfile.TarInfo("./job/link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_is_its_files_whatever_its_name(tmp_path: Path, mode: str) -> None:
    archive = packed(tmp_path / "odd.json", mode, rank0=b"zero", rank1=b"one")
    (group,) = sources.groups(archive)
    assert [str(source.label) for source in group] == [
        f"{archive}/job/rank0.json",
        f"{archive}/job/rank1.json",
    ]
    assert [source.load().content for source in group] == [b"zero", b"one"]


def test_an_archives_member_is_read_in_another_process_without_being_sent(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar", "w", rank0=b"zero" * 10_000, rank1=b"one")
    (group,) = sources.groups(archive)
    sent = pickle.dumps(group)
    assert len(sent) < 2_000
    assert [len(source.load().content) for source in pickle.loads(sent)] == [40_000, 3]


def test_a_file_at_a_url_is_read_in_another_process(tmp_path: Path) -> None:
    touched(tmp_path, "a.json")
    ((source,),) = sources.groups(f"file://{tmp_path}/a.json")
    assert pickle.loads(pickle.dumps(source)).load().content == b"{}"


def test_an_archive_in_a_folder_is_opened_too(tmp_path: Path) -> None:
    packed(touched(tmp_path, "one.json") / "more.tar.gz", "w:gz", rank0=b"0")
    assert names(tmp_path) == [["one.json"], ["rank0.json"]]


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar", "w", rank0=b"x" * 5000)
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(ProfileError, match="tar archive is damaged"):
        sources.groups(archive)


def test_a_url_means_what_it_points_to(tmp_path: Path) -> None:
    memory, place = fsspec.filesystem("memory"), f"/{uuid.uuid4()}"
    memory.pipe({f"{place}/rank0.json": b"zero", f"{place}/rank1.json": b"one"})
    (group,) = sources.groups(f"memory:/{place}")
    assert [source.load().content for source in group] == [b"zero", b"one"]
    assert str(group[0].load().path).startswith("memory://")
    ((one,),) = sources.groups(f"memory:/{place}/rank1.json")
    assert (one.name, one.load().content) == ("rank1.json", b"one")


def test_what_a_file_at_a_url_is_its_head_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, place = fsspec.filesystem("memory"), f"/{uuid.uuid4()}.json"
    memory.pipe(place, b"{" + b" " * 2**20)
    fetched: list[int] = []
    opened = type(memory.open(place))
    read = opened.read

    def counted(file: io.BytesIO, size: int = -1) -> bytes:
        part: bytes = read(file, size)
        fetched.append(len(part))
        return part

    monkeypatch.setattr(opened, "read", counted)
    ((one,),) = sources.groups(f"memory:/{place}")
    assert 0 < sum(fetched) < 2**17
    assert len(one.load().content) == 2**20 + 1


@pytest.mark.parametrize("url", ["memory:///nothing/there.json", "nosuch://x/y.json"])
def test_a_url_with_nothing_behind_it_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ProfileError, match="check the URL"):
        [group[0].load() for group in sources.groups(url)]


def test_a_protocol_whose_package_is_missing_is_said_to_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = {"class": "no_such_package.FileSystem", "err": "Install no_such_package"}
    monkeypatch.setitem(known_implementations, "lacking", broken)
    said = r"lacking://x/y.json: cannot be reached \(Install no_such_package\); install"
    with pytest.raises(ProfileError, match=said):
        sources.groups("lacking://x/y.json")


@pytest.mark.parametrize(
    ("url", "extra"),
    [("s3://x/y", "s3"), ("gcs://x/y", "gs"), ("HTTPS://x/y", "http"), ("az://x/y", "azure")],
)
def test_a_protocol_that_an_extra_brings_is_said_to_need_that(url: str, extra: str) -> None:
    said = url_fault(url, ImportError("Install it"))
    assert said == ("Install it", f"pip install 'lstmprof[{extra}]'")
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))
    assert extra in project["project"]["optional-dependencies"]


def test_of_more_files_than_are_read_the_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched(tmp_path, "a.json", "b.json", "c.json", *(f"{n}.txt" for n in range(9)))
    assert names(tmp_path) == [["a.json"], ["b.json"], ["c.json"]]
    monkeypatch.setattr(sources, "_MOST_FILES", 2)
    for word in (tmp_path, f"file://{tmp_path}/"):
        *read, (rest,) = sources.groups(word)
        assert [source.name for group in read for source in group] == ["a.json", "b.json"]
        with pytest.raises(ProfileError, match="has 3 files; only the first 2"):
            rest.load()


def test_a_files_stamp_changes_with_its_content(tmp_path: Path) -> None:
    touched(tmp_path, "a.json")
    ((before,),) = sources.groups(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{ }")
    ((after,),) = sources.groups(tmp_path / "a.json")
    assert before.stamp != after.stamp


def test_a_file_at_a_url_that_is_larger_than_what_is_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raw_file, "MAX_BYTES", 20)
    with fsspec.open("memory://large/a.json", "wb") as file:
        file.write(b'{"traceEvents": []}  ')
    ((source,),) = sources.groups("memory://large/a.json")
    with pytest.raises(ProfileError, match="is larger than 20 bytes"):
        source.load()

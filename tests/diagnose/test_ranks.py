"""Several ranks and devices: which is spoken of, who waits for whom, what communication costs."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import kineto_documents
import pytest
import shared_traces
from diagnose.made import diagnose
from diagnose.made_job import REDUCE, STEP_NS, breakdown_of, job, rank_rows
from events.rows import Row, row
from hypothesis import given, settings, strategies as st

import lstmprof as lp
from lstmprof.base.errors import UsageError
from lstmprof.cli import run as lstmprof
from lstmprof.diagnose.diagnosis import diagnose_all
from lstmprof.diagnose.step_profile import step_profile_of
from lstmprof.diagnose.step_profile.meanwhile import Meanwhile
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions

CLOCKS = {0: 0, 1: 7_000_000, 2: 123}
#: Rank 1 comes 200 and 100 µs after the others, who come to one collective 50 µs apart.
LATE = {
    0: [[100_000, 500_000], [100_000, 500_000]],
    1: [[300_000, 600_000], [300_000, 600_000]],
    2: [[100_000, 450_000], [100_000, 500_000]],
}


def facts(folder: Path, rows: list[Any], **of_run: Any) -> dict[str, Any]:
    return diagnose(breakdown_of(folder, rows, **of_run)).to_dict()


def test_the_straggler_is_who_the_others_wait_for_and_is_spoken_of(tmp_path: Path) -> None:
    found = facts(tmp_path / "r", job(LATE, CLOCKS))
    assert found["lane"] == {"rank": 1, "device": 0, "of": 3}
    straggler = found["straggler"]
    assert (straggler["state"], straggler["certainty"]) == ("found", "measured")
    assert (straggler["rank"], straggler["device"]) == (1, 0)
    assert (straggler["steps"], straggler["late_in"], straggler["collectives"]) == (2, 2, 4)
    assert {w["rank"]: (w["waits_ns"], w["last_in"]) for w in straggler["waiters"]} == {
        0: (300_000, 0),
        1: (0, 4),
        2: (325_000, 0),
    }
    assert [(w["rank"], w["for_rank"], w["ns"]) for w in straggler["waits_for"]] == [
        (2, 1, 325_000),
        (0, 1, 300_000),
    ]
    assert any("device 0 of rank 1 only (1 of 3" in note for note in found["notes"])


def test_what_takes_the_late_rank_longer_than_the_others_is_named(tmp_path: Path) -> None:
    # of a step of 1 ms rank 1 computes 250 µs of matmul before its first collective, the others 50
    # and 90: 180 more than their median
    rows = job(LATE, CLOCKS)
    for rank, ns in ((0, 50_000), (1, 250_000), (2, 90_000)):
        for at in (CLOCKS[rank], CLOCKS[rank] + STEP_NS):
            rows.append(row("kernel", "sgemm", at, at + ns, rank=rank, device=0, stream=7))
    found = facts(tmp_path / "r", rows)
    assert found["straggler"]["rank"] == 1
    assert found["straggler"]["excess"] == {"state": "busy", "part": "gemm", "ns": 180_000}
    note = next(note for note in found["notes"] if "straggler: device 0 of rank 1" in note)
    assert "0.180 ms more per step in matmul" in note


def test_the_offsets_of_the_clocks_change_nothing(tmp_path: Path) -> None:
    one, other = (facts(tmp_path / str(n), job(LATE, c)) for n, c in enumerate(({}, CLOCKS)))
    assert one["straggler"] == other["straggler"]


def test_ranks_that_arrive_together_have_no_straggler(tmp_path: Path) -> None:
    together = {0: [[100_000], [100_000]], 1: [[100_900], [100_000]], 2: [[100_000], [100_000]]}
    found = facts(tmp_path / "r", job(together))
    assert (found["straggler"]["state"], found["straggler"]["rank"]) == ("none", None)
    assert found["lane"]["rank"] == 0


def test_ranks_that_wait_in_turn_have_no_straggler(tmp_path: Path) -> None:
    turns = {0: [[100_000, 400_000]], 1: [[200_000, 300_000]]}
    straggler = facts(tmp_path / "r", job(turns))["straggler"]
    assert (straggler["state"], straggler["certainty"]) == ("none", "likely")
    assert [w["waits_ns"] for w in straggler["waiters"]] == [100_000, 100_000]
    assert "wait for each other" in straggler["reason"]


def test_who_is_late_in_one_of_many_steps_is_no_straggler(tmp_path: Path) -> None:
    once = {0: [[100_000], [101_000], [101_000]], 1: [[400_000], [100_000], [100_000]]}
    assert facts(tmp_path / "r", job(once))["straggler"]["state"] == "none"


def without_kernels(rows: list[Row], rank: int, steps: int) -> list[Row]:
    """``rows`` without one kernel of ``rank`` in each of the first ``steps``."""
    lost = [r for r in rows if r["kind"] == "kernel" and r["rank"] == rank][: 2 * steps : 2]
    return [r for r in rows if r not in lost]


def test_another_number_of_collectives_cannot_be_looked_into(tmp_path: Path) -> None:
    found = facts(tmp_path / "r", without_kernels(job(LATE), 2, steps=2))
    straggler = found["straggler"]
    assert (straggler["state"], straggler["rank"], straggler["waiters"]) == ("unknown", None, ())
    assert "device 0 of rank 0 runs ncclDevKernel" in straggler["reason"]
    assert "2 times in step 0, and device 0 of rank 2 1 times" in straggler["reason"]
    assert any("straggler unknown: " in note for note in found["notes"])


def test_collectives_without_a_partner_hide_no_straggler_of_the_others(tmp_path: Path) -> None:
    straggler = facts(tmp_path / "r", without_kernels(job(LATE), 2, steps=1))["straggler"]
    assert (straggler["state"], straggler["rank"]) == ("found", 1)
    assert (straggler["certainty"], straggler["unmatched"]) == ("likely", 5)  # two are compared
    # per step in which they have their partners, which is one of two
    assert [w["waits_ns"] for w in straggler["waiters"]] == [300_000, 0, 300_000]
    assert straggler["steps"] == 1


def test_waits_are_per_step_that_the_ranks_share(tmp_path: Path) -> None:
    rows = job(LATE)
    quiet = [r for r in rows if r["kind"] == "step" or r["start_ns"] % 7_000_000 < STEP_NS]
    straggler = facts(tmp_path / "r", quiet)["straggler"]
    assert straggler["steps"] == 2
    assert [w["waits_ns"] for w in straggler["waiters"]] == [150_000, 0, 175_000]
    breakdown = breakdown_of(tmp_path / "s", quiet)
    assert breakdown.table("ranks").column("waits_ns").to_pylist() == [150_000, 0, 175_000]


def test_a_late_rank_leads_with_what_it_did_meanwhile(tmp_path: Path) -> None:
    apart = {0: [[100_000, 500_000]] * 2, 1: [[480_000, 900_000]] * 2}
    rows = job(apart)
    for at in range(0, 2 * STEP_NS, STEP_NS):
        for start in (100_000, 500_000):
            ns = at + start, at + start + 380_000
            rows.append(row("range", "# sparse #", *ns, rank=1, pid=1, tid=1))
    rows = [r if r["kind"] != "runtime" or r["rank"] != 1 else later(r) for r in rows]
    breakdown = breakdown_of(tmp_path / "r", rows)
    late = diagnose(breakdown)
    assert late.slow.straggler is not None
    does = Meanwhile("# sparse #", "# sparse #", 1_500_000, 1_560_000)  # but for launches
    assert late.slow.straggler.meanwhile == does
    assert late.verdict.fixes[0].name == "even out the ranks"
    assert late.verdict.fixes[0].saves_ns == 780_000
    for part in ("device 0 of rank 1 is late", "device 0 of rank 0", "0.780 ms per step"):
        assert part in late.verdict.cause
    assert late.verdict.cause.endswith("is in '# sparse #' (96 % of the wait)")
    waits = diagnose(breakdown, wanted=DiagnosisOptions(rank=0)).verdict
    assert (waits.kind, waits.fixes[0].saves_ns) == ("communication", 780_000)
    assert "for device 0 of rank 1, which is in '# sparse #'" in waits.cause


def test_a_late_rank_does_not_lead_if_the_others_would_wait_for_their_hosts(tmp_path: Path) -> None:
    # on both ranks, a call that loads code lasts from 0.5 to 0.98 ms of a step of 1 ms
    apart = {0: [[100_000, 500_000]] * 2, 1: [[480_000, 900_000]] * 2}
    rows = job(apart)
    for rank in apart:
        for step in range(2):
            ids = {"rank": rank, "correlation_id": 900 + step}
            host, at = {"pid": 1, "tid": 1}, step * STEP_NS
            ns = at + 500_000, at + 980_000
            rows.append(row("runtime", "cudaLaunchKernel", *ns, **ids, **host))
            ns = at + 985_000, at + 990_000
            rows.append(row("kernel", f"elementwise_{step}", *ns, **ids, device=0, stream=7))
    found = diagnose(breakdown_of(tmp_path / "r", rows))
    straggler = found.slow.straggler
    assert straggler is not None
    assert (straggler.rank, straggler.saved_share) == (1, 0)
    assert straggler.longest is not None
    assert straggler.longest.ns == 780_000
    assert "even out the ranks" not in {fix.name for fix in found.verdict.fixes}
    assert "late" not in found.verdict.cause
    # if the host waits for the first collective from 0.2 ms on, it makes the call 0.29 ms earlier
    for at in (0, STEP_NS):
        ns = at + 200_000, at + 490_000
        rows.append(row("runtime", "cudaStreamSynchronize", *ns, rank=0, pid=1, tid=1))
    waits = diagnose(breakdown_of(tmp_path / "s", rows)).slow.straggler
    assert waits is not None
    assert waits.saved_share == pytest.approx(290 / 780)
    alone = diagnose(breakdown_of(tmp_path / "t", job(apart))).slow.straggler
    assert alone is not None
    assert alone.saved_share == 1


def later(call: Row) -> Row:
    """A launch right before the kernel that the late rank runs."""
    start = call["start_ns"] + (470_000 if call["start_ns"] % STEP_NS == 0 else 889_980)
    return {**call, "start_ns": start, "end_ns": start + 5}


def test_ranks_that_are_late_in_turn_from_step_to_step_have_a_cause(tmp_path: Path) -> None:
    turns = {0: [[50_000], [850_000]] * 2, 1: [[850_000], [50_000]] * 2}
    rows = job(turns)
    for rank, arrivals in turns.items():
        for step, (arrival,) in enumerate(arrivals):
            ns = step * STEP_NS, step * STEP_NS + arrival
            rows.append(row("kernel", "sgemm", *ns, rank=rank, device=0, stream=7))
    diagnosis = diagnose(breakdown_of(tmp_path / "r", rows))
    straggler = diagnosis.slow.straggler
    assert straggler is not None
    assert (straggler.state, straggler.moves) == ("none", True)
    first = diagnosis.verdict.fixes[0]
    assert (first.name, first.saves_ns) == ("group by length", 400_000)
    assert diagnosis.verdict.cause == first.cause


def test_collectives_that_do_not_end_together_are_not_the_same(tmp_path: Path) -> None:
    ends = {
        0: [[300_000, 500_000, 800_000]],
        1: [[200_000, 700_000, 750_000]],
    }
    starts = [[100_000, 400_000, 600_000]]
    rows = [made for rank, stops in ends.items() for made in rank_rows(rank, starts, stops)]
    straggler = facts(tmp_path / "r", rows)["straggler"]
    assert straggler["state"] == "unknown"
    assert "0.250 ms apart" in straggler["reason"]


def test_two_groups_that_communicate_apart_are_not_taken_for_one(tmp_path: Path) -> None:
    """Ranks 0 and 1 reduce among themselves, 2 and 3 at other times: who is late is unknown."""
    groups = (
        {0: [[100_000, 400_000, 700_000]], 1: [[180_000, 480_000, 780_000]]},
        {2: [[100_000, 500_000, 600_000]], 3: [[100_000, 580_000, 640_000]]},
    )
    straggler = facts(tmp_path / "r", [made for group in groups for made in job(group)])[
        "straggler"
    ]
    assert (straggler["state"], straggler["rank"]) == ("unknown", None)


def test_ranks_of_which_no_step_is_the_same_cannot_be_looked_into(tmp_path: Path) -> None:
    straggler = facts(tmp_path / "r", job(LATE, steps={0: 5, 1: 10, 2: 5}))["straggler"]
    assert (straggler["state"], straggler["reason"]) == (
        "unknown",
        "no step was profiled on all ranks",
    )


def test_steps_that_a_rank_has_not_are_left_out(tmp_path: Path) -> None:
    straggler = facts(tmp_path / "r", job(LATE, steps={0: 5, 1: 6, 2: 5}))["straggler"]
    assert (straggler["state"], straggler["steps"]) == ("found", 1)


def test_one_rank_of_a_job_does_not_say_for_whom_it_waits(tmp_path: Path) -> None:
    alone = facts(tmp_path / "r", job({3: LATE[0]}), profile_metadata={"rank": 3, "world_size": 8})
    assert alone["lane"] == {"rank": 3, "device": 0, "of": 1}
    assert alone["straggler"]["state"] == "unknown"
    assert "1 of 8 ranks" in alone["straggler"]["reason"]


@pytest.mark.parametrize(("size", "certainty"), [(3, "measured"), (2, "likely"), (1, "measured")])
def test_in_a_job_with_groups_of_some_ranks_it_is_likely_at_best(
    tmp_path: Path, size: int, certainty: str
) -> None:
    metadata = {"ranks": {str(r): {"world_size": 3, "group_sizes": [size, 3]} for r in LATE}}
    found = facts(tmp_path / "r", job(LATE), profile_metadata=metadata)["straggler"]
    assert (found["state"], found["certainty"], found["rank"]) == ("found", certainty, 1)


def test_a_kineto_trace_says_how_large_its_process_groups_are() -> None:
    groups = [{"pg_size": 4}, {"pg_size": 2}, {"pg_size": "x"}, 7, {"pg_size": 2}]
    for listed, sizes in ((groups, [2, 4]), ({"0": 1}, None), ([], None)):
        content = kineto_documents.document(
            kineto_documents.op(1), distributedInfo={"rank": 0, "pg_config": listed}
        )
        whole = kineto_documents.as_a_whole(content)
        assert whole is not None
        assert whole["metadata"].get("group_sizes") == sizes


def test_that_not_all_ranks_were_profiled_is_said(tmp_path: Path) -> None:
    metadata = {"ranks": {str(rank): {"rank": rank, "world_size": 8} for rank in LATE}}
    found = facts(tmp_path / "r", job(LATE), profile_metadata=metadata)
    assert found["straggler"]["world_size"] == 8
    assert any("5 of the 8 ranks were not profiled" in note for note in found["notes"])


def test_a_run_of_one_device_without_collectives_has_no_lane_to_choose(tmp_path: Path) -> None:
    rows = rank_rows(None, [[]], [[]])
    rows.append(row("kernel", "sgemm", 10, 60, device=0, stream=7))
    found = facts(tmp_path / "r", rows)
    assert (found["straggler"], found["overlap"], found["notes"]) == (None, None, [])
    assert found["lane"] == {"rank": None, "device": 0, "of": 1}


@pytest.mark.parametrize(
    ("rank", "device", "lane"),
    [(2, None, (2, 0)), (0, 0, (0, 0)), (None, 0, (1, 0)), (None, 1, (0, 1)), (0, None, (0, 1))],
)
def test_another_rank_and_device_can_be_asked_for(
    tmp_path: Path, rank: int | None, device: int | None, lane: tuple[int, int]
) -> None:
    rows = [*job(LATE), row("kernel", "sgemm", 0, 900_000, rank=0, device=1, stream=7)]
    profile = step_profile_of(breakdown_of(tmp_path / "r", rows), rank, device)
    assert (profile.rank, profile.device, profile.lanes) == (*lane, 4)
    assert sum(c.ns for c in profile.contributors) == profile.length_ns == STEP_NS


def test_a_rank_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    breakdown = breakdown_of(tmp_path / "r", job(LATE))
    with pytest.raises(
        UsageError, match="r: the run has no device 1 of rank 7; the run has device 0 of rank 0"
    ):
        diagnose_all([breakdown], wanted=DiagnosisOptions(rank=7, device=1))


def test_a_rank_of_a_cpu_is_refused_in_words(tmp_path: Path) -> None:
    breakdown = breakdown_of(tmp_path / "r", [row("op", "aten::mm", 0, 900_000, pid=1, tid=1)])
    with pytest.raises(
        UsageError, match="r: the run has no rank 3; the run has one process on a CPU"
    ):
        diagnose_all([breakdown], wanted=DiagnosisOptions(rank=3))


def test_breakdown_and_diagnosis_call_a_lane_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = breakdown_of(tmp_path / "r", job(LATE)).run.path
    for verb in ("breakdown", "diagnose"):
        assert lstmprof([verb, str(run)]) == 0
        assert "device 0 of rank 1" in capsys.readouterr().out


@settings(max_examples=20)  # each is a run that is written and diagnosed: a second
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=5),
    st.sampled_from([[100], [100, 900, 100, 100]]),
)
def test_overlap_is_what_a_count_of_instants_finds(
    tmp_path_factory: pytest.TempPathFactory,
    communicates: list[tuple[int, int]],
    computes: list[tuple[int, int]],
    steps_ns: list[int],
) -> None:
    """In a profile of four steps one has a pause at its end: the clean step has none."""
    at_work = [
        {t for start, length in spans for t in range(start, start + length)}
        for spans in (communicates, computes)
    ]
    rows, begin = [], 0
    for step_ns in steps_ns:
        rows.append(row("step", "step", begin, begin + step_ns, rank=0, pid=1, tid=1))
        for number, (name, spans) in enumerate(((REDUCE, communicates), ("sgemm", computes))):
            rows += [
                row("kernel", name, begin + s, begin + s + length, rank=0, device=0, stream=stream)
                for stream, (s, length) in enumerate(spans, start=10 * number)
            ]
        begin += step_ns
    overlap = facts(tmp_path_factory.mktemp("r"), rows)["overlap"]
    assert overlap["communication_ns"] == len(at_work[0])
    assert overlap["overlapped_ns"] == len(at_work[0] & at_work[1])
    assert overlap["exposed_ns"] == len(at_work[0] - at_work[1])
    assert overlap["share"] == len(at_work[0] & at_work[1]) / len(at_work[0])


def documents(folder: Path) -> list[Path]:
    """The job as torch writes it: a Kineto trace a rank, its rank in the header."""
    folder.mkdir()
    paths = []
    for rank in LATE:
        events = [
            {
                "ph": "X",
                "name": made["name"],
                "ts": made["start_ns"] / 1000,
                "dur": made["dur_ns"] / 1000,
                **(
                    {"cat": "user_annotation", "pid": 1, "tid": 1}
                    if made["kind"] == "step"
                    else {"cat": "cuda_runtime", "pid": 1, "tid": 1}
                    if made["kind"] == "runtime"
                    else {"cat": "kernel", "pid": rank, "tid": 20}
                ),
                "args": {"correlation": made["correlation_id"] or 0, "device": rank, "stream": 20},
            }
            for made in job(LATE, CLOCKS)
            if made["rank"] == rank
        ]
        header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}}
        path = folder / f"rank{rank}.pt.trace.json"
        path.write_bytes(kineto_documents.document(*events, **header))
        paths.append(path)
    return paths


def told(*arguments: object, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert lstmprof([*map(str, arguments), "--format", "json"]) == 0
    answer: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answer


def test_ranks_in_a_folder_and_in_an_archive_are_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    paths = documents(tmp_path / "job")
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        for path in paths:
            archive.add(path, path.name)
    for target in (tmp_path / "job", tmp_path / "job.tar.gz"):
        (found,) = told("diagnose", target, capsys=capsys)
        assert found["lane"] == {"rank": 1, "device": 1, "of": 3}
        assert found["straggler"]["state"] == "found"
        (asked,) = told("diagnose", target, "--rank", 2, capsys=capsys)
        assert asked["lane"] == {"rank": 2, "device": 2, "of": 3}
        assert asked["straggler"] == found["straggler"]
        assert lp.diagnose(target, rank=2).to_dict()["lane"] == asked["lane"]
    assert lstmprof(["diagnose", str(tmp_path / "job"), "--rank", "9"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@shared_traces.needed
def test_the_ranks_of_a_real_job_wait_for_the_seventh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path))
    run = lp.read(shared_traces.FOLDER / "kineto" / "param-dlrm-8ranks.tar.gz")
    found = lp.diagnose(run).to_dict()
    assert (found["lane"], found["straggler"]["certainty"]) == (
        {"rank": 7, "device": 7, "of": 8},
        "measured",
    )
    assert max(row["skew_ns"] for row in run.table("collectives")) < 10_000
    assert sum(w["last_in"] for w in found["straggler"]["waiters"]) == 8

"""What a profile lacks: of each kind a profile that has it, beside one that has not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from events.rows import Row, row, table
from lacking import lacks

from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.breakdown import break_down, lacking
from lstmprof.breakdown.lacks import Lack, Recording, _no_gpu as no_gpu, lacks_of
from lstmprof.cli import run as lstmprof
from lstmprof.diagnose.step_profile import step_profile_of
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.recorded import Recorded, recorded
from lstmprof.runs.metadata import RunInfo, run_info
from lstmprof.runs.run import open_run, write_tables

HOST = {"pid": 1, "tid": 1}
STREAM = {"device": 0, "stream": 7}
COPY = row("memcpy", "Memcpy", 5000, 9000, **STREAM, correlation_id=1)


def op(start: int, end: int, name: str = "aten::mm", **more: Any) -> Row:
    return row("op", name, start, end, **HOST, **more)


def launch(start: int, number: int | None = None, name: str = "cudaLaunchKernel") -> Row:
    return row("runtime", name, start, start + 1000, **HOST, correlation_id=number)


def kernel(start: int, end: int, number: int | None = None, **more: Any) -> Row:
    return row("kernel", "sgemm", start, end, **{**STREAM, "correlation_id": number, **more})


def step(number: int, start: int, end: int) -> Row:
    return row("step", f"ProfilerStep#{number}", start, end, **HOST)


def counts(rows: Sequence[Row]) -> tuple[Recorded, ...]:
    return recorded(annotated(table(list(rows)), captured=False))


def told(rows: Sequence[Row], **facts: Any) -> dict[str, Lack]:
    """What a profile of these events lacks, by kind; ``facts`` are those of run.json."""
    info = run_info({"profile_format": "kineto", "base_ns": 1, **facts})
    return {lack.kind: lack for lack in lacks_of(info, counts(rows))}


#: host     |step 1------------------)|step 2------------------)
#:           [mm----) [L1)               [mm----) [L2)
#: stream 7                 [k1--)                     [k2--)
WHOLE = (
    step(1, 0, 49_000),
    *(op(1000, 9000), launch(7000, 1), kernel(20_000, 30_000, 1)),
    step(2, 50_000, 99_000),
    *(op(51_000, 59_000), launch(57_000, 2), kernel(70_000, 80_000, 2)),
)
A100 = {"accelerators": ["A100"]}


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([op(0, 9, "aten::_use_cudnn_ctc_loss")], {}),
        ([op(0, 9, "aten::cudnn_is_acceptable")], {}),
        ([op(0, 9), row("range", "torch-nn-lstm", 0, 9, **HOST)], {}),
        ([op(0, 9, "aten::cudnn_convolution")], {"source": "capture", "device": "cpu"}),
    ],
)
def test_what_a_cpu_does_too_is_no_sign_of_a_gpu(rows: list[Row], facts: dict[str, Any]) -> None:
    assert "no GPU activity" not in told(rows, **facts)


def test_a_whole_profile_lacks_nothing() -> None:
    assert told(WHOLE) == {}


@pytest.mark.parametrize(
    ("kind", "rows", "facts", "blinds"),
    [
        ("no GPU activity", [op(0, 9000), launch(2000, 1)], {}, True),
        ("no GPU activity", [op(0, 9, "aten::cudnn_convolution")], {}, True),
        ("no GPU activity", [row("range", "nccl:all_reduce", 0, 9, **HOST)], {}, True),
        ("no GPU activity", [op(0, 9), launch(2, 1, "enqueueCommand memcpyHtoDAsync")], {}, True),
        ("no GPU activity", [op(0, 9)], {**A100, "profile_format": "xplane"}, True),
        ("no GPU activity", [op(0, 9)], {"source": "capture", "device": "cuda:0"}, True),
        ("TPU not read", [op(0, 9)], {"accelerators": ["TPU 0"]}, True),
        ("no ops or kernels of the program", [launch(0, 1, "cudaGetDeviceCount")], A100, True),
        ("GPU unused or not recorded", [op(0, 9)], A100, False),
        ("no kernels", [launch(0, 2), op(0, 9000), COPY], {}, True),
        ("only copies", [launch(0, 1, "cudaMemcpyAsync"), op(0, 9000), COPY], {}, False),
        ("no host", [kernel(0, 9)], {}, True),
        ("no launches", [op(0, 9), kernel(5, 9)], {}, True),
        ("no framework ops", [launch(0, 1), kernel(5, 9, 1)], {}, False),
        ("ranges without ops", [row("range", "train", 0, 9, **HOST)], {}, False),
        ("no step markers", WHOLE[1:4], {}, False),
    ],
)
def test_what_is_not_there_is_told(
    kind: str, rows: list[Row], facts: dict[str, Any], blinds: bool
) -> None:
    lack = told(rows, **facts)[kind]
    assert lack.blinds == blinds
    assert lack.kind == next(iter(told(rows, **facts))), "the gravest is first"


@pytest.mark.parametrize("facts", [{}, {"device": "cpu", "source": "capture"}, {**A100}])
def test_a_cpu_run_lacks_no_gpu(facts: dict[str, Any]) -> None:
    assert not any(lack.blinds for lack in told([step(1, 0, 9000), op(0, 9000)], **facts).values())


def test_a_gpu_that_was_given_nothing_was_not_used() -> None:
    rows = [op(0, 9000), launch(2000, 1, "cudaGetDeviceCount")]
    assert "probably ran on the CPU" in told(rows, **A100)["GPU unused or not recorded"].sentence


def test_advice_that_is_one_for_host_and_device_is_given_once() -> None:
    rows = [launch(0, 1, "cudaGetDeviceCount")]
    lack = told(rows, **A100, profile_format="nsys")["no ops or kernels of the program"]
    assert lack.sentence.endswith("; profile with nsys profile --trace=cuda,nvtx")
    assert lack.sentence.count("--trace") == 1


def test_the_reason_is_the_profilers_where_it_tells() -> None:
    rows = [op(0, 9000), launch(2000, 1)]
    assert "another profiler used CUPTI" in told(rows)["no GPU activity"].sentence
    said = told(rows, gpu_complaint="CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")["no GPU activity"]
    assert "the profiler logged: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in said.sentence
    counters = row("range", "sgemm", 0, 9, **STREAM)
    assert "hardware counters" in told([*rows, counters])["no GPU activity"].sentence


def test_activities_lost_at_the_start_in_between_and_at_the_end() -> None:
    # host     [L1)[L2)   [L3)  [L4)  [L5)       [L6)
    # stream 7               [k3)        [k5)
    starts = {1: 0, 2: 10_000, 3: 30_000, 4: 40_000, 5: 50_000, 6: 90_000}
    calls = [launch(start, number) for number, start in starts.items()]
    (has,) = counts([*calls, kernel(32_000, 33_000, 3), kernel(52_000, 53_000, 5)])
    assert (has.kernel_launches, has.lost, has.lost_first, has.lost_last) == (6, 4, 2, 1)
    assert (has.lost_first_ns, has.lost_last_ns) == (30_000, 1000)
    lacks = told([*calls, kernel(32_000, 33_000, 3), kernel(52_000, 53_000, 5)])
    assert lacks["first kernels missing"].share == pytest.approx(30 / 91)
    assert lacks["last kernels missing"].sentence.startswith("1 of 6 kernel launches has")
    assert lacks["some kernels missing"].share == pytest.approx(1 / 6)


def test_one_lost_activity_of_thousands_is_not_worth_a_line() -> None:
    pairs = [
        event
        for n in range(1, 500)
        for event in (launch(2000 * n, n), kernel(2000 * n + 1000, 2000 * n + 1900, n))
    ]
    (has,) = counts([*pairs, launch(1_000_500, 777)])
    assert has.lost == 1
    assert not [kind for kind in told([*pairs, launch(1_000_500, 777)]) if "lost" in kind]


def test_launches_into_a_graph_that_is_captured_run_nothing() -> None:
    # host     [Begin)[L9)[End)  [L1)
    # stream 7                       [k1)
    rows = [
        launch(0, name="cudaStreamBeginCapture"),
        launch(2000, 9),
        launch(4000, name="cudaStreamEndCapture"),
        *(launch(8000, 1), kernel(10_000, 20_000, 1)),
    ]
    (has,) = counts(rows)
    assert (has.kernel_launches, has.lost) == (1, 0)
    (has,) = counts([*rows, launch(6000, 10)])
    assert (has.kernel_launches, has.lost, has.lost_first) == (2, 1, 1)


def test_a_driver_call_within_a_runtime_call_is_no_launch_of_its_own() -> None:
    inner = row("runtime", "cuLaunchKernel", 7100, 7900, **HOST, correlation_id=11)
    assert counts([*WHOLE, inner]) == tuple(
        Recorded(**{**asdict(has), "runtime_calls": has.runtime_calls + 1}) for has in counts(WHOLE)
    )


def test_activities_that_were_launched_before_the_profile_began() -> None:
    early = kernel(0, 5000, 77)
    said = told([*WHOLE, early])["kernels without a launch call"]
    assert (said.share, said.blinds) == (pytest.approx(1 / 3), False)
    assert "were launched before the profile begins" in said.sentence
    late = kernel(90_000, 95_000, 77)
    assert (
        "the profile was trimmed" in told([*WHOLE, late])["kernels without a launch call"].sentence
    )


def test_no_call_launches_the_migrations_of_managed_memory() -> None:
    moved = [
        row("memcpy", "Memcpy UVM HtoD (Unknown -> Unknown)", start, start + 9, **STREAM)
        for start in range(21_000, 29_000, 100)
    ]
    assert told([*WHOLE, *moved]) == {}
    (has,) = counts([*WHOLE, *moved])
    assert (has.activities, has.migrations, has.unlaunched) == (82, 80, 0)
    early = kernel(0, 5000, 77)
    said = told([*WHOLE, *moved, early])["kernels without a launch call"]
    assert said.sentence.startswith("1 of 3 GPU activities were launched before")


def test_activities_of_one_stream_that_overlap() -> None:
    # stream 7  [k1----------)
    #               [k2)  [k3-----)      k2 and k3 began within k1
    rows = [
        *(launch(0, 1), launch(1000, 2), launch(2000, 3)),
        *(kernel(10_000, 50_000, 1), kernel(20_000, 30_000, 2), kernel(40_000, 70_000, 3)),
    ]
    (has,) = counts(rows)
    assert (has.overlaps, has.overlap_ns, has.activity_ns) == (2, 20_000, 80_000)
    assert told(rows)["activities that overlap"].share == pytest.approx(0.25)


@pytest.mark.parametrize(
    "second",
    [
        kernel(20_000, 30_000, 2, stream=8),
        kernel(20_000, 30_000, 2, stream=None),
        kernel(20_000, 30_000, 2, device=1),
        kernel(49_500, 60_000, 2),  # times of whole microseconds
        kernel(20_000, 30_000, 1),  # of one call: branches of a graph
    ],
)
def test_activities_that_may_run_at_once_do_not_overlap(second: Row) -> None:
    rows = [launch(0, 1), launch(1000, 2), kernel(10_000, 50_000, 1), second]
    assert [(has.overlaps, has.overlap_ns) for has in counts(rows)] == [(0, 0)]


def test_what_the_profiler_recorded_besides_costs_the_host_time() -> None:
    frame = row("python", "forward", 500, 9500, **HOST)
    assert (
        "Python stacks (1 frames recorded)"
        in told([*WHOLE, frame])["recording that slows the run"].sentence
    )
    settings = {"profile_memory": 1, "record_shapes": 1, "with_stack": 0}
    said = told(WHOLE, profile_metadata=settings)["recording that slows the run"].sentence
    assert "allocations and input shapes" in said
    assert "recording that slows the run" not in told(WHOLE, profile_metadata={"with_stack": 0})
    captured = told(WHOLE, profile_metadata=settings, source="capture", device="cuda:0")
    assert "recording that slows the run" not in captured, "there its effect is measured"


def test_ops_outside_the_marked_steps_are_none_of_them() -> None:
    rows = [step(1, 0, 5000), op(9000, 9500)]
    assert (
        "in the marked steps" in told([*rows, step(2, 6000, 7000)])["ranges without ops"].sentence
    )
    assert "ranges without ops" not in told([step(1, 0, 5000), op(1000, 2000)])


def test_steps_without_activities_without_markers_and_others_than_were_timed() -> None:
    stub = step(3, 99_000, 99_900)
    said = told([*WHOLE, stub])["steps without activities"]
    assert (said.share, "first: step 3" in said.sentence) == (pytest.approx(1 / 3), True)
    gap = told([*WHOLE, step(5, 99_000, 99_900), kernel(99_500, 99_600, 3), launch(99_100, 3)])
    assert gap["missing steps"].share == pytest.approx(2 / 5)
    captured = {"source": "capture", "device": "cuda:0"}
    assert "another number of steps" in told(WHOLE, profiled_wall_ns=[1, 2, 3], **captured)
    assert told(WHOLE, profiled_wall_ns=[1, 2], **captured) == {}


def test_of_several_ranks_the_one_that_lacks_most_is_told() -> None:
    ranks = [Recorded(rank=r, steps=1, ops=1, ops_in_steps=1, bare_steps=0) for r in range(3)]
    lost = {"activities": 10, "kernels": 10}
    ranks = [
        Recorded(**{**asdict(has), **lost, "unlaunched": n})
        for has, n in zip(ranks, (0, 2, 5), strict=True)
    ]
    (lack,) = lacks_of(RunInfo(base_ns=1), ranks)
    assert (lack.ranks, lack.share) == ((2, 1), 0.5)
    assert lack.sentence.startswith("rank 2 (likewise 1): 5 of 10 GPU activities")
    (of_one,) = lacks_of(RunInfo(base_ns=1), ranks, rank=1)
    assert (of_one.ranks, of_one.share) == ((), 0.2)
    assert lacks_of(RunInfo(base_ns=1), ranks, rank=0) == ()
    assert [lack.kind for lack in lacks_of(RunInfo(), ranks, rank=0)] == ["separate clocks"]


def made(folder: Path, rows: Sequence[Row], **facts: Any) -> Path:
    folder.mkdir()
    events = annotated(table(list(rows)), captured=False)
    write_tables(folder, run_info({"name": "mine", "source": "ingest", **facts}), events)
    return folder


def test_breakdown_and_diagnose_show_it_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "mine", [op(0, 9000), launch(2000, 1)], notes=["one was left out"])
    for command in (["breakdown"], ["diagnose"], ["diagnose", "--format", "markdown"]):
        assert lstmprof([*command, str(run)]) == 0
        assert capsys.readouterr().out.count("no GPU activity") >= 1
    kinds = ["no GPU activity", "no step markers", "note"]
    for verb in ("breakdown", "diagnose"):
        assert lstmprof([verb, str(run), "--format", "json"]) == 0
        said = json.loads(capsys.readouterr().out)
        rows = said["lacks"] if verb == "breakdown" else said[0]["lacks"]
        assert [row["kind"] for row in rows] == kinds
        assert {"run", "sentence", "share", "hides", "blinds", "ranks"} <= set(rows[0])


def test_a_run_of_an_older_version_is_counted_when_it_is_read(tmp_path: Path) -> None:
    old, new = (
        made(tmp_path / "old", WHOLE),
        made(tmp_path / "new", WHOLE, recorded=[asdict(has) for has in counts(WHOLE)]),
    )
    both = [break_down(open_run(folder)) for folder in (old, new)]
    assert both[0].recorded == both[1].recorded == counts(WHOLE)
    assert [row["kind"] for row in lacking(both)] == []


def test_named_steps_are_steps(tmp_path: Path) -> None:
    rows = [row("range", "batch", 0, 49_000, **HOST), *WHOLE[1:4]]
    run = open_run(made(tmp_path / "mine", rows))
    assert "no step markers" in [lack.kind for lack in break_down(run).lacks]
    assert break_down(run, "batch").lacks == ()
    assert step_profile_of(break_down(run, "batch")).lacks == ()


#: What the real profiles lack, read from the files themselves; the commonest are left out.
OF_REAL = {
    "kineto/cp-a100-zero-kernels.json.gz": [
        "GPU unused or not recorded",
        "recording that slows the run",
    ],
    "kineto/hm-no-kernels.json": ["no ops or kernels of the program"],
    "kineto/hta-cpu-only.json.gz": ["ranges without ops"],
    "kineto/hta-cupti-counters.json.gz": ["no GPU activity"],
    "kineto/hta-large-int.json.gz": ["no launches"],
    "kineto/hta-mi250-rocm62.json.gz": ["recording that slows the run", "steps without activities"],
    "kineto/hta-no-rank.json.gz": ["no GPU activity"],
    "kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz": [],
    "kineto/ptbench-a100-memcpy-only.json.gz": ["only copies"],
    "kineto/tl-mi210-gpu-only.json.gz": ["no framework ops"],
    "kineto/wd-gpuonly-a4000.json.gz": ["no framework ops"],
    "kineto/zoology-a100-launch-no-kernel.json.gz": [
        "no GPU activity",
        "recording that slows the run",
    ],
    "more/kineto/hta-mtia-inference.json.gz": ["no GPU activity", "note"],
    "more/kineto/hta-negative-queue.json.gz": [
        "kernels without a launch call",
        "recording that slows the run",
    ],
    "nsys/h100-2gpu-1s.sqlite": ["last kernels missing", "kernels without a launch call"],
    "nsys/h200-nvfuser.sqlite": ["ranges without ops"],
    "nsys/no-cuda-fortran.sqlite": ["only copies", "no framework ops"],
    "nsys/titanrtx-nvtx-only.sqlite": ["GPU unused or not recorded", "ranges without ops"],
    "tf/cpu-macos-mit.xplane.pb": [],
    "tf/tpu-inference.xplane.pb": ["TPU not read"],
    "tf1/cpu-mnist-step1.json": [],
    "tf1/gpu-matmul.json": ["no launches"],
    "tf1/sagemaker-tf.trace.json.gz": ["no GPU activity"],
}


@shared_traces.needed
@pytest.mark.parametrize("name", OF_REAL)
def test_what_real_profiles_lack(name: str) -> None:
    try:
        profile = formats.read(shared_traces.FOLDER / name)
    except ProfileError as refusal:
        pytest.skip(str(refusal))
    assert [kind for kind in lacks(profile) if kind != "no step markers"] == OF_REAL[name]


@pytest.mark.parametrize(("named", "word"), [("ARTEMIS", "device"), ("NVIDIA H100", "GPU")])
def test_what_is_no_gpu_is_not_called_one(named: str, word: str) -> None:
    facts = {**A100, "accelerators": [named]}
    said = told([op(0, 9000), launch(2000, 1)], **facts)["no GPU activity"].sentence
    assert f"no {word} activity" in said


@pytest.mark.parametrize(
    ("has", "said"),
    [
        (Recorded(gpu_ops=2), "2 calls went to GPU-only libraries"),
        (Recorded(), "the program could use a GPU"),
        (Recorded(handed_over=1, gpu_ops=2), "1 call started work on a GPU"),
    ],
)
def test_what_says_that_a_gpu_had_work_is_named(has: Recorded, said: str) -> None:
    assert said in no_gpu(Recording(has, RunInfo()))

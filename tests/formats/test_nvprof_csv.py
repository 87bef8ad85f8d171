"""nvprof's traces as CSV, a few lines each.

The first, in µs after 430 ms::

    calls      copy 0–9   memset 20–25   launch 30–37   launch 40–47   synchronize 50–140
    stream 7      10–11.536     26–27.888
    stream 13                              40–102.5        110–130.25
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lstmprof as lp
from lstmprof import formats
from lstmprof.cli import run as lstmprof
from lstmprof.errors import ForeignFileError, ProfileError

HEAD = """step 0, loss 2.3
==2119== NVPROF is profiling process 2119, command: python train.py
==2119== Profiling application: python train.py
==2119== Profiling result:
"""
TRACE = """\
"Start","Duration","Grid X","Size","Throughput","SrcMemType","DstMemType","Device","Context",\
"Stream","Name","Correlation_ID"
ms,us,,MB,GB/s,,,,,,,
430.000000,9.000000,,,,,,,,,"cudaMemcpyAsync",270
430.010000,1.536000,,0.000125,0.07,"Pageable","Device","Tesla V100 (0)","1","7",\
"[CUDA memcpy HtoD]",270
430.020000,5.000000,,,,,,,,,"cudaMemsetAsync",272
430.026000,1.888000,,0.000980,0.50,"Device",,"Tesla V100 (0)","1","7","[CUDA memset]",272
430.030000,7.000000,,,,,,,,,"cudaLaunchKernel_v7000",275
430.040000,62.500000,4,,,,,"Tesla V100 (0)","1","13","volta_sgemm_128x64_nn",275
430.040000,7.000000,,,,,,,,,"cudaLaunchKernel_v7000",276
430.110000,20.250000,20,,,,,"Tesla V100 (0)","1","13","void LSTM<float, 4>(int, int)",276
430.050000,90.000000,,,,,,,,,"cudaDeviceSynchronize",277
"""
#: Of CUDA 7 on a program of seconds: no column for the correlation, none for memory.
OLD = """\
"Start","Duration","Size","Throughput","Device","Context","Stream","Name"
s,us,KB,GB/s,,,,
1.205000,48.100000,,,"GeForce GTX 680 (1)","1","7","void sgemm<float>(float*) [115]"
1.205049,2.100000,98.000000,5.9,"GeForce GTX 680 (1)","1","7","[CUDA memcpy DtoH]"
"""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def events(path: Path) -> list[dict[str, Any]]:
    columns = ["kind", "name", "start_ns", "dur_ns", "pid", "tid", "device", "stream"]
    columns += ["correlation_id", "bytes"]
    rows: list[dict[str, Any]] = formats.read(path).events.select(columns).to_pylist()
    return sorted(rows, key=lambda row: (row["start_ns"], row["kind"]))


def test_activities_and_their_calls_are_read(tmp_path: Path) -> None:
    profile = formats.read(written(tmp_path, HEAD + TRACE))
    assert (profile.format, profile.base_ns) == ("nvprof", None)
    assert profile.device_names == {0: "Tesla V100"}
    assert not any("left out" in note or "rounded" in note for note in profile.notes)
    read = events(tmp_path / "trace.csv")
    assert [(row["kind"], row["name"], row["start_ns"], row["dur_ns"]) for row in read] == [
        ("runtime", "cudaMemcpyAsync", 0, 9_000),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", 10_000, 1_536),
        ("runtime", "cudaMemsetAsync", 20_000, 5_000),
        ("memset", "Memset (Device)", 26_000, 1_888),
        ("runtime", "cudaLaunchKernel", 30_000, 7_000),
        ("kernel", "volta_sgemm_128x64_nn", 40_000, 62_500),
        ("runtime", "cudaLaunchKernel", 40_000, 7_000),
        ("runtime", "cudaDeviceSynchronize", 50_000, 90_000),
        ("kernel", "void LSTM<float, 4>(int, int)", 110_000, 20_250),
    ]
    assert [row["correlation_id"] for row in read] == [270, 270, 272, 272, 275, 275, 276, 277, 276]
    assert [row["bytes"] for row in read if row["bytes"]] == [131, 1028]
    assert {(row["pid"], row["tid"]) for row in read if row["kind"] == "runtime"} == {(2119, None)}
    assert {row["stream"] for row in read if row["kind"] == "kernel"} == {13}


def test_every_nanosecond_of_it_is_accounted_for(tmp_path: Path) -> None:
    run = lp.read(written(tmp_path, HEAD + TRACE))
    ledger = run.ledger().rows()
    assert sum(row["ns"] for row in ledger) == 140_000
    busy = {row["part"]: row["ns"] for row in ledger if row["state"] == "busy"}
    assert busy == {"gemm": 62_500, "rnn": 20_250, "transfer": 1_536, "memset": 1_888}
    assert {row["name"]: row["count"] for row in run.table("launches").rows()} == {
        "cudaLaunchKernel": 2,
        "cudaMemcpyAsync": 1,
        "cudaMemsetAsync": 1,
    }


def test_an_old_trace_has_its_correlation_in_the_name(tmp_path: Path) -> None:
    profile = formats.read(written(tmp_path, OLD, "old.txt"))
    kernel, copy = events(tmp_path / "old.txt")
    assert (kernel["name"], kernel["correlation_id"]) == ("void sgemm<float>(float*)", 115)
    assert (copy["name"], copy["start_ns"], copy["bytes"]) == ("Memcpy DtoH", 49_000, 100_352)
    assert profile.device_names == {1: "GeForce GTX 680"}
    assert any("start times are rounded to 1,000 ns" in note for note in profile.notes)


def test_lines_that_are_no_event_are_counted(tmp_path: Path) -> None:
    more = 'loss 2.1\n"Device","Kernel","Metric"\n-1,2,,"x"\n430.1,nan,,,,,,"V100 (0)",1,7,"k",1\n'
    more += '430.200000,1.000000,,,,,,"Tesla V100 (0)","1","7","[Unified Memory page faults]",\n'
    more += '==2119== Warning: 1 record\n\n430.300000,1.000000,,,,,,"Tesla V1'
    profile = formats.read(written(tmp_path, HEAD + TRACE + more))
    assert len(profile.events) == 9
    assert any(note.startswith("6 lines were left out") for note in profile.notes)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (TRACE.replace("ms,us,", "ms,hours,"), "column Duration has no time unit"),
        (TRACE.splitlines()[0] + "\n", "column Start has no time unit"),
        ("\n".join(TRACE.splitlines()[:2]), "has no GPU activity and no CUDA call"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=fault):
        formats.read(written(tmp_path, text))


def test_what_nvprof_prints_for_people_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path, HEAD + "   Start  Duration  Grid Size      Name\n430ms 2us (1) k [5]\n"
    )
    with pytest.raises(ForeignFileError, match=r"text summary.*record with .*--csv"):
        formats.read(path)
    assert lstmprof(["check", str(path)]) == 1
    assert "nvprof" in capsys.readouterr().err


def test_a_kernel_says_what_it_was_launched_with(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """\
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z",\
"Registers Per Thread","Static SMem","Dynamic SMem","Size","Device","Stream","Name","Correlation_ID"
us,us,,,,,,,,KB,KB,KB,,,,
1.0,2.0,4,1,1,64,2,1,20,1.500000,0.500000,,"Tesla V100 (0)","7","gemm",3
9.0,2.0,,,,,,,,,,98.0,"Tesla V100 (0)","7","[CUDA memcpy DtoH]",4
""",
    )
    read = formats.read(path).events.select(["kind", "launch_config"]).to_pylist()
    assert {row["kind"]: row["launch_config"] for row in read} == {
        "kernel": '{"grid":[4,1,1],"block":[64,2,1],"registers":20,"shared_bytes":2048,'
        '"dynamic_shared_bytes":512}',
        "memcpy": None,
    }

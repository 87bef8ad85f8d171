"""xprof on the same XPlane files. docs/peers.md explains what differs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import shared_traces
from peers import accounts

xprof = accounts.peer("xprof.convert.raw_to_tool_data", "xprof")

pytestmark = [shared_traces.needed, pytest.mark.filterwarnings("ignore:::xprof")]

on_each_file = pytest.mark.parametrize(
    "path",
    [p for p in shared_traces.profiles() if p.match("tf/*.xplane.pb")],
    ids=shared_traces.name,
)
#: Reading rounds both ends of an activity from picoseconds to whole nanoseconds.
EACH_NS = 1.0


def stated(tool: str, path: Path, scratch: Path) -> list[dict[str, Any]]:
    """The rows of xprof's first table; it writes its cache beside the file, so beside a copy."""
    copied = shutil.copy(path, scratch)
    content, _ = xprof.xspace_to_tool_data([str(copied)], tool, {"use_saved_result": False})
    table = json.loads(content)
    table = table[0] if isinstance(table, list) else table
    columns = [column["id"] for column in table["cols"]]
    cells = [[cell.get("v") for cell in row["c"]] for row in table["rows"]]
    return [dict(zip(columns, row, strict=True)) for row in cells]


def device_ops(path: Path, scratch: Path) -> dict[str, float]:
    """By name, xprof's self time of the device's ops in ns, ``IDLE`` among them."""
    rows = stated("framework_op_stats", path, scratch)
    on_device = [row for row in rows if row["host_or_device"] == "Device"]
    return {row["operation"]: row["total_self_time"] * 1000 for row in on_device}


@on_each_file
def test_every_kernel_ran_as_often_and_as_long(path: Path, tmp_path: Path) -> None:
    ours = accounts.by_name(accounts.chosen(accounts.events_of(path), {"kernel"}))
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for row in stated("kernel_stats", path, tmp_path):  # one a name, grid, registers and op
        counts[row["kernel_name"]] += row["occurrences"]
        totals[row["kernel_name"]] += row["total_duration_us"] * 1000
    assert counts == {name: count for name, (count, _) in ours.items()}
    for name, (count, total_ns) in ours.items():
        assert totals[name] == pytest.approx(total_ns, abs=EACH_NS * count)


@on_each_file
def test_ops_and_idleness_fill_the_span_of_each_device(path: Path, tmp_path: Path) -> None:
    rows = accounts.chosen(accounts.events_of(path))
    if not rows:
        pytest.skip("no activity of a GPU")
    spans = [
        accounts.span([row for row in rows if row["device"] == device])
        for device in {row["device"] for row in rows}
    ]
    theirs = device_ops(path, tmp_path)
    lengths = sum(window.end_ns - window.start_ns for window in spans)
    assert sum(theirs.values()) == pytest.approx(lengths, abs=EACH_NS * len(spans))


@on_each_file
def test_ops_have_the_same_kernel_time(path: Path, tmp_path: Path) -> None:
    """A fusion without a path in the HLO module has its instruction's name in xprof alone."""
    kernels = accounts.chosen(accounts.events_of(path), {"kernel"})
    named = accounts.by_name([row for row in kernels if row["op_name"]], "op_name")
    ours = {op: total_ns for op, (_, total_ns) in named.items()}
    if not ours:
        pytest.skip("no kernel of a GPU that names its op")
    theirs = device_ops(path, tmp_path)
    del theirs["IDLE"]
    if not theirs:
        pytest.skip("xprof knows no op of this file's kernels")
    slack_ns = EACH_NS * len(kernels)
    assert sum(ours.values()) == pytest.approx(sum(theirs.values()), abs=slack_ns)
    instructions = theirs.keys() - ours.keys()
    assert not any("/" in op for op in instructions)
    if instructions:
        assert all(theirs[op] <= total_ns + slack_ns for op, total_ns in ours.items())
    else:
        assert theirs == pytest.approx(ours, abs=slack_ns)


def test_differences_in_numbers(tmp_path: Path) -> None:
    files = {path.name.partition(".")[0]: path for path in shared_traces.profiles()}
    idle = device_ops(files["bert-8xv100-multiworker"], tmp_path)
    assert {op: round(ns / 1000) for op, ns in idle.items()} == {"IDLE": 623_196}
    fused = device_ops(files["jax-te-fused-attn"], tmp_path)
    del fused["IDLE"]
    fusions = [ns for op, ns in fused.items() if "/" not in op]
    assert len(fusions) == 4
    assert [round(sum(each) / 1000) for each in (fusions, fused.values())] == [636, 12_134]
    gemm = "jit(dot)/dot_general"
    (theirs,) = (
        row["occurrences"]
        for row in stated("framework_op_stats", files["jax-mi300-gemm"], tmp_path)
        if row["operation"] == gemm and row["host_or_device"] == "Device"
    )
    kernels = accounts.chosen(accounts.events_of(files["jax-mi300-gemm"]), {"kernel"})
    assert (theirs, sum(row["op_name"] == gemm for row in kernels)) == (3, 18)


def test_a_damaged_file_gives_nothing(tmp_path: Path) -> None:
    (path,) = (p for p in shared_traces.profiles() if p.name.startswith("tpu-inference-utf8"))
    copied = shutil.copy(path, tmp_path)
    content, _ = xprof.xspace_to_tool_data(
        [str(copied)], "kernel_stats", {"use_saved_result": False}
    )
    assert content is None

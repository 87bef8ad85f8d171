"""XSpaces of ten events or fewer, one for each trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.spaces import Event, Space
from lacking import lacks

from lstmprof.base.errors import ProfileError
from lstmprof.events import DeviceFacts, Profile
from lstmprof.formats import read, xplane
from lstmprof.formats.xplane import schema
from lstmprof.formats.xplane.events import (
    activity_kind,
    hlo_proto,
    host_kind,
    launched_with,
    op_name,
)


def column(profile: Profile, name: str) -> list[Any]:
    return list(profile.events[name].to_pylist())


def test_launch_and_kernel_meet_on_one_clock(tmp_path: Path) -> None:
    # ns          1000       1100     1200     1300      2000
    # python       |-step--------------------------------->|
    # python            |-MatMul:MatMul----|
    # python                 |-cuLaunchKernel (9)->|
    # Stream #14                       |-gemm (9)-->|             its line starts at 900
    # Steps                            |-0--------->|             derived: left out
    space = Space()
    host = space.plane("/host:CPU")
    space.line(
        *(host, "python", 1000),
        ("step", 0, 1_000_000, {"step_num": 4, "_r": 1}),
        ("dense/MatMul:MatMul", 100_000, 200_400, {"shape": "(half[2,3];float[])"}),
        ("cuLaunchKernel", 150_000, 150_000, {"correlation_id": 9}),
        id=77,
    )
    facts = {"compute_cap_major": 9, "compute_cap_minor": 0, "core_count": 132}
    gpu = space.plane("/device:GPU:1", {"device_type_string": "NVIDIA H100", **facts})
    details = {"kernel_details": b"regs:38 shm:0", "tf_op": b"dense/MatMul:MatMul"}
    space.line(
        gpu, "Stream #14(Compute)", 900, ("gemm", 300_600, 99_000, {"correlation_id": 9} | details)
    )
    for derived in ("Steps", "TensorFlow Ops", "XLA Modules", "Framework Name Scope"):
        space.line(gpu, derived, 900, ("0", 300_600, 99_000, {}))
    space.plane("Task Environment", {"profile_start_time": 1_795_258_748_873_578_061})
    profile = space.read(tmp_path)

    assert column(profile, "kind") == ["step", "op", "runtime", "kernel"]
    assert column(profile, "start_ns") == [0, 100, 150, 201]
    assert column(profile, "dur_ns") == [1000, 200, 150, 99]
    assert profile.base_ns == 1_795_258_748_873_578_061 + 1000
    assert column(profile, "tid") == [77, 77, 77, None]
    assert column(profile, "device") == [None, None, None, 1]
    assert column(profile, "stream") == [None, None, None, 14]
    assert column(profile, "correlation_id") == [None, None, 9, 9]
    assert column(profile, "op_name")[3] == "dense/MatMul:MatMul"
    assert column(profile, "shapes")[1] == "[[2,3],[]]"
    assert column(profile, "dtypes")[1] == '["half","float"]'
    assert profile.device_names == {1: "NVIDIA H100"}
    assert profile.device_facts == {1: DeviceFacts("9.0", 132, None)}
    assert profile.metadata["threads"] == {"77": "python"}
    assert profile.notes == ()


@pytest.mark.parametrize(
    ("name", "stats", "kind"),
    [
        ("step", {"step_num": 1}, "step"),
        ("train", {"step_num": 1, "_r": 1}, "step"),
        ("train", {}, "op"),
        ("step", {"tf_function_call": "notTraced"}, "op"),  # a tf.function of that name
        ("forward", {}, "range"),
        ("program", {}, "range"),
        ("forward", {"tf_function_call": "notTraced"}, "op"),
        ("$model.py:12 call", {}, "python"),
        ("hipLaunchKernel", {}, "runtime"),
        ("cuMemcpyHtoDAsync_v2", {}, "runtime"),
        ("hsa_signal_wait_scacquire", {}, "runtime"),
        ("custom-call.1", {}, "op"),
        ("cudnn_rnn:CudnnRNNV3", {}, "op"),
        ("void gemm<float>()", {"correlation_id": 3}, "runtime"),  # TensorFlow before 2.5
        ("while/body/MatMul:MatMul", {}, "op"),
        ("ThreadpoolListener::Record", {}, None),
        ("ExecutorState::Process", {}, None),
        ("ExecutorDoneCallback", {}, None),
    ],
)
def test_host_kinds(name: str, stats: dict[str, Any], kind: str | None) -> None:
    assert host_kind(name, stats) == kind


@pytest.mark.parametrize(
    ("name", "stats", "kind"),
    [
        ("gemm", {"kernel_details": ""}, "kernel"),
        ("__amd_rocclr_copyBuffer.kd", {"kernel_details": ""}, "kernel"),
        ("MemcpyH2D", {}, "memcpy"),
        ("CopyDeviceToDevice", {"memcpy_details": "size:8"}, "memcpy"),
        ("Memset 32-bit", {}, "memset"),
        ("fill", {"memset_details": "size:8"}, "memset"),
        ("MemoryResidency", {"memory_residency_details": ""}, None),
        ("unnamed", {}, "kernel"),
    ],
)
def test_activity_kinds(name: str, stats: dict[str, Any], kind: str | None) -> None:
    assert activity_kind(name, stats) == kind


@pytest.mark.parametrize(
    ("stats", "op"),
    [
        ({"tf_op": "a:MatMul", "hlo_op": "dot"}, "a:MatMul"),
        ({"tf_op": "XlaModule:", "name": "jit(f)/dot", "hlo_op": "dot"}, "jit(f)/dot"),
        ({"level 0": "call:Call", "level 1": "a:Mul", "annotation": "x"}, "a:Mul"),
        ({"annotation": "a:Mul#shape=(float[2])#"}, "a:Mul"),
        ({"hlo_op": "fusion.1"}, "fusion.1"),
        ({}, None),
    ],
)
def test_op_names(stats: dict[str, Any], op: str | None) -> None:
    assert op_name(stats) == op


def with_module(space: Space, content: bytes, program_id: int = 0) -> None:
    plane = space.plane("/host:metadata")
    number, name = len(plane.event_metadata) + 1, b"jit_f(%d)" % program_id
    entry = plane.event_metadata.add(key=number, value={"id": number, "name": name})
    stat = entry.value.stats.add(metadata_id=space.stat_id(plane, "Hlo Proto"))
    stat.bytes_value = content


def xla_event(instruction: str, start_ps: int, **stats: object) -> Event:
    of_xla = {"hlo_op": instruction.encode(), "hlo_module": b"jit_f"}
    return (instruction, start_ps, 2000, of_xla | stats)


def module_of_dot() -> bytes:
    hlo = hlo_proto()()
    hlo.module.name = b"jit_f"
    instructions = hlo.module.computations.add().instructions
    for name, path in ((b"dot.3", b"jit(f)/jvp(forward)/dot_general"), (b"p", b"weights['W']")):
        instructions.add(name=name, metadata={"op_name": path})
    content: bytes = hlo.SerializeToString()
    return content


def test_xla_instructions_have_the_path_that_the_module_tells(tmp_path: Path) -> None:
    space = Space()
    with_module(space, module_of_dot())
    end: Event = ("end: dot.3", 2000, 10, {})
    line = (xla_event("dot.3", 0), end, xla_event("copy.1", 3000))
    space.line(space.plane("/host:CPU"), "tf_XLAEigen/1", 0, *line)
    profile = space.read(tmp_path)
    assert column(profile, "name") == ["dot.3", "copy.1"]
    assert column(profile, "op_name") == ["jit(f)/jvp(forward)/dot_general", "copy.1"]


def test_the_module_tells_the_path_of_a_kernel_that_names_no_op(tmp_path: Path) -> None:
    space = Space()
    with_module(space, module_of_dot())
    nameless = xla_event("dot.3", 0, tf_op="XlaModule:", name="jit(f)", kernel_details="regs:1")
    named = xla_event("dot.3", 3000, tf_op="jit(f)/cos", kernel_details="regs:1")
    space.line(space.plane("/device:GPU:0"), "Stream #1", 0, nameless, named)
    found = column(space.read(tmp_path), "op_name")
    assert found == ["jit(f)/jvp(forward)/dot_general", "jit(f)/cos"]


def test_a_module_that_cannot_be_read_tells_no_paths(tmp_path: Path) -> None:
    space = Space()
    with_module(space, b"\x0a\xff damaged")
    space.line(space.plane("/host:CPU"), "tf_XLAEigen/1", 0, xla_event("dot.3", 0))
    assert column(space.read(tmp_path), "op_name") == ["dot.3"]


def test_copies_have_their_size(tmp_path: Path) -> None:
    space = Space()
    gpu = space.plane("/device:GPU:0")
    space.line(
        *(gpu, "Stream #3(MemcpyH2D)", 0),
        ("MemcpyH2D", 0, 5000, {"memcpy_details": b"kind_src:pageable size:112 dest:4 async:0"}),
        ("MemcpyH2D", 6000, 5000, {"memcpy_details": "kind:Unknown size:0 dest:512 async:1"}),
    )
    profile = space.read(tmp_path)
    assert column(profile, "bytes") == [112, None]
    assert (profile.notes, next(iter(lacks(profile)))) == ((), "no host")
    assert profile.base_ns is None


def test_metadata_encoded_in_a_name_is_taken_off(tmp_path: Path) -> None:
    space = Space()
    space.line(space.plane("/host:CPU"), "python", 0, ("train#step_num=3,_r=1#", 0, 5000, {}))
    profile = space.read(tmp_path)
    assert (column(profile, "name"), column(profile, "kind")) == (["train"], ["step"])


def test_no_gpu_activity_is_told_with_the_profilers_reason(tmp_path: Path) -> None:
    space = Space()
    space.plane("/device:GPU:0")
    space.line(space.plane("/host:CPU"), "python", 0, ("step", 0, 5000, {}))
    assert "no GPU activity" in lacks(space.read(tmp_path))
    space.message.errors.extend([b"Failed to load libcupti", b"and more"])
    profile = space.read(tmp_path)
    assert (profile.gpu_complaint, profile.notes) == ("Failed to load libcupti", ("and more",))
    assert "Failed to load libcupti" in lacks(profile)["no GPU activity"].sentence


def test_tpu_planes_are_left_out_and_told(tmp_path: Path) -> None:
    space = Space()
    space.line(space.plane("/device:TPU:0"), "XLA Ops", 0, ("fusion", 0, 5000, {}))
    space.line(space.plane("/host:CPU"), "python", 0, ("step", 0, 5000, {}))
    profile = space.read(tmp_path)
    assert column(profile, "name") == ["step"]
    assert (profile.accelerators, profile.notes) == (("TPU 0",), ())
    assert next(iter(lacks(profile))) == "TPU not read"


def test_counts_and_impossible_times_are_no_intervals(tmp_path: Path) -> None:
    space = Space()
    host = space.plane("/host:CPU")
    space.line(host, "python", 5, ("step", 0, 5000, {}), ("back", 0, -5000, {}))
    host.lines[0].events.add(metadata_id=1, num_occurrences=12)
    space.line(host, "far", 2**62, ("far", 0, 5000, {}))
    profile = space.read(tmp_path)
    assert column(profile, "name") == ["step"]
    assert "3 events were left out" in profile.notes[0]


def test_dated_lines_are_epoch_times(tmp_path: Path) -> None:
    space = Space()
    started_ns = 1_600_000_000_000_000_000
    space.line(space.plane("/host:CPU"), "python", started_ns, ("step", 7000, 5000, {}))
    profile = space.read(tmp_path)
    assert (profile.base_ns, column(profile, "start_ns")) == (started_ns + 7, [0])


def test_a_space_without_events_is_refused_with_its_reason(tmp_path: Path) -> None:
    space = Space()
    space.plane("/host:CPU")
    space.message.errors.append(b"Insufficient privilege\nto run libcupti")
    with pytest.raises(ProfileError, match="no host or GPU event was recorded: Insufficient"):
        space.read(tmp_path)


def test_damage_is_refused_with_the_byte(tmp_path: Path) -> None:
    space = Space()
    for number in range(2):
        plane = space.plane(f"/host:CPU{number}")
        space.line(plane, "python", 0, ("step", 0, 5000, {}))
    content = space.message.SerializeToString()
    file = tmp_path / "x.xplane.pb"
    file.write_bytes(content[:-10])
    second = content.rindex(b"\x12\x0a/host:CPU1") - 2
    with pytest.raises(
        ProfileError, match=f"part that begins at byte {second} ends 10 bytes after"
    ):
        read(file)


def test_the_schema_is_tensorflows() -> None:
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    entries = {"EventEntry": "EventMetadataEntry", "StatEntry": "StatMetadataEntry"}
    for name, ours in schema.xspace().DESCRIPTOR.file.message_types_by_name.items():
        if name in entries:
            theirs = xplane_pb2.XPlane.DESCRIPTOR.nested_types_by_name[entries[name]]
        else:
            theirs = xplane_pb2.DESCRIPTOR.message_types_by_name[name]
        numbers = {field.name: field.number for field in theirs.fields}
        for field in ours.fields:
            assert numbers[field.name] == field.number


def module_of_fusion(rows: int = 6) -> bytes:
    """A fusion that holds ``dot(f32[rows,16], f32[16,64])``, and its operands in it."""
    hlo = hlo_proto()()
    hlo.module.name = b"jit_f"
    inner, outer = hlo.module.computations.add(id=1), hlo.module.computations.add(id=2)
    for number, dimensions in ((1, [rows, 16]), (2, [16, 64])):
        shape = {"element_type": 11, "dimensions": dimensions}
        inner.instructions.add(name=b"p%d" % number, opcode=b"parameter", id=number, shape=shape)
    inner.instructions.add(name=b"dot", opcode=b"dot", id=3, operand_ids=[1, 2])
    path = {"op_name": b"jit(f)/while/body/dot_general"}
    fusion = {"name": b"fusion.7", "opcode": b"fusion", "called_computation_ids": [1]}
    outer.instructions.add(**fusion, id=9, metadata=path)
    outer.instructions.add(name=b"tanh.1", opcode=b"tanh", id=10, metadata=path)
    content: bytes = hlo.SerializeToString()
    return content


def test_a_product_has_the_operands_that_the_module_tells(tmp_path: Path) -> None:
    space = Space()
    with_module(space, module_of_fusion())
    events = (xla_event("fusion.7", 0), xla_event("tanh.1", 3000))
    space.line(space.plane("/host:CPU"), "tf_XLAEigen/1", 0, *events)
    profile = space.read(tmp_path)
    assert column(profile, "shapes") == ["[[6,16],[16,64]]", None]
    assert column(profile, "dtypes") == ['["f32","f32"]', None]


def test_modules_of_one_name_differ_by_their_program_id(tmp_path: Path) -> None:
    space = Space()
    for program_id, rows in ((74, 6), (88, 7)):
        with_module(space, module_of_fusion(rows), program_id)
    ids = ({"program_id": 74}, {"program_id": 88}, {"program_id": 90}, {})
    events = [xla_event("fusion.7", 3000 * n, **each) for n, each in enumerate(ids)]
    space.line(space.plane("/host:CPU"), "tf_XLAEigen/1", 0, *events)
    shapes = column(space.read(tmp_path), "shapes")
    assert [json.loads(text)[0] for text in shapes] == [[6, 16], [7, 16], [7, 16], [7, 16]]


def test_an_instruction_without_a_product_has_what_its_narrowest_tanh_reads(
    tmp_path: Path,
) -> None:
    hlo = hlo_proto()()
    hlo.module.name = b"jit_f"
    inner, outer = hlo.module.computations.add(id=1), hlo.module.computations.add(id=2)
    for number, width in ((1, 128), (2, 16)):
        shape = {"element_type": 11, "dimensions": [6, width]}
        inner.instructions.add(name=b"p%d" % number, opcode=b"parameter", id=number, shape=shape)
        tanh = {"name": b"tanh.%d" % number, "opcode": b"tanh", "operand_ids": [number]}
        inner.instructions.add(**tanh, id=10 + number, shape=shape)
    fusion = {"name": b"fusion.7", "opcode": b"fusion", "called_computation_ids": [1]}
    outer.instructions.add(**fusion, id=9, metadata={"op_name": b"jit(f)/while/body/mul"})
    space = Space()
    with_module(space, hlo.SerializeToString())
    events = (xla_event("fusion.7", 0),)
    space.line(space.plane("/host:CPU"), "tf_XLAEigen/1", 0, *events)
    assert column(space.read(tmp_path), "shapes") == ["[[6,16]]"]


def test_a_fusion_that_calls_itself_has_no_operands_and_ends(tmp_path: Path) -> None:
    hlo = hlo_proto()()
    hlo.module.name = b"jit_f"
    only = hlo.module.computations.add(id=1)
    fusion = {"name": b"fusion.7", "opcode": b"fusion", "called_computation_ids": [1]}
    only.instructions.add(**fusion, id=9, metadata={"op_name": b"jit(f)/while/body/mul"})
    space = Space()
    with_module(space, hlo.SerializeToString())
    space.line(space.plane("/host:CPU"), "tf_XLAEigen/1", 0, xla_event("fusion.7", 0))
    assert column(space.read(tmp_path), "shapes") == [None]


@pytest.mark.parametrize(
    ("details", "config"),
    [
        (
            "regs:32 static_shared:16 dynamic_shared:48 grid:80,1,1 block:128,1,1 occ_pct:62.5",
            '{"grid":[80,1,1],"block":[128,1,1],"registers":32,"shared_bytes":64,'
            '"dynamic_shared_bytes":48,"theoretical_occupancy":0.625}',
        ),
        (
            " grid:1280,1,1 block:256,1,1 private_mem:0 group_mem:2112 occ_pct:0",  # on AMD
            '{"grid":[1280,1,1],"block":[256,1,1],"shared_bytes":2112}',
        ),
        (
            "regs:2191500840 static_shared:32462 dynamic_shared:0 grid:1280,1,1 block:256,1,1",
            '{"grid":[1280,1,1],"block":[256,1,1]}',
        ),
        ("regs:7 shm:7 grid:1,210453397508,0 block:139910371608815,96,18446744073709551536", None),
        ("regs:38 shm:0", '{"registers":38}'),
        ("grid:1,1 block:x occ_pct:1.2.3", None),
        ("", None),
    ],
)
def test_a_kernel_says_what_it_was_launched_with(details: str, config: str | None) -> None:
    assert launched_with({"kernel_details": details}) == config
    assert launched_with({"memcpy_details": details}) is None


def test_kernels_of_one_name_differ_in_what_they_were_launched_with(tmp_path: Path) -> None:
    space = Space()
    gpu = space.plane("/device:GPU:0")
    sizes = [f"grid:{1 + number % 2},1,1 block:64,1,1" for number in range(400)]
    kernels = [("gemm", 9000 * n, 5000, {"kernel_details": of}) for n, of in enumerate(sizes)]
    space.line(gpu, "Stream #1", 0, *kernels)
    line = space.message.planes[0].lines[0]
    for event in line.events:
        event.metadata_id = 1  # one name
        event.stats[0].metadata_id = line.events[0].stats[0].metadata_id
    configs = column(space.read(tmp_path), "launch_config")
    assert configs == [f'{{"grid":[{1 + n % 2},1,1],"block":[64,1,1]}}' for n in range(400)]


def test_more_events_than_so_many_bytes_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xplane, "_FREE_EVENTS", 10)
    space = Space()
    plane = space.plane("/host:CPU")
    space.line(plane, "python", 0, ("a", 0, 0, {}))
    plane.lines[0].ClearField("events")
    for _ in range(1000):
        plane.lines[0].events.add(metadata_id=1)
    with pytest.raises(ProfileError, match=r"has 1,000 events in .* bytes, more than a real"):
        space.read(tmp_path)

"""What a request needs, and the refusal of what its implementation cannot do."""

import dataclasses
from importlib import metadata
from typing import Any

import pytest

from lstmprof.base.errors import UsageError
from lstmprof.capture.request import CaptureRequest, check, refusal, run_name, wanted
from lstmprof.workloads.studies import named


def test_a_request_needs_what_it_says() -> None:
    request = CaptureRequest("torch-nn-lstm", named("4x320-ctc-long"), device="cuda:1", xla=True)
    assert wanted(request) == [
        *("cuda", "fp32", "fp32 on cuda", "train", "ctc"),
        *("layers", "bidirectional", "xla", "xla on cuda", "xla with ctc", "xla with fp32"),
        *("head", "adam"),
    ]


def test_what_an_implementation_cannot_do_is_refused_with_the_reason() -> None:
    request = CaptureRequest("torch-nn-lstm", named("1x320-ce-short"), xla=True)
    said = refusal(request)
    assert said is not None
    assert said.startswith("torch-nn-lstm does not support xla: ")
    with pytest.raises(UsageError, match="does not support xla"):
        check(request)
    assert refusal(CaptureRequest("torch-nn-lstm", named("1x320-ce-short"))) is None


def test_switches_are_parts_of_a_run_s_name_and_some_frameworks_refuse_them() -> None:
    workload = named("1x320-ce-short")
    switches = {"keep_denormals": True, "onednn": False, "anomaly": True, "deterministic": True}
    request = CaptureRequest("torch-nn-lstm", workload, label="x", **switches)  # type: ignore[arg-type]
    assert run_name(request) == (
        "torch-nn-lstm--1x320-ce-short--fp32--keep-denormals--no-onednn--anomaly--deterministic--x"
    )
    check(request)
    graph = dataclasses.replace(request, device="cuda:0", cuda_graph=True)
    assert "a CUDA graph cannot" in str(refusal(graph))
    for name, value in switches.items():
        request = CaptureRequest("jax-scan", workload, **{name: value})  # type: ignore[arg-type]
        assert "does not support" in str(refusal(request))


def test_warm_up_lasts_until_the_row_has_settled_unless_it_is_given() -> None:
    assert CaptureRequest("torch-nn-lstm", named("1x320-ce-short")).warmup_iterations == 3
    assert CaptureRequest("torch-script", named("1x320-ce-short")).warmup_iterations == 5
    assert CaptureRequest("torch-script", named("1x320-ce-short"), warmup=1).warmup_iterations == 1


def test_time_for_timing_is_above_zero() -> None:
    check(CaptureRequest("torch-nn-lstm", named("1x320-ce-short"), timing_s=0.5))
    with pytest.raises(UsageError, match="--timing-seconds must be above 0"):
        check(CaptureRequest("torch-nn-lstm", named("1x320-ce-short"), timing_s=0.0))


def test_a_network_that_cannot_be_is_refused_before_a_worker_starts() -> None:
    network = dataclasses.replace(named("1x320-ce-short"), optimizer="adamw")
    with pytest.raises(UsageError, match="unknown optimizer 'adamw'"):
        check(CaptureRequest("torch-nn-lstm", network))


def test_cuda_is_the_first_gpu() -> None:
    request = CaptureRequest("torch-nn-lstm", named("1x320-ce-short"), device="cuda")
    assert request.device == "cuda:0"
    check(request)
    assert run_name(request) == run_name(dataclasses.replace(request, device="cuda:0"))


FLAG = "--xla_gpu_enable_command_buffer="


@pytest.mark.parametrize(
    ("name", "fields", "flags"),
    [
        ("jax-scan", {}, FLAG),
        ("jax-scan", {"device": "auto"}, FLAG),
        ("jax-scan", {"cuda_graph": True}, None),
        ("jax-scan", {"device": "cpu"}, None),
        ("keras-lstm-mode2", {"xla": True}, FLAG),
        ("keras-lstm-mode2", {}, None),
        ("torch-nn-lstm", {}, None),
    ],
)
@pytest.mark.parametrize("given", ["", "--xla_dump_to=x", "--xla_gpu_enable_command_buffer=FUSION"])
def test_xla_makes_no_command_buffers_unless_graphs_are_asked_for(
    name: str,
    fields: dict[str, Any],
    flags: str | None,
    given: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would not in the profile pass, where a profiler is on."""
    from lstmprof.capture.worker import __main__ as worker

    monkeypatch.setattr(worker.host, "cuda_devices", lambda: 1)
    monkeypatch.setattr("importlib.metadata.version", lambda package: "2.16.1")
    monkeypatch.setenv("XLA_FLAGS", given)
    request = CaptureRequest(name, named("1x320-ce-short"), **{"device": "cuda:0", **fields})
    assert refusal(request) is None
    asked = worker._variables(request, request.row.framework).get("XLA_FLAGS")
    assert asked == (flags and (given if FLAG in given else f"{given} {flags}"))


@pytest.mark.parametrize(("version", "devices"), [("0.4.23", 1), (None, 1), ("0.10.0", 0)])
def test_an_xla_that_does_not_know_command_buffers_gets_no_flag(
    version: str | None, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lstmprof.capture.worker import __main__ as worker

    def installed(package: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(worker.host, "cuda_devices", lambda: devices)
    monkeypatch.setattr(metadata, "version", installed)
    request = CaptureRequest("jax-scan", named("1x320-ce-short"), device="cuda:0")
    assert "XLA_FLAGS" not in worker._variables(request, "jax")

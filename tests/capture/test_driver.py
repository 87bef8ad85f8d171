"""Why a framework sees no GPU and which wheel would, by a driver that is compiled here."""

from __future__ import annotations

import json
from pathlib import Path

import nvml_stand_in
import pytest
from in_process import lstmprof

from lstmprof.base.errors import CaptureError
from lstmprof.capture import system
from lstmprof.capture.worker.machine import driver
from lstmprof.capture.worker.machine.driver import Driver, GpuView, wheel_for, why_no_gpu

H100 = Driver(version="580.65.06", cuda=(13, 0), gpus=("NVIDIA H100", "NVIDIA H200"))
OLD = Driver(version="550.54.14", cuda=(12, 4), gpus=("NVIDIA A100",))


def test_a_driver_says_its_version_its_cuda_and_its_gpus(tmp_path: Path) -> None:
    library = str(nvml_stand_in.built(tmp_path))
    assert driver.driver(library, library) == H100


def test_a_driver_without_a_gpu_says_why(tmp_path: Path) -> None:
    library = str(nvml_stand_in.built(tmp_path, "FAULT=100", "NEWEST=12040"))
    found = driver.driver(library, library)
    assert (found.cuda, found.gpus) == ((12, 4), ())
    assert "CUDA_VISIBLE_DEVICES" in found.fault
    assert "libno-such.so is missing" in driver.driver("libno-such.so", library).fault


@pytest.mark.parametrize(
    ("built_for", "found", "words", "step"),
    [
        (None, H100, "torch 2.11.0 is built without CUDA", "pip install torch"),
        (None, OLD, "torch 2.11.0 is built without CUDA", "whl/cu126"),
        ("13.0", OLD, "is built for CUDA 13.0, but the driver allows 12.4", "whl/cu126"),
        ("12.6", H100, "built for CUDA 12.6, does not find its libraries", "pip install torch"),
        ("13.0", Driver("no NVIDIA driver"), "no NVIDIA driver", "use --device cpu"),
    ],
)
def test_what_keeps_a_framework_from_a_gpu_is_named_with_the_wheel_to_take(
    built_for: str | None, found: Driver, words: str, step: str
) -> None:
    fault, advice = why_no_gpu(GpuView("torch", "2.11.0", built_for, 0), found)
    assert words in fault
    assert advice.endswith(step)


def test_a_driver_before_cuda_12_has_no_wheel() -> None:
    found = Driver(cuda=(11, 8), gpus=("Tesla K80",))
    assert {wheel_for(name, found).partition(",")[0] for name in driver.WHEELS} == {
        "update the NVIDIA driver to 525 or newer"
    }


@pytest.mark.parametrize(
    ("requested", "gpus", "found", "device"),
    [
        ("cpu", 1, H100, "cpu"),
        ("auto", 1, H100, "cuda:0"),
        ("auto", 0, Driver("no NVIDIA driver"), "cpu"),
        ("cuda:1", 2, H100, "cuda:1"),
    ],
)
def test_the_device_is_the_one_that_the_framework_sees(
    requested: str, gpus: int, found: Driver, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "driver", lambda: found)
    assert driver.chosen(requested, lambda: GpuView("jax", "0.11", "13", gpus)) == device


@pytest.mark.parametrize(
    ("requested", "gpus", "message"),
    [
        ("auto", 0, "the driver shows a GPU, but jax .* without CUDA; .*or use --device cpu"),
        ("cuda:0", 0, r"cuda:0 is not available: jax .* without CUDA; pip install .jax\[cuda13\]"),
        ("cuda:7", 2, r"cuda:7 is not available: jax .* sees 2 GPU\(s\); use --device cuda:0"),
    ],
)
def test_auto_does_not_measure_the_cpu_of_a_machine_with_a_gpu(
    requested: str, gpus: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "driver", lambda: H100)
    with pytest.raises(CaptureError, match=message):
        driver.chosen(requested, lambda: GpuView("jax", "0.11", None, gpus))


@pytest.fixture
def only_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the frameworks that take long to import."""
    pytest.importorskip("torch")
    monkeypatch.setattr(system, "SEES", {"torch": driver.torch_sees})


@pytest.mark.usefixtures("only_torch")
def test_a_machine_with_a_gpu_is_checked_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = str(nvml_stand_in.built(tmp_path))
    monkeypatch.setattr(system, "driver", lambda: driver.driver(library, library))
    done = lstmprof("check", "--system", "--format", "json")
    assert done.returncode == 0
    lines = {line["name"]: line for line in json.loads(done.stdout)}
    assert list(lines)[:2] == ["driver", "torch"]
    assert set(lines) >= {"CUPTI", "nsys"}
    assert lines["driver"]["state"] == "ok"
    assert "580.65.06 allows CUDA 13.0; NVIDIA H100" in lines["driver"]["sentence"]
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None:
        assert (lines["torch"]["state"], lines["torch"]["next_step"]) == (
            "missing",
            "pip install torch",
        )


@pytest.mark.usefixtures("only_torch")
def test_a_machine_without_a_gpu_lacks_a_driver_and_no_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "driver", lambda: Driver("no NVIDIA driver is loaded here"))
    by_name = {line.name: line for line in system.lines()}
    assert (by_name["driver"].state, by_name["torch"].state) == ("missing", "ok")
    assert not by_name["torch"].next_step


def test_a_file_that_two_versions_of_cudnn_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def __init__(self, name: str) -> None:
            self.name = name

    names = ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12"]
    monkeypatch.setattr(system.metadata, "distributions", lambda: map(Installed, names))
    (line,) = system._shared_files()
    assert (line.name, line.state) == ("cudnn", "missing")
    assert "separate environments" in line.next_step


@pytest.mark.parametrize("words", [(), ("--system", "traces")])
def test_a_machine_or_profiles_are_checked_and_not_both(words: tuple[str, ...]) -> None:
    assert lstmprof("check", *words).returncode == 2

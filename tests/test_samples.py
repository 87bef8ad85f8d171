"""The samples in traces/: small, nameless, listed, captured by commands that still stand."""

from __future__ import annotations

import platform
import re

import pytest

from benchmarks.samples import GROUPS, MOST_BYTES, TRACES, readme, sample_name, samples, size
from lstmprof import implementations
from lstmprof.commands.recording.capture import command
from lstmprof.runs.run import Run, open_run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [open_run(place) for place in samples()]


def test_samples_are_small_and_say_nothing_of_who_captured_them(runs: list[Run]) -> None:
    assert runs
    assert (TRACES / "README.md").read_text(encoding="utf-8") == readme(TRACES), "run make samples"
    for run in runs:
        assert run.info.name == run.path.name
        assert run.info.python_executable is None
        length = run.info.workload.time_steps or 0
        assert size(run.path) <= MOST_BYTES * max(1, length // 100)
        assert run.info.hardware.system is None
        assert not (run.path / "profile").exists()
        text = (run.path / "run.json").read_text(encoding="utf-8")
        assert '"/' not in text
        assert f'"{platform.node()}"' not in text
        assert re.fullmatch(r"lstmprof capture [\w .,=*-]+", run.info.command or "")


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_captured_by_a_command_that_stands(group: str) -> None:
    asked = GROUPS[group].command("traces")
    context = command.make_context(asked[0], asked[1:])
    for name in context.params["impls"]:
        assert implementations.find(name).name == name


def test_a_sample_is_called_by_what_it_is() -> None:
    names = (
        "keras-lstm--1x320-ce-short-t20--fp32--forward",
        "torch-nn-lstm--1x320-ce-short-t5--fp32",
    )
    asr = ("1x320-ce-short-t20", "fp32")
    assert sample_name(names[0], asr) == "keras-lstm-forward"
    assert sample_name(names[1], ("1x320-ce-short", "fp32")) == "torch-nn-lstm-t5"
    version = "torch-nn-lstm--1x320-ce-short-t20--fp32--torch==1.8.1"
    assert sample_name(version, asr) == "torch-nn-lstm-torch-1.8.1"
    assert sample_name("torch-nn-lstm--ptb-large--fp32", asr) == "torch-nn-lstm-ptb-large"

"""What a kernel was launched with: what is believed, what it reads like."""

from __future__ import annotations

import json

import pytest

from lstmprof.events import launch_config
from lstmprof.events.launch_config import LaunchConfig, read, text

SAID = {
    "grid": [80, 1, 1],
    "block": [128, 2, 1],
    "registers": 32,
    "shared_bytes": 4096,
    "dynamic_shared_bytes": 1024,
    "estimated_occupancy": 0.31,
    "theoretical_occupancy": 1.0,
}


def test_equal_ones_are_equal_texts() -> None:
    written = text(SAID)
    assert written == json.dumps(SAID, separators=(",", ":"))
    assert text(dict(reversed(SAID.items()))) == written
    assert text({**SAID, "cluster": [2, 1, 1]}) == written


def test_what_is_written_is_read_again() -> None:
    config = read(text(SAID) or "")
    assert config == LaunchConfig((80, 1, 1), (128, 2, 1), 32, 4096, 1024, 0.31, 1.0)
    assert config is not None
    assert launch_config.encoded(config) == text(SAID)


@pytest.mark.parametrize("name", SAID)
def test_what_is_not_said_is_left_out(name: str) -> None:
    said = {key: value for key, value in SAID.items() if key != name}
    if name == "shared_bytes":
        del said["dynamic_shared_bytes"]
    assert json.loads(text(said) or "") == said
    assert text({**said, name: None}) == text(said)


def test_nothing_said_is_none() -> None:
    assert text({}) is None
    assert text({"registers": 0, "estimated_occupancy": 0}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("grid", v)
            for v in ([0, 1, 1], [2**31, 1, 1], [1, 1], [1, 1, 1, 1], "80", [True, 1, 1])
        ),
        *(("block", v) for v in ([0, 1, 1], [1025, 1, 1], [64, 32, 1], [1.0, 1, 1], [None, 1, 1])),
    ],
)
def test_of_a_size_that_cannot_be_nothing_is_believed(name: str, value: object) -> None:
    assert text({**SAID, name: value}) is None


@pytest.mark.parametrize("registers", [-1, 2_191_500_840, "32", 1.5])
def test_beside_registers_that_cannot_be_no_memory_is_believed(registers: object) -> None:
    said = json.loads(text({**SAID, "registers": registers}) or "")
    assert said == {k: v for k, v in SAID.items() if "shared" not in k and k != "registers"}


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), float("inf"), "0.5", True])
def test_an_occupancy_of_none_is_unknown(share: object) -> None:
    assert "estimated_occupancy" not in (text({**SAID, "estimated_occupancy": share}) or "")


def test_no_more_is_dynamic_than_there_is() -> None:
    assert "dynamic" not in (text({**SAID, "dynamic_shared_bytes": 4097}) or "")


@pytest.mark.parametrize(
    "written", ["", "{", "[]", "null", "3", '{"grid":3}', "[" * 100_000, '{"block":[1,1]}']
)
def test_what_anybody_wrote_says_nothing(written: str) -> None:
    assert read(written) is None


def test_it_reads_as_people_say_it() -> None:
    assert LaunchConfig((80, 1, 1), (128, 1, 1), 32, 4096, 4096).words == (
        "grid 80 × 1 × 1, block 128 × 1 × 1 (128 threads), 32 registers per thread,"
        " 4,096 B of shared memory per block (0 B static + 4,096 B dynamic)"
    )
    assert LaunchConfig(None, (1, 1, 1), 1, 0, 0, 0.004, 0.5).words == (
        "block 1 × 1 × 1 (1 thread), 1 register per thread, 0 B of shared memory per block,"
        " estimated occupancy 0.4 %, theoretical occupancy 50 %"
    )
    reduce = LaunchConfig(operation="all_reduce", message_bytes=4000, group_size=8)
    assert reduce.words == "message of 4,000 B, 8 ranks"
    assert LaunchConfig(shared_bytes=1024).words == "1,024 B of shared memory per block"

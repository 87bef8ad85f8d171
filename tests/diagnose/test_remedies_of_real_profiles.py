"""What real profiles are told, and what not: their own facts, read in their events."""

from __future__ import annotations

import pytest
import shared_traces

import lstmprof as lp


def told(name: str) -> set[str]:
    """The names of the remedies that a profile gets; skips where it is not there."""
    path = shared_traces.FOLDER / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    (diagnosis,) = lp.diagnose([lp.read(path)])
    findings = diagnosis.to_dict()["findings"]
    return {remedy["name"] for finding in findings for remedy in finding["remedies"]}


@shared_traces.needed
@pytest.mark.parametrize(
    ("name", "remedies"),
    [
        ("more/kineto/tl-sglang-decode.json.gz", set()),
        ("kineto/kineto2021-resnet50-v100-nw0.pt.trace.json.gz", {"workers"}),
        ("kineto/hta-mi250-rocm62.json.gz", {"profile later"}),
        ("nvprof/lm-transformer-a.sql", {"profile later"}),
        ("nsys/h100-2gpu-1s.sqlite", {"keep data on the GPU"}),
        ("kineto/hta-large-int.json.gz", set()),
        ("more/kineto/hta-mtia-inference.json.gz", set()),
        ("kineto/tl-vllm-cudagraph.json.gz", set()),
    ],
)
def test_a_profile_is_told_of_what_its_events_show(name: str, remedies: set[str]) -> None:
    assert told(name) == remedies


@shared_traces.needed
def test_a_series_of_launches_is_told_of_graphs_where_they_can_be_captured() -> None:
    assert "CUDA graph" in told("kineto/qa-transformer-h100-a.pt.trace.json.gz")
    asks_for_a_value = told("kineto/tl-h100-bert-small.json.gz")
    # fewer than half of its kernels are elementwise
    assert asks_for_a_value == {"CUDA graph", "larger batch"}

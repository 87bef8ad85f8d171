"""A backward op finds its forward op, under drawn timelines."""

from __future__ import annotations

from pathlib import Path

import pytest
import shared_traces
from events.rows import row, table

from lstmprof import formats
from lstmprof.events.annotate.links import with_forwards

MAIN, ENGINE = {"pid": 1, "tid": 1}, {"pid": 1, "tid": 2, "forward_thread": 1}


def test_the_op_that_made_the_node_is_the_last_with_its_number() -> None:
    # thread 1  [aten::linear 7------)  [sum 8)
    #             [aten::addmm 7---)
    # engine                                     [Sum 8)  [Addmm 7)  [lost 9)
    rows = [
        row("op", "aten::linear", 0, 20, **MAIN, sequence_number=7),
        row("op", "aten::addmm", 2, 18, **MAIN, sequence_number=7),
        row("op", "aten::sum", 22, 28, **MAIN, sequence_number=8),
        row("op", "SumBackward0", 40, 44, **ENGINE, sequence_number=8),
        row("op", "AddmmBackward0", 50, 60, **ENGINE, sequence_number=7),
        row("op", "lost", 62, 64, **ENGINE, sequence_number=9),
    ]
    events = with_forwards(table(rows)).to_pylist()
    names = {r["event_id"]: r["name"] for r in events}
    assert {r["name"]: names[r["forward_id"]] for r in events if r["forward_id"] is not None} == {
        "SumBackward0": "aten::sum",
        "AddmmBackward0": "aten::addmm",
    }


def test_a_number_used_again_means_the_op_before() -> None:
    # [a 7)  [A 7)  [b 7)  [B 7)      a second network counts from the beginning
    rows = [
        row("op", "a", 0, 2, **MAIN, sequence_number=7),
        row("op", "A", 3, 5, **ENGINE, sequence_number=7),
        row("op", "b", 6, 8, **MAIN, sequence_number=7),
        row("op", "B", 9, 11, **ENGINE, sequence_number=7),
    ]
    assert with_forwards(table(rows)).column("forward_id").to_pylist() == [None, 0, None, 2]


def test_another_ranks_op_and_a_later_one_are_not_taken() -> None:
    rows = [
        row("op", "other", 0, 2, **MAIN, sequence_number=7, rank=1),
        row("op", "B", 3, 5, **ENGINE, sequence_number=7, rank=0),
        row("op", "later", 6, 8, **MAIN, sequence_number=7, rank=0),
    ]
    assert with_forwards(table(rows)).column("forward_id").to_pylist() == [None] * 3


def test_without_numbers_there_are_no_forward_ops() -> None:
    assert with_forwards(table([row("op", "a", 0, 1, **MAIN)])).column("forward_id").null_count == 1
    assert len(with_forwards(table([row("op", "a", 0, 1, **MAIN)]).slice(0, 0))) == 0


@shared_traces.needed
@pytest.mark.parametrize(
    "name",
    ["kineto2021-resnet50-v100-nw0.pt.trace.json.gz", "hta-mi250-rocm62.json.gz"],
)
def test_a_real_backward_pass_finds_the_ops_it_is_named_after(name: str) -> None:
    path: Path = shared_traces.FOLDER / "kineto" / name
    events = with_forwards(formats.read(path).events)
    names = events.column("name").to_pylist()
    row_of = {event_id: i for i, event_id in enumerate(events.column("event_id").to_pylist())}
    pairs = {
        (names[i], names[row_of[forward]])
        for i, forward in enumerate(events.column("forward_id").to_pylist())
        if forward is not None
    }
    expected = {
        ("CudnnConvolutionBackward", "aten::cudnn_convolution"),
        ("MseLossBackward0", "aten::mse_loss"),
    }
    assert pairs & expected
    assert not pairs & {(b, f) for b, _ in expected for _, f in expected} - expected

"""A picture of stacks has the time of the stacks, and folds what is small."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.made_job import breakdown_of
from events.rows import Row, row, table
from report import runs

from lstmprof.breakdown import break_down
from lstmprof.events.annotate import annotated
from lstmprof.report import TABLES, icicle as icicle_module, page, report_of
from lstmprof.report.model import Icicle, Report
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables

HOST, GPU = {"pid": 1, "tid": 1}, {"device": 0, "stream": 7}
#                       0  2     100        300 400   500      1000
# train.py(3): step     [----------------------------------------)
# nn.Module: LSTM_0              [----------)   [-----)               100…300, 400…500
# aten::mm                         [----)                             120…200
# aten::view                       .                                  one of 4
# launch                            150-160  ─▶ sgemm 1100…1170
ROWS = [
    row("python", "train.py(3): step", 0, 1000, **HOST),
    row("python", "nn.Module: LSTM_0", 100, 300, **HOST),
    row("op", "aten::mm", 120, 200, **HOST),
    row("runtime", "cudaLaunchKernel", 150, 160, **HOST, correlation_id=1),
    row("op", "aten::view", 210, 214, **HOST),
    row("python", "nn.Module: LSTM_0", 400, 500, **HOST),
    row("kernel", "ampere_sgemm", 1100, 1170, **GPU, correlation_id=1),
]


def report_on(folder: Path, rows: list[Row]) -> Report:
    folder.mkdir()
    events = annotated(table(rows), captured=False)
    write_tables(folder, run_info({"name": folder.name, "source": "ingest"}), events)
    return report_of([break_down(open_run(folder))])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_on(tmp_path_factory.mktemp("stacks") / "run", ROWS)


def boxes(icicle: Icicle) -> list[tuple[str, int, int, str | None, str | None]]:
    """Name, total, self, part and the name of what is around each box."""
    names = [icicle.names[place] for place in icicle.columns["name"]]
    return [
        (
            *(names[place], total, own),
            None if part < 0 else icicle.parts[part],
            None if above < 0 else names[above],
        )
        for place, (above, _, total, own, part) in enumerate(
            zip(*icicle.columns.values(), strict=True)
        )
    ]


def test_stacks_by_module_and_by_python_of_host_and_device(report: Report) -> None:
    drawn = {icicle.what: boxes(icicle) for icicle in report.icicles}
    assert drawn == {
        "host time by module": [
            ("LSTM_0", 300, 216, None, None),
            ("aten::mm", 80, 80, "dispatch", "LSTM_0"),
            ("aten::view", 4, 4, "dispatch", "LSTM_0"),
        ],
        "device time by module": [
            ("LSTM_0", 70, 0, None, None),
            ("aten::mm", 70, 0, None, "LSTM_0"),
            ("ampere_sgemm", 70, 70, "gemm", "aten::mm"),
        ],
        "host time by Python frame": [
            ("train.py(3): step", 1000, 916, None, None),
            ("aten::mm", 80, 80, "dispatch", "train.py(3): step"),
        ],
        "device time by Python frame": [
            ("train.py(3): step", 70, 0, None, None),
            ("aten::mm", 70, 0, None, "train.py(3): step"),
            ("ampere_sgemm", 70, 70, "gemm", "aten::mm"),
        ],
    }
    assert {icicle.total_ns for icicle in report.icicles} == {300, 70, 1000}


def test_small_ones_are_folded_into_one_box_where_together_they_are_large(tmp_path: Path) -> None:
    small = [row("op", f"aten::view{n}", 510 + 10 * n, 516 + 10 * n, **HOST) for n in range(5)]
    (host,) = [
        icicle
        for icicle in report_on(tmp_path / "run", [*ROWS, *small]).icicles
        if icicle.what == "host time by Python frame"
    ]
    assert ("6 smaller callees", 34, 34, None, "train.py(3): step") in boxes(host)
    assert not any(name.startswith("aten::view") for name, *_ in boxes(host))


def test_a_profile_without_frames_has_no_picture(tmp_path: Path) -> None:
    run = runs.run(tmp_path, "one", implementation="torch-nn-lstm")
    report = report_of([break_down(run, None, TABLES)])
    assert report.icicles == ()
    assert 'id="stacks"' not in page.page(report)
    assert not any("Call stacks" in text for text in report.missing)


def test_what_is_too_large_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(icicle_module, "MOST_EVENTS", 6)
    report = report_on(tmp_path / "run", ROWS)
    assert report.icicles == ()
    assert "To keep the page small, the call stacks of run are left out." in report.missing


def test_a_stack_without_end_is_cut(tmp_path: Path) -> None:
    deep = [row("python", f"a.py({n}): f", n, 1000 - n, **HOST) for n in range(100)]
    (host,) = report_on(tmp_path / "run", deep).icicles
    assert len(boxes(host)) == icicle_module.MOST_DEPTH


def test_a_pair_has_the_steps_of_both_runs_over_one_tree(tmp_path: Path) -> None:
    #                 0         10        20      40   50
    # fast   step     [--------- aten::lstm ------)         4…34
    # slow   step     [- aten::mm -) [- aten::mm -)    )    2…12, 20…32, of 46
    fast = [row("step", "ProfilerStep#1", 0, 40, **HOST), row("op", "aten::lstm", 4, 34, **HOST)]
    slow = [
        row("step", "ProfilerStep#7", 0, 46, **HOST),
        *(row("op", "aten::mm", *ends, **HOST) for ends in ((2, 12), (20, 32))),
    ]
    made = [breakdown_of(tmp_path / name, of) for name, of in (("fast", fast), ("slow", slow))]
    report = report_of(made, across=("workload",))
    (pair,) = report.icicles
    assert (pair.run, pair.fast, pair.slow) == ("slow beside fast", "fast", "slow")
    columns = pair.columns
    texts = [pair.names[place] for place in columns["name"]]
    rows = zip(texts, columns["fast_ns"], columns["slow_ns"], columns["total_ns"], strict=True)
    assert {text: numbers for text, *numbers in rows} == {
        "step": [40, 46, 30 + 22 + 24],
        "aten::lstm": [30, 0, 30],
        "aten::mm": [0, 22, 22],
    }
    assert pair.sentence == "One step: 0.000 ms in slow, 0.000 ms in fast."

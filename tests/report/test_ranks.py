"""What is drawn of several ranks: by hand, from arrivals that are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.made_job import STEP_NS, TRANSFER_NS, breakdown_of, job
from events.rows import Row, row
from report import runs

from lstmprof.breakdown import break_down
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.events.annotate.steps import Window
from lstmprof.report import TABLES, page, report_of, rows as drawn_rows
from lstmprof.report.charts import arrivals, figures, rank_parts, rank_work
from lstmprof.report.model import Report
from lstmprof.report.page import cards
from lstmprof.report.timeline import spread

# of each step   0      100 000      300 000  310 000      500 000  510 000
# rank 0         [sgemm )[all-reduce: waits   )            [reduce  )
# rank 1         [sgemm               )[reduce)            [reduce  )
WORK = {0: 100_000, 1: 300_000}
STEPS, SECOND = 4, 500_000


def rows() -> list[Row]:
    made = job({rank: [[until, SECOND]] * STEPS for rank, until in WORK.items()})
    for rank, until in WORK.items():
        for step in range(STEPS):
            at = step * STEP_NS
            place = {"rank": rank, "device": 0, "stream": 7}
            made.append(row("kernel", "ampere_sgemm_128x64_nn", at, at + until, **place))
    return made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of([breakdown_of(tmp_path_factory.mktemp("job") / "two", rows())])


def test_who_is_late_is_told_collective_by_collective(report: Report) -> None:
    late = {
        (row["lane"], row["collective"]): (row["late_ns"], row["last_in"], row["step"])
        for row in report.arrivals
    }
    numbers = range(1, 2 * STEPS + 1)
    assert len(late) == 2 * len(numbers)
    for number in numbers:
        first = number % 2 == 1
        told = late["device 0 of rank 1", number]
        assert told == (200_000 if first else 0, told[1], (number - 1) // 2)
        assert told[1] == 1 or not first
        assert late["device 0 of rank 0", number][0] == 0
    assert arrivals.sentence(report.arrivals).startswith(
        "Device 0 of rank 1 arrives latest: 0.100 ms after the first rank on average, and last in "
    )


def test_many_collectives_share_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_rows, "MOST_COLUMNS", 4)
    cells = report_of([breakdown_of(tmp_path / "two", rows())]).arrivals
    assert {(row["collective"], row["collectives"]) for row in cells} == {
        (first, 2) for first in (1, 3, 5, 7)
    }
    assert {row["late_ns"] for row in cells if row["lane"].endswith("1")} == {100_000}


def test_work_is_compared_step_by_step(report: Report) -> None:
    assert {(row["lane"], row["work_ns"], row["off_share"]) for row in report.rank_work} == {
        ("device 0 of rank 0", 100_000, -0.5),
        ("device 0 of rank 1", 300_000, 0.5),
    }
    assert [row["step"] for row in report.rank_work[::2]] == list(range(STEPS))
    said = rank_work.sentence(report.rank_work)
    assert all(words in said for words in ("step 0", "device 0 of rank 1", "0.300 ms", "50 %"))


def test_parts_of_a_rank_sum_to_its_step_and_the_table_is_that_of_breakdown(
    report: Report, tmp_path: Path
) -> None:
    for lane in ("device 0 of rank 0", "device 0 of rank 1"):
        assert sum(row["ns"] for row in report.rank_parts if row["lane"] == lane) == STEP_NS
    table = breakdown_of(tmp_path / "two", rows()).table("ranks").to_pylist()
    assert [{name: row[name] for name in table[0]} for row in report.ranks] == table
    (facts,) = report.runs
    assert facts.lane == "device 0 of rank 1"
    own, work, communication = rank_parts.sentence(report.rank_parts, facts.lane).split(". ")
    assert own.startswith("The verdict is about device 0 of rank 1, which has 0.300 ms of work")
    assert work == "Most work: device 0 of rank 1, 0.300 ms, 50 % above the mean of all ranks"
    held_ns = 200_000 + 2 * TRANSFER_NS
    assert f"device 0 of rank 0, {held_ns / 1e6:.3f} ms" in communication


def test_the_card_the_ledger_and_the_ranks_speak_of_one_rank(report: Report) -> None:
    (diagnosis,), (facts,) = report.diagnoses, report.runs
    assert facts.lane == lane_words(*diagnosis.slow.rank_device)
    assert {row["lane"] for row in report.ledger} == {facts.lane}
    assert sum(row["total_ns"] / row["steps"] for row in report.ledger) == facts.step_ns
    (block,) = cards.blocks(report, [])
    assert block.cards[0].place.startswith(f"{facts.lane} only (1 of 2 devices)")
    for figure in figures(report):
        if figure.key in ("ledger-0", "ranks-parts-0"):
            assert facts.lane in figure.sentence.partition(":")[0]


def test_ranks_have_a_section_and_one_rank_has_none(report: Report, tmp_path: Path) -> None:
    html = page.page(report)
    section = html[html.index('<section id="ranks"') :]
    section = section[: section.index("</section>")]
    for key in ("ranks-parts-0", "ranks-late-0", "ranks-work-0"):
        assert f'data-figure="{key}"' in section
    assert section.count('<tr><th scope="row"') == 2
    one = runs.run(tmp_path, "one", implementation="torch-nn-lstm")
    alone = report_of([break_down(one, None, TABLES)])
    assert (alone.ranks, alone.rank_parts, alone.arrivals, alone.rank_work) == ([], [], [], [])
    assert 'id="ranks"' not in page.page(alone)


def test_of_ranks_whose_collectives_do_not_match_nobody_is_late(tmp_path: Path) -> None:
    made = [r for r in rows() if "AllReduce" not in r["name"] or r["rank"] == 0]
    report = report_of([breakdown_of(tmp_path / "two", made)])
    assert {figure.key for figure in figures(report)} >= {"ranks-parts-0", "ranks-work-0"}
    (said,) = [text for text in report.missing if "straggler unknown" in text]
    assert said.startswith("two: straggler unknown: ")


def test_of_many_ranks_the_timelines_are_those_of_the_ends_and_some_between() -> None:
    steps = [Window(n, 1, 0, ns, 0) for n, ns in enumerate([50, 10, 40, 90, 20, 30, 70, 60, 80])]
    assert [step.rank for step in spread(steps, 5)] == [0, 1, 3, 5, 6]
    assert spread(steps, 9) == steps

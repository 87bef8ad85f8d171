"""Why the same calls are slower: each reason is told, and not where one of its facts is missing."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose.made import contributor, profile, table

from lstmprof.diagnose.diagnosis import compare
from lstmprof.diagnose.findings.reasons import cpu_numbers, reason
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000
SAME = {"implementation": "torch-nn-lstm", "precision": "fp32", "mode": "train", "device": "cpu"}
#: Ten steps were timed: 10 ms each in the fast run, 20 ms in the slow one.
STEP = {"timing_wall_ns": "ten steps"}

Facts = dict[str, Any]


def run(ns: int, facts: Facts, name: str) -> StepProfile:
    given = {key: value for key, value in facts.items() if key not in ("tables", "lane")}
    if "timing_wall_ns" in given:
        given["timing_wall_ns"] = 10 * ns
    lane = {"tables": facts.get("tables", {}), "device": facts.get("lane")}
    return profile(
        contributor("busy", "gemm", ns, "aten::mm", count=3),
        name=name,
        facts={**SAME, **given},
        **lane,
    )


def name_of(fast: Facts, slow: Facts) -> str:
    return reason(run(10 * MS, fast, "a"), run(20 * MS, slow, "b")).name


def settings(**given: Any) -> Facts:
    return {"settings": given}


def counters(**given: Any) -> Facts:
    return {**STEP, "counters": given}


def thread(cpu_ms: int, cpus: str, waited_ms: int = 0) -> Facts:
    return {"name": "python", "cpu_ns": cpu_ms * MS, "waited_ns": waited_ms * MS, "cpus": cpus}


def ops(*names: str) -> Facts:
    rows = ({"name": name, "count": 9, "host_self_ns": 9} for name in names)
    return {"tables": {"ops": table(*rows)}}


FAST_COPIES = {"peaks": {"copy_bytes_per_s": 1e10}}
CASES = [
    (
        settings(framework_denormals="flushed"),
        settings(framework_denormals="kept"),
        "denormals",
    ),
    ({"denormals_flushed": True}, {"denormals_flushed": False}, "denormals"),
    # 70 ns × 60,000 a step: 4.2 of the 10 ms
    (counters(fp_assists=0), counters(fp_assists=600_000), "denormals"),
    (settings(anomaly_mode=False), settings(anomaly_mode=True), "anomaly mode"),
    (settings(onednn=True), settings(onednn=False), "kernel path"),
    (
        {"timing_threads": [thread(90, "0"), thread(90, "1")]},
        {"timing_threads": [thread(60, "1", 40), thread(60, "1", 40)]},
        "threads",
    ),
    (
        {**STEP, "timing_cpu_ns": 99 * MS},
        {**STEP, "timing_cpu_ns": 380 * MS},
        "threads",
    ),
    ({**STEP, "timing_page_faults": 0}, {**STEP, "timing_page_faults": 18_000}, "page faults"),
    ({"cpu_clock_mhz": 3_600.0}, {"cpu_clock_mhz": 1_900.0}, "clocks"),
    (
        counters(cache_misses=1_000),
        {**counters(cache_misses=5_000_000), **FAST_COPIES},
        "cache misses",
    ),
    (counters(instructions=100_000_000), counters(instructions=160_000_000), "other code"),
    (
        settings(environment={}),
        settings(environment={"MALLOC_TOP_PAD_": "0"}),
        "settings",
    ),
    (settings(gc_enabled=False), settings(gc_enabled=True), "settings"),
]


@pytest.mark.parametrize(("fast", "slow", "name"), CASES)
def test_a_reason_is_told_where_all_its_facts_are_there_and_not_without_one(
    fast: Facts, slow: Facts, name: str
) -> None:
    assert name_of(fast, slow) == name
    for fact in fast:
        assert name_of({k: v for k, v in fast.items() if k != fact}, slow) == "not recorded"
    for fact in slow:
        assert name_of(fast, {k: v for k, v in slow.items() if k != fact}) == "not recorded"


def test_work_takes_longer_where_others_had_the_cpu() -> None:
    """900 faults per step are 2.4 ms of work, of 10 ms; with a CPU for half of the time 4.9."""
    fast = {**STEP, "threads": 1, "timing_cpu_ns": 99 * MS, "timing_page_faults": 0}
    slow = {**STEP, "threads": 1, "timing_page_faults": 9_000}
    assert name_of(fast, {**slow, "timing_cpu_ns": 199 * MS}) == "not recorded"
    assert name_of(fast, {**slow, "timing_cpu_ns": 100 * MS}) == "page faults"


def test_a_setting_that_costs_the_fast_run_time_is_no_reason() -> None:
    costly, cheap = settings(deterministic=True), settings(deterministic=False)
    assert name_of(cheap, costly) == "settings"
    assert name_of(costly, cheap) == "not recorded"
    found = compare(run(10 * MS, costly, "a"), run(20 * MS, cheap, "b"))
    assert found.to_dict()["settings"] == [
        {"setting": "deterministic algorithms", "slow": "off", "fast": "on"}
    ]


@pytest.mark.parametrize(("fast", "slow", "name"), CASES)
def test_it_is_of_the_slow_run_alone(fast: Facts, slow: Facts, name: str) -> None:
    """The other way round only a difference of settings is left, which both have."""
    assert name_of(slow, fast) in {"settings", "not recorded", "kernel path"}
    assert name_of(slow, slow) == "not recorded"


@pytest.mark.parametrize(
    ("fast", "slow"),
    [
        # 0.7 of 10 ms
        (counters(fp_assists=0), counters(fp_assists=50_000)),
        # the setting differs, and what was counted says that no denormal was met
        (
            {**counters(fp_assists=0), **settings(framework_denormals="flushed")},
            {**counters(fp_assists=90), **settings(framework_denormals="flushed")},
        ),
        # a tenth less, which explains a ninth of twice the time
        ({"cpu_clock_mhz": 3_600.0}, {"cpu_clock_mhz": 3_200.0}),
        # 0.1 of 10 ms
        (
            counters(cache_misses=1_000),
            {**counters(cache_misses=100_000), **FAST_COPIES},
        ),
        (counters(instructions=100_000_000), counters(instructions=140_000_000)),
        # as crowded as the other
        (
            {"timing_threads": [thread(60, "1"), thread(60, "1")]},
            {"timing_threads": [thread(60, "1", 40), thread(60, "1", 40)]},
        ),
        # more busy threads than CPUs, but they wait as long as in the other run
        (
            {"timing_threads": [thread(60, "0", 40), thread(9, "0")]},
            {"timing_threads": [thread(60, "1", 40), thread(60, "1", 40)]},
        ),
        # the second does a tenth of the work
        (
            {"timing_threads": [thread(90, "0"), thread(90, "1")]},
            {"timing_threads": [thread(90, "1"), thread(9, "1", 40)]},
        ),
    ],
)
def test_what_explains_little_is_no_reason(fast: Facts, slow: Facts) -> None:
    assert name_of(fast, slow) == "not recorded"


def test_clocks_that_are_nearly_alike_explain_no_small_difference() -> None:
    fast, slow = ({"cpu_clock_mhz": mhz} for mhz in (3_600.0, 3_500.0))  # 2.9 % of 4 %
    assert reason(run(1000 * MS, fast, "a"), run(1040 * MS, slow, "b")).name == "not recorded"


def test_counted_assists_decide_whether_kept_denormals_are_the_reason() -> None:
    kept, flushed = (settings(framework_denormals=word) for word in ("kept", "flushed"))
    for assists, name in ((600_000, "denormals"), (20, "settings")):
        fast = {**counters(fp_assists=0), **flushed}
        assert name_of(fast, {**counters(fp_assists=assists), **kept}) == name


def test_on_a_gpu_the_host_s_clock_and_denormals_are_no_reason() -> None:
    fast = {"lane": 0, "denormals_flushed": True, "cpu_clock_mhz": 3_600.0}
    slow = {"lane": 0, "denormals_flushed": False, "cpu_clock_mhz": 1_900.0}
    assert name_of(fast, slow) == "settings"


def test_settings_that_differ_are_told_beside_what_was_counted() -> None:
    fast = {**STEP, "timing_page_faults": 0, **settings(environment={}, onednn=True)}
    variables = {"MALLOC_TRIM_THRESHOLD_": "0"}
    slow = {
        **STEP,
        "timing_page_faults": 18_000,
        **settings(environment=variables, onednn=True),
    }
    found = reason(run(10 * MS, fast, "a"), run(20 * MS, slow, "b"))
    assert found.name == "page faults"
    assert "MALLOC_TRIM_THRESHOLD_ 0 instead of unset" in found.text


def test_a_setting_that_is_the_reason_is_not_told_twice() -> None:
    fast = run(10 * MS, settings(onednn=True, anomaly_mode=False), "a")
    slow = run(20 * MS, settings(onednn=False, anomaly_mode=True), "b")
    found = reason(fast, slow)
    assert (found.name, found.setting) == ("anomaly mode", "anomaly mode")
    assert "oneDNN off instead of on" in found.text
    assert found.text.count("anomaly mode") == 1
    assert compare(fast, slow).to_dict()["findings"][0]["reason"] == "anomaly mode"


def test_the_remedy_is_to_set_what_differs_as_in_the_faster_run() -> None:
    fast = run(10 * MS, settings(onednn=True, anomaly_mode=False), "a")
    slow = run(20 * MS, settings(onednn=False, anomaly_mode=True), "b")
    advice = {a.name: a.fix for a in compare(fast, slow).verdict.fixes}
    assert "oneDNN on" in advice["settings of the faster run"]
    assert "anomaly" not in advice["settings of the faster run"]
    same = run(20 * MS, settings(onednn=True, anomaly_mode=False), "b")
    assert "settings of the faster run" not in {a.name for a in compare(fast, same).verdict.fixes}


def test_a_profile_that_names_onednn_s_ops_in_one_run_tells_the_setting() -> None:
    fast = {**ops("aten::mkldnn_rnn_layer"), **settings(onednn=True)}
    found = reason(
        run(10 * MS, fast, "a"),
        run(20 * MS, {**ops("aten::lstm"), **settings(onednn=False)}, "b"),
    )
    assert (found.name, found.setting) == ("kernel path", "oneDNN")
    assert "settings differ" not in found.text


def test_cpus_are_read_as_linux_lists_them() -> None:
    assert cpu_numbers("0-2,5") == [0, 1, 2, 5]
    assert cpu_numbers("7") == [7]
    assert cpu_numbers("") == []

"""What becomes of an exception of a reader: one line, a log where it is ours, the others go on."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lstmprof.base.errors import DefectError, LstmprofError, ProfileError, RunError, UsageError
from lstmprof.runs.border import border, from_good


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class OddError(Exception):
    def __str__(self) -> str:
        return "odd\x1b[31m" + "!" * 500


def nested(depth: int) -> int:
    return nested(depth + 1)


def log_of(error: LstmprofError) -> Path:
    found = re.fullmatch(r"please report it with (.*\.log)", error.next_step)
    assert found, error
    return Path(found.group(1))


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError("deep"), OverflowError(), OddError(), StopIteration()]
)
def test_what_is_ours_goes_to_a_log_that_is_named(error: Exception, cache: Path) -> None:
    with pytest.raises(DefectError) as raised, border("a.json"):
        raise error
    assert raised.value.fault.startswith("a.json: a bug in lstmprof (")
    assert type(error).__name__ in raised.value.fault
    assert len(str(raised.value).splitlines()) == 1
    assert raised.value.fault.isprintable()
    assert len(raised.value.fault) < 250
    log = log_of(raised.value)
    assert log.parent == cache / "defects"
    text = log.read_text()
    assert "input: a.json" in text
    assert "Traceback" in text
    assert "test_border.py" in text


@pytest.mark.parametrize(("letters", "is_cut"), [(120, False), (121, True)])
def test_what_is_ours_is_told_in_120_letters(letters: int, is_cut: bool) -> None:
    said = "x" * (letters - len("ValueError: "))
    with pytest.raises(DefectError) as raised, border("a.json"):
        raise ValueError(said)
    assert ("x…)" in raised.value.fault) == is_cut
    assert raised.value.fault.count("x") == 120 - len("ValueError: ")


def test_a_recursion_without_end_has_a_short_log() -> None:
    with pytest.raises(DefectError) as raised, border("a.json"):
        nested(0)
    assert 0 < len(log_of(raised.value).read_text()) < 20_000


def test_defects_of_one_process_share_a_log() -> None:
    logs = set()
    for name in ("a.json", "b.json"):
        with pytest.raises(DefectError) as raised, border(name):
            raise KeyError(name)
        logs.add(log_of(raised.value))
    (log,) = logs
    assert re.findall("input: (.*)", log.read_text()) == ["a.json", "b.json"]


def test_where_the_cache_cannot_be_written_the_log_is_where_temporary_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DefectError) as raised, border("a.json"):
        raise KeyError
    log = log_of(raised.value)
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    # nobody can put a link there before
    assert re.fullmatch(r"lstmprof-defects-\w{8}\.log", log.name)
    log.unlink()


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (MemoryError(), "a.json: needs more memory than this machine has; profile fewer steps"),
        (OSError(errno.ENOSPC, "No space left"), "a.json: cannot be read (No space left)"),
        (ProfileError("a.json", "is truncated"), "a.json: is truncated"),
        (UsageError("no such table"), "no such table"),
    ],
)
def test_what_is_expected_has_no_log(error: Exception, fault: str, cache: Path) -> None:
    with pytest.raises(LstmprofError) as raised, border("a.json"):
        raise error
    assert str(raised.value).startswith(fault)
    assert not cache.exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_stops_it_stops_it(stop: type[BaseException]) -> None:
    with pytest.raises(stop), border("a.json"):
        raise stop


def total(numbers: Sequence[int]) -> int:
    """Their sum; 7 is a fault of what is given, 8 is ours, 9 is an option's."""
    for number in numbers:
        if number == 9:
            raise UsageError("nine")
        if number == 8:
            raise KeyError(number)
        if number == 7:
            raise RunError("seven")
    return sum(numbers)


@pytest.mark.parametrize(
    ("numbers", "made", "kinds"),
    [
        ([1, 2], 3, []),
        ([1, 7, 2, 7], 3, [RunError, RunError]),
        ([8, 1, 7], 1, [DefectError, RunError]),
    ],
)
def test_together_what_can_be_made_alone(
    numbers: list[int], made: int, kinds: list[type[Exception]]
) -> None:
    faults: list[LstmprofError] = []
    assert from_good(total, numbers, str, faults.append) == made
    assert [type(fault) for fault in faults] == kinds


@pytest.mark.parametrize(
    ("numbers", "error"),
    [([7], RunError), ([7, 7], RunError), ([8], DefectError), ([1, 9], UsageError)],
)
def test_where_nothing_can_be_made_it_is_raised(numbers: list[int], error: type[Exception]) -> None:
    faults: list[LstmprofError] = []
    with pytest.raises(error):
        from_good(total, numbers, str, faults.append)
    assert faults == []


@pytest.mark.parametrize(
    ("number", "how", "said"),
    [
        (1, {}, "0.json: a bug"),
        (2, {}, "the runs together: a bug"),
        (2, {"together": "a/job"}, "a/job: a bug"),
    ],
)
def test_a_fault_is_of_the_only_input_or_of_all_together(
    number: int, how: dict[str, str], said: str
) -> None:
    def make(items: Sequence[str]) -> None:
        if len(items) == number:
            raise KeyError

    with pytest.raises(DefectError, match=said):
        from_good(make, [f"{n}.json" for n in range(number)], str, lambda fault: None, **how)


@pytest.mark.parametrize(
    "fault", ["copies: the sum exceeds 64 bits", "x/a/events.parquet: damaged"]
)
def test_a_fault_of_a_run_names_it_once(fault: str) -> None:
    with pytest.raises(RunError) as raised, border(Path("x/a")):
        raise RunError(fault, "capture it again")
    assert raised.value.fault == (fault if fault.startswith("x/a") else f"x/a: {fault}")
    assert raised.value.next_step == "capture it again"

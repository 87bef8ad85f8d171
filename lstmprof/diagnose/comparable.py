"""Check whether two runs have equal conditions, such as workload and precision."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from lstmprof.base import names
from lstmprof.base.errors import UsageError
from lstmprof.base.numbers import number_of
from lstmprof.runs.metadata import RunInfo, alike, condition

if TYPE_CHECKING:  # imported for types only, because the breakdown's heading imports this file
    from lstmprof.diagnose.step_profile import StepProfile


def conditions_in_words(info: RunInfo) -> dict[str, str]:
    """Return the known conditions of a run in words: ``{"mode": "train", …}``."""
    w, threads = info.workload, info.threads
    words = {
        "workload": f"{w.name} ({w.sizes})" if w else None,
        "mode": info.mode,
        "precision": info.precision,
        "device": device_in_words(info),
        "threads": number_of(threads, "thread", "threads") if threads else None,
    }
    return {name: text for name, text in words.items() if text}


def device_in_words(info: RunInfo) -> str | None:
    return info.device_name or ", ".join(dict.fromkeys(info.device_names.values())) or None


def disagreements(first: StepProfile, second: StepProfile) -> dict[str, str]:
    """Return the conditions in which two runs differ, with both values as text."""
    differences = {}
    for name in names.CONDITIONS:
        values = [condition(name, profile.info) for profile in (first, second)]
        if values[0] != values[1]:
            if name == "workload":
                values = [profile.info.workload.name for profile in (first, second)]
            mine, theirs = ("unknown" if value is None else value for value in values)
            differences[name] = f"{name} ({mine} and {theirs})"
    return differences


def refuse_unless_comparable(
    first: StepProfile, second: StepProfile, across: Collection[str] = ()
) -> None:
    """Raise a UsageError if two runs differ in a condition that the user does not allow."""
    allowed = valid_conditions(across)
    differ = {n: text for n, text in disagreements(first, second).items() if n not in allowed}
    if differ:
        options = " ".join(f"--across {name}" for name in differ)
        raise UsageError(
            f"{first.name} and {second.name} differ in " + ", ".join(differ.values()),
            f"compare them anyway with {options}",
        )


def valid_conditions(across: Collection[str]) -> Collection[str]:
    for name in across:
        if name not in names.CONDITIONS:
            raise UsageError(f"unknown condition '{name}'", "known: " + ", ".join(names.CONDITIONS))
    return across


def comparable_groups(
    profiles: Iterable[StepProfile], across: Collection[str] = ()
) -> list[list[StepProfile]]:
    """Group runs with equal conditions, such as workload and precision."""
    groups = alike(profiles, attrgetter("info"), valid_conditions(across))
    # put each run with an unknown workload in a group of its own
    single = [] if "workload" in across else [g for g in groups if not g[0].info.workload]
    return [part for g in groups for part in ([[p] for p in g] if g in single else [g])]

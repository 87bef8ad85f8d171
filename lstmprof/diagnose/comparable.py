"""Whether two runs can be compared: what must agree between them, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lstmprof import names
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.errors import UsageError

Facts = Mapping[str, Any]


def _device(facts: Facts) -> str | None:
    named = facts.get("device_names") or {}
    return facts.get("device_name") or next(iter(named.values()), None)


def _workload(facts: Facts) -> str | None:
    workload = facts.get("workload") or {}
    return repr(sorted(workload.items())) if workload else None


#: Conditions that are no field of run.json by their name.
_READ: Mapping[str, Callable[[Facts], Any]] = {"workload": _workload, "device": _device}


def _field(name: str) -> Callable[[Facts], Any]:
    return lambda facts: facts.get(name)


#: What must agree → how it is read from run.json; ``--across`` lets one differ.
CONDITIONS = {name: _READ.get(name) or _field(name) for name in names.CONDITIONS}


@dataclass(frozen=True)
class Disagreement:
    """One condition that differs; None is unknown."""

    condition: str
    one: Any
    other: Any

    def __str__(self) -> str:
        return f"{self.condition} ({_shown(self.one)} against {_shown(self.other)})"


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)


def disagreements(one: StepProfile, other: StepProfile) -> list[Disagreement]:
    """The conditions that differ between two runs."""
    found = []
    for name, read in CONDITIONS.items():
        if read(one.facts) != read(other.facts):
            shown = [_named(name, profile.facts) for profile in (one, other)]
            found.append(Disagreement(name, *shown))
    return found


def _named(condition: str, facts: Facts) -> Any:
    if condition == "workload":
        return (facts.get("workload") or {}).get("name")
    return CONDITIONS[condition](facts)


def refuse_unless_comparable(
    one: StepProfile, other: StepProfile, across: Collection[str] = ()
) -> None:
    """Nothing where two runs agree in all but what ``across`` names.

    Raises:
        UsageError: they differ in something else; or ``across`` names no condition.
    """
    differ = [d for d in disagreements(one, other) if d.condition not in known(across)]
    if differ:
        options = " ".join(f"--across {d.condition}" for d in differ)
        raise UsageError(
            f"{one.name} and {other.name} differ in " + ", ".join(map(str, differ)),
            f"compare them all the same with {options}",
        )


def known(across: Collection[str]) -> Collection[str]:
    """``across``, every name of which is a condition.

    Raises:
        UsageError: one is not.
    """
    for name in across:
        if name not in CONDITIONS:
            raise UsageError(
                f"'{name}' is nothing that must agree", "one of " + ", ".join(CONDITIONS)
            )
    return across


def comparable_groups(
    profiles: Iterable[StepProfile], across: Collection[str] = ()
) -> list[list[StepProfile]]:
    """``profiles`` in groups that can be compared, in their order."""
    read = [how for name, how in CONDITIONS.items() if name not in known(across)]
    groups: dict[str, list[StepProfile]] = {}
    for profile in profiles:
        groups.setdefault(repr([how(profile.facts) for how in read]), []).append(profile)
    return list(groups.values())

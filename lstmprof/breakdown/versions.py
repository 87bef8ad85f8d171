"""Compare the step times of an implementation under different versions of its framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lstmprof.base.package import version_numbers
from lstmprof.breakdown import Breakdown, comparable, compared

#: Entries of run.json's ``versions`` that are not frameworks.
NO_FRAMEWORK = ("lstmprof", "python", "numpy", "nvtx", "cuda", "cudnn")


@dataclass(frozen=True)
class VersionedRun:
    """One run in a comparison of an implementation's framework versions."""

    breakdown: Breakdown
    implementation: str
    version: str  # only what differs between the runs, such as "torch 1.4.0"
    of_first: float | None  # step time / step time with the oldest version


def by_version(breakdowns: Sequence[Breakdown]) -> list[list[VersionedRun]]:
    """Group comparable runs of implementations that have several versions."""
    slowdown = compared(breakdowns)
    groups = [
        [
            row
            for places in _by_implementation(breakdowns, group).values()
            for row in _rows({place: breakdowns[place] for place in places}, slowdown)
        ]
        for group in comparable(breakdowns)
    ]
    return [rows for rows in groups if rows]


def _by_implementation(
    breakdowns: Sequence[Breakdown], group: Sequence[int]
) -> dict[str, list[int]]:
    of: dict[str, list[int]] = {}
    for place in group:
        implementation = breakdowns[place].run.info.implementation
        if implementation:
            of.setdefault(implementation, []).append(place)
    return of


def _rows(breakdowns: Mapping[int, Breakdown], slowdown: Mapping[int, float]) -> list[VersionedRun]:
    """Return an implementation's runs, oldest version first; [] if all versions are equal."""
    versions = {place: _versions(breakdown) for place, breakdown in breakdowns.items()}
    names = dict.fromkeys(name for of in versions.values() for name in of)
    differing = [name for name in names if len({of.get(name) for of in versions.values()}) > 1]
    if not differing:
        return []
    texts = {
        place: ", ".join(f"{n} {of[n]}" for n in differing if n in of)
        for place, of in versions.items()
    }
    order = sorted(texts, key=lambda place: (version_numbers(texts[place]), place))
    first = slowdown.get(order[0])
    return [
        VersionedRun(
            breakdowns[place],
            str(breakdowns[place].run.info.implementation),
            texts[place],
            step / first if (step := slowdown.get(place)) and first else None,
        )
        for place in order
    ]


def _versions(breakdown: Breakdown) -> dict[str, str]:
    versions = (breakdown.run.info.versions or {}).items()
    return {name: str(v) for name, v in versions if v is not None and name not in NO_FRAMEWORK}

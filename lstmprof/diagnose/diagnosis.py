"""Why runs are slow: each against a faster one or by itself, with its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.doubts import Warning
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.result import Table
from lstmprof.breakdown.timings import lost_in_words
from lstmprof.diagnose import at_hand, sentences, settings
from lstmprof.diagnose.causes import SLOWER
from lstmprof.diagnose.certainty import Certainty, Outcome, of_finding, of_run, outcome
from lstmprof.diagnose.certainty.pair import Ratio
from lstmprof.diagnose.comparable import comparable_groups, disagreements, refuse_unless_comparable
from lstmprof.diagnose.document import VERSION
from lstmprof.diagnose.findings import (
    ADVISED_SHARE,
    Difference,
    Finding,
    findings,
    lengths,
    timed,
    untimed,
)
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.findings.reasons import reason
from lstmprof.diagnose.findings.savings import Saving, savings
from lstmprof.diagnose.pairs import against_fastest
from lstmprof.diagnose.ranks import lane_to_dict, overlap_to_dict, straggler_to_dict
from lstmprof.diagnose.remedies import Advice, remedies
from lstmprof.diagnose.roofline import (
    Roofline,
    roofline_of,
)
from lstmprof.diagnose.step_profile import (
    StepProfile,
    labels,
    step_profile_of,
)
from lstmprof.diagnose.verdict import Verdict, verdict_of
from lstmprof.diagnose.verdict_text import markdown_page, page
from lstmprof.diagnose.what_ifs import Asked, WhatIf, what_ifs_of
from lstmprof.events.schema import Column, schema
from lstmprof.numbers import cropped, milliseconds, told_apart

if TYPE_CHECKING:
    import pandas

#: Findings with a smaller share of the whole are left to JSON.
LEAST_SHARE = 0.01
#: Events of some steps that are listed.
MOST_RARE = 3
#: A first step that takes so many steps longer than the other run's has compiled something.
LONG_FIRST_STEP = 10
WATERFALL = (
    Column("kind", pa.string(), "", "kind of time, like matmul or dispatch"),
    Column("fast_ns", pa.int64(), "ns", "time per step of the fast run"),
    Column("slow_ns", pa.int64(), "ns", "time per step of the slow run"),
    Column("delta_ns", pa.int64(), "ns", "slow_ns − fast_ns"),
)
FINDINGS = (
    Column("rank", pa.int64(), "", "1 is the largest"),
    Column("kind", pa.string(), "", "kind of time: docs/diagnosis.md"),
    Column("fast_ns", pa.int64(), "ns", "time of this kind in the fast step", "a run alone"),
    Column("slow_ns", pa.int64(), "ns", "time of this kind in the slow step, or in the only one"),
    Column("delta_ns", pa.int64(), "ns", "slow_ns less fast_ns; sums to the whole difference"),
    Column("share", pa.float64(), "share", "delta_ns over the whole difference or step", "it is 0"),
    Column("saves_ns", pa.int64(), "ns", "what the step would be shorter by without it"),
    Column("certainty", pa.string(), "", "measured, likely or unknown"),
    Column("sentence", pa.string(), "", "the finding with its evidence"),
    Column("fixes", pa.list_(pa.string()), "", "what to change"),
)
_NOTHING = Asked()
_NO_ROOFLINE = (
    "--peaks has no effect, because only runs of lstmprof capture record how much a step computes"
)


@dataclass(frozen=True)
class Explained:
    """A finding with its sentence, its certainty and its fixes."""

    finding: Finding
    sentence: str
    certainty: Certainty
    remedies: tuple[Advice, ...]

    def __repr__(self) -> str:
        return f"<Explained {self.finding.kind}: {self.sentence} ({self.certainty.level})>"


@dataclass(frozen=True)
class Diagnosis:
    """Why the step of ``slow`` takes as long as it does; ``lp.diagnose`` returns it.

    ``fast`` is the run that it is compared with, None for a run alone. ``verdict`` is the result;
    ``repr`` shows it. The ``delta_ns`` of all ``findings`` sum to the difference of the two steps,
    or to the step of a run alone. ``warnings`` are reasons to doubt the times. ``roofline`` is the
    least time of the slow step, None if its work or the device's peak rates are unknown.
    ``what_ifs`` are the replays that were requested.
    """

    fast: StepProfile | None
    slow: StepProfile
    outcome: Outcome
    findings: tuple[Explained, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    roofline: Roofline | None = None
    what_ifs: tuple[WhatIf, ...] = ()

    @property
    def dominant(self) -> Explained | None:
        """The finding that the verdict names; None if there is no difference or no cause."""
        return next((e for e in self.findings if e.finding is self.outcome.cause), None)

    @cached_property
    def verdict(self) -> Verdict:
        """The result: bottleneck, cause, fixes and certainty."""
        found = [explained.finding for explained in self.findings]
        return verdict_of(self.fast, self.slow, found, self.outcome, self.remedies)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return self.verdict.sentence

    @property
    def ratio(self) -> Ratio | None:
        """How many times as long the slow step takes, with its interval; None for a run alone."""
        return self.outcome.ratio

    @property
    def fixes(self) -> tuple[Advice, ...]:
        """What to change, best first."""
        return self.verdict.fixes

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Time of each kind in the fast and the slow step; empty for a run alone."""
        if self.fast is None:
            return ()
        rows = (explained.finding for explained in self.findings)
        return tuple(Difference(f.kind, f.fast_ns, f.slow_ns) for f in rows)

    @property
    def settings(self) -> tuple[settings.Disagreement, ...]:
        """Settings that differ between the two runs; empty for a run alone."""
        return () if self.fast is None else settings.disagreements(self.fast.info, self.slow.info)

    @property
    def lacks(self) -> tuple[tuple[str, Lack], ...]:
        """Data that the profiles do not have, as (run, lack); the slow run comes first."""
        if self.fast is None:
            return tuple((self.slow.label, lack) for lack in self.slow.lacks)
        fast, slow = labels(self.fast, self.slow)
        pairs = ((slow, self.slow), (fast, self.fast))
        return tuple((label, lack) for label, profile in pairs for lack in profile.lacks)

    @property
    def doubts(self) -> tuple[tuple[StepProfile, Warning], ...]:
        """Reasons to doubt the times, as (run, warning); the fast run comes first."""
        runs = (self.slow,) if self.fast is None else (self.fast, self.slow)
        return tuple((profile, doubt) for profile in runs for doubt in profile.doubts)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Data that the profiles do not have, one sentence each.

        If two runs are compared, a sentence begins with the name of its run.
        """
        if self.fast is None:
            return tuple(lack.sentence for _, lack in self.lacks)
        return tuple(f"{run}: {lack.sentence}" for run, lack in self.lacks)

    @property
    def shown(self) -> tuple[Explained, ...]:
        """The findings worth reading: 1 % of the difference or more; ``findings`` has all.

        Empty if two runs are compared and no cause is named.
        """
        if self.fast is not None and self.dominant is None:
            return ()
        return tuple(e for e in self.findings if abs(e.finding.share or 0) >= LEAST_SHARE)

    @property
    def remedies(self) -> tuple[Advice, ...]:
        """All fixes, in the order of the findings."""
        return tuple(advice for explained in self.findings for advice in explained.remedies)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``lstmprof diagnose --format json``; None is unknown.

        The ``delta_ns`` of ``waterfall`` and of ``findings`` each sum to ``difference_ns``; those
        of a run alone sum to ``slow_ns``. ``busy_share`` is of the profiled step, None for a host.
        """
        fast, slow = self.fast, self.slow
        ends = (None, slow.length_ns) if fast is None else lengths(fast, slow)
        return {
            "schema_version": VERSION,
            "slow": slow.name,
            "fast": None if fast is None else fast.name,
            "slow_ns": ends[1],
            "fast_ns": ends[0],
            "difference_ns": None if ends[0] is None else ends[1] - ends[0],
            "steps": "clean" if slow.span is not None else "profiled",
            "state": self.outcome.state,
            "reason": self.outcome.words or None,
            "verdict": self.verdict.to_dict(),
            "settings": [_of(d, "setting", "slow", "fast") for d in self.settings],
            "lacks": [{"run": run, **lack.to_dict()} for run, lack in self.lacks],
            "lane": lane_to_dict(slow.place, slow.lanes),
            "fast_lane": None if fast is None else lane_to_dict(fast.place, fast.lanes),
            "straggler": straggler_to_dict(slow.straggler),
            "overlap": overlap_to_dict(slow.overlap),
            "busy_share": slow.busy_ns / slow.length_ns if slow.device is not None else None,
            "waterfall": [{**asdict(d), "delta_ns": d.delta_ns} for d in self.differences],
            "findings": [_finding(explained) for explained in self.findings],
            "roofline": None if self.roofline is None else _roofline(self.roofline),
            "what_if": [replay.to_dict() for replay in self.what_ifs],
            "doubts": [{"run": profile.name, **asdict(d)} for profile, d in self.doubts],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def waterfall(self) -> Table:
        """Return the time of each kind in both steps as a ``Table``; empty for a run alone."""
        rows = [{**asdict(part), "delta_ns": part.delta_ns} for part in self.differences]
        return Table("waterfall", pa.Table.from_pylist(rows, schema(WATERFALL)), WATERFALL)

    def table(self) -> Table:
        """Return the findings, largest first, as a ``Table``; one row per kind of time."""
        rows = [
            {
                **_of(e.finding, "rank", "kind", "slow_ns", "delta_ns", "share"),
                "fast_ns": None if self.fast is None else e.finding.fast_ns,
                "saves_ns": e.finding.saving.ns,
                "certainty": e.certainty.level,
                "sentence": e.sentence,
                "fixes": [advice.fix for advice in e.remedies],
            }
            for e in self.findings
        ]
        return Table("findings", pa.Table.from_pylist(rows, schema(FINDINGS)), FINDINGS)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the findings, largest first, as a DataFrame; one row per kind of time."""
        return self.table().to_pandas()

    @property
    def kernel_names(self) -> list[str]:
        """Names of the kernels of both runs, to shorten them in sentences."""
        profiles = [profile for profile in (self.fast, self.slow) if profile is not None]
        return [row["name"] for profile in profiles for row in profile.rows("kernels")]

    def __repr__(self) -> str:
        return page(self)

    def _repr_markdown_(self) -> str:
        """Show the lines of ``repr`` in a notebook."""
        return markdown_page(self)


def _of(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _finding(explained: Explained) -> dict[str, Any]:
    finding, reasons = explained.finding, list(explained.certainty.reasons)
    return {
        **_of(finding, "rank", "kind", "group", "fast_ns", "slow_ns", "delta_ns", "share"),
        "saves_ns": finding.saving.ns,
        "saves_by": finding.saving.by,
        "certainty": {"level": explained.certainty.level, "reasons": reasons},
        "reason": _reason(finding),
        "sentence": explained.sentence,
        "counts": [
            {
                "quantity": change.quantity,
                "unit": QUANTITIES[change.quantity].unit,
                **_of(change, "fast", "slow"),
            }
            for change in finding.changes
        ],
        "parts": [asdict(part) for part in finding.parts],
        "largest": [{**asdict(c), "delta_ns": c.delta_ns} for c in finding.largest],
        "remedies": [advice.to_dict() for advice in explained.remedies],
    }


def _reason(finding: Finding) -> str | None:
    """Of calls that are each slower the name of what makes them slower."""
    if finding.kind != SLOWER or finding.fast is None:
        return None
    return reason(finding.fast, finding.slow).name


def _roofline(limit: Roofline) -> dict[str, Any]:
    return {
        "peaks": asdict(limit.peaks),
        **_of(limit, "step_ns", "share", "memory_share", "gemm_flops_per_s"),
        "reaches": [
            {**asdict(r), "categories": list(r.categories), "share": r.share} for r in limit.reaches
        ],
    }


def diagnose(
    breakdown: Breakdown,
    other: Breakdown | None = None,
    across: Collection[str] = (),
    asked: Asked = _NOTHING,
) -> Diagnosis:
    """Say why the slower of two runs is slower, or where the step of one run goes.

    ``asked`` are replays, peaks, and the rank and device to diagnose.

    Raises:
        UsageError: the runs differ in a condition that ``across`` does not name, or what is asked
            cannot be answered for the run.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    breakdowns = [breakdown] if other is None else [breakdown, other]
    return diagnose_all(breakdowns, across, asked, must_compare=True)[0]


def diagnose_all(
    breakdowns: Sequence[Breakdown],
    across: Collection[str] = (),
    asked: Asked = _NOTHING,
    *,
    must_compare: bool = False,
) -> list[Diagnosis]:
    """Compare each run with the fastest comparable run; diagnose a run alone if there is none.

    With ``must_compare`` all are compared with the fastest of all.

    Raises:
        UsageError: ``must_compare``, and the runs differ in a condition that ``across`` does not
            name; or what is asked cannot be answered for a run.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    names = told_apart(breakdown.run.name for breakdown in breakdowns)
    breakdown_of = dict(zip(names, breakdowns, strict=True))
    place = asked.rank, asked.device
    profiles = [replace(step_profile_of(b, *place), name=name) for name, b in breakdown_of.items()]
    diagnoses: list[Diagnosis] = []
    for group in [profiles] if must_compare else comparable_groups(profiles, across):
        limits = {p.name: roofline_of(p, profiles, asked.peaks) for p in group}
        pairs = [compare(base, other, across) for base, other in against_fastest(group)]
        diagnoses += [
            replace(_with_times_of_advice(d, group), roofline=limits[d.slow.name]) for d in pairs
        ] or [_alone(p, breakdown_of[p.name], limits[p.name]) for p in group]
    return [_with_what_ifs(d, breakdown_of[d.slow.name], asked) for d in diagnoses]


def _with_times_of_advice(diagnosis: Diagnosis, beside: Sequence[StepProfile]) -> Diagnosis:
    """``diagnosis``, its advice held against what ran ``beside``."""
    findings = []
    for explained in diagnosis.findings:
        told = (at_hand.worth(advice, diagnosis.slow, beside) for advice in explained.remedies)
        findings.append(replace(explained, remedies=tuple(a for a in told if a is not None)))
    return replace(diagnosis, findings=tuple(findings))


def _alone(profile: StepProfile, breakdown: Breakdown, limit: Roofline | None) -> Diagnosis:
    return replace(alone(profile, savings(breakdown, profile, limit)), roofline=limit)


def _with_what_ifs(diagnosis: Diagnosis, breakdown: Breakdown, asked: Asked) -> Diagnosis:
    """``diagnosis`` with what was asked for."""
    limit, notes = diagnosis.roofline, diagnosis.notes
    notes = notes if limit or not asked.peaks else (*notes, _NO_ROOFLINE)
    replays = what_ifs_of(breakdown, diagnosis.slow, limit, asked)
    return replace(diagnosis, what_ifs=replays, notes=notes)


def compare(first: StepProfile, second: StepProfile, across: Collection[str] = ()) -> Diagnosis:
    """Say why the slower of two runs is slower.

    Raises:
        UsageError: the runs differ in a condition that ``across`` does not name.
    """
    refuse_unless_comparable(first, second, across)
    ends = lengths(first, second)
    fast, slow = (first, second) if ends[0] <= ends[1] else (second, first)
    differences = findings(fast, slow)
    told = outcome(fast, slow, differences)
    return Diagnosis(
        fast=fast,
        slow=slow,
        outcome=told,
        findings=_explained(differences, told),
        warnings=tuple(_warnings(fast, slow)),
        notes=tuple(_notes(fast, slow)),
    )


def alone(profile: StepProfile, saved: Mapping[str, Saving] | None = None) -> Diagnosis:
    """Say where the step of one run goes.

    ``saved`` is what the step would be shorter by without a kind of time; all its time by default.
    """
    parts = findings(None, profile, saved)
    told = of_run(profile, parts)
    explained = _explained(parts, told)
    return Diagnosis(
        fast=None,
        slow=profile,
        outcome=told,
        findings=explained,
        warnings=profile.warnings,
        notes=(*_beside(profile), *profile.notes),
    )


def _explained(differences: list[Finding], told: Outcome) -> tuple[Explained, ...]:
    """Each finding with its sentence, and with remedies where it is worth one; each told once."""
    explained, given = [], set[str]()
    for finding in differences:
        certainty = of_finding(finding, differences)
        worth = told.state != "none" and certainty.level != "unknown"
        advice = tuple(a for a in _advice(finding) if worth and a.sentence not in given)
        given |= {a.sentence for a in advice}
        explained.append(Explained(finding, sentences.of_finding(finding), certainty, advice))
    return tuple(explained)


def _advice(finding: Finding) -> tuple[Advice, ...]:
    if (finding.share or 0) < ADVISED_SHARE or finding.delta_ns <= 0:
        return ()
    return remedies(finding)


def _warnings(fast: StepProfile, slow: StepProfile) -> list[str]:
    return [
        f"{label}: {text}"
        for label, profile in zip(labels(fast, slow), (fast, slow), strict=True)
        for text in profile.warnings
    ]


def _notes(fast: StepProfile, slow: StepProfile) -> list[str]:
    notes = [
        *_settings(fast, slow),
        *(f"the runs differ in {d}" for d in disagreements(fast, slow)),
    ]
    if not timed(fast, slow):
        notes.append(f"{untimed(fast, slow)}, so profiled times are compared")
    if (fast.device is None) != (slow.device is None):
        notes.append(
            "one run used a GPU and the other a CPU, so their kinds of time cannot be compared"
        )
    for profile in (fast, slow):
        notes += [f"{profile.name}: {note}" for note in (*_beside(profile), *profile.notes)]
        if profile.info.agrees_with_reference is False:
            notes.append(
                f"{profile.name}: the implementation's file has no load(), so its results were "
                "not checked"
            )
    first_steps = _first_steps(fast, slow)
    return [*notes, first_steps] if first_steps else notes


def _beside(profile: StepProfile) -> list[str]:
    """What the timed steps lost, and what happens now and then."""
    lost = lost_in_words(profile.lost_ns, profile.length_ns, profile.cpu_share)
    rare = [
        f"in only {r.steps} of {profile.steps} steps, {cropped(r.name)} takes "
        f"{milliseconds(r.each_ns)} ms"
        for r in profile.rare[:MOST_RARE]
    ]
    return [*([lost] if lost else []), *rare]


def _settings(fast: StepProfile, slow: StepProfile) -> list[str]:
    """Return the settings that differ, in one line; none if none does."""
    differ = settings.disagreements(fast.info, slow.info)
    names = labels(fast, slow)
    line = f"{names[1]} differs from {names[0]} in settings: {'; '.join(map(str, differ))}"
    return [line] if differ else []


def _first_steps(fast: StepProfile, slow: StepProfile) -> str | None:
    """When the faster run has made good for its longer first step."""
    first, other = (profile.info.compile_ns for profile in (fast, slow))
    gain = slow.length_ns - fast.length_ns
    if first is None or other is None or gain <= 0 or not timed(fast, slow):
        return None
    price = first - other
    if price < LONG_FIRST_STEP * slow.length_ns:
        return None
    name, took = labels(fast, slow)[0], milliseconds(first)
    return f"the long first step of {name} ({took} ms) pays off after {-(-price // gain):,} steps"

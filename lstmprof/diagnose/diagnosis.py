"""Explain why one run is slow, or slower than another run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lstmprof.base.numbers import cropped, made_unique, milliseconds
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.clean.timings import Warning, lost_in_words
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.result import Table
from lstmprof.diagnose.certainty import Certainty, Outcome, certainty_of, outcome, outcome_of_one
from lstmprof.diagnose.certainty.pair import Ratio, no_difference
from lstmprof.diagnose.comparable import comparable_groups, disagreements, refuse_unless_comparable
from lstmprof.diagnose.findings import (
    ADVISED_SHARE,
    Difference,
    Finding,
    findings,
    settings,
    timed,
    untimed,
)
from lstmprof.diagnose.findings.causes import SLOWER
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.findings.reasons import reason
from lstmprof.diagnose.findings.savings import Saving, savings
from lstmprof.diagnose.remedies import Advice, remedies
from lstmprof.diagnose.remedies.cells import layer_in_one_op
from lstmprof.diagnose.roofline import Roofline, roofline_of
from lstmprof.diagnose.step_profile import StepProfile, labels, step_profile_of
from lstmprof.diagnose.verdict import Verdict, sentences, verdict_of
from lstmprof.diagnose.verdict.verdict_text import markdown_page, page
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions, WhatIf, what_ifs_of
from lstmprof.events.schema import Column, schema
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP

if TYPE_CHECKING:
    import pandas


#: Version of the JSON document. docs/diagnose_document.py describes the fields.
VERSION = 4
#: Share of the step or difference below which kinds of time appear only in JSON.
LEAST_SHARE = 0.01
#: Most rare events that the notes name.
MOST_RARE = 3
#: Smallest excess of the fast run's first step over the slow run's first step, in steps of the slow
#: run, at which lstmprof writes a note.
LONG_FIRST_STEP = 10
WATERFALL = (
    Column.text("kind", "kind of time, such as matmul or dispatch"),
    Column.integer("fast_ns", "time per step of the fast run"),
    Column.integer("slow_ns", "time per step of the slow run"),
    Column.integer("delta_ns", "slow_ns − fast_ns"),
)
FINDINGS = (
    Column.integer("rank", "place in the list, from 1; large savings come first"),
    Column.text("kind", "kind of time, such as matmul (docs/diagnosis.md)"),
    Column.integer("fast_ns", "time of this kind in the fast step", "it is a single run"),
    Column.integer("slow_ns", "time of this kind in the slow step, or in a single run's step"),
    Column.integer("delta_ns", "slow_ns − fast_ns; slow_ns for a single run"),
    Column.real("share", "delta_ns divided by the sum of delta_ns over all kinds", "the sum is 0"),
    Column.integer("saves_ns", "how much shorter the step would be without this kind"),
    Column.text("certainty", "measured, likely or unknown"),
    Column.text("sentence", "the finding in one sentence, with its evidence"),
    Column("fixes", pa.list_(pa.string()), "", "what to change"),
)
_DIFFERENCE = ("kind", "fast_ns", "slow_ns", "delta_ns")
_NOTHING = DiagnosisOptions()
_NO_ROOFLINE = (
    "--peaks has no effect: lstmprof knows the FLOPs of a step only for runs of lstmprof capture"
)


@dataclass(frozen=True)
class Explained:
    """A finding (one kind of time, such as matmul) with sentence, certainty and fixes."""

    finding: Finding
    sentence: str
    certainty: Certainty
    remedies: tuple[Advice, ...]

    def __repr__(self) -> str:
        return f"<Explained {self.finding.kind}: {self.sentence} ({self.certainty.level})>"


@dataclass(frozen=True)
class Diagnosis:
    """The result of ``lp.diagnose``: why the step of the run ``slow`` is slow.

    ``fast`` is the run that ``slow`` is compared with. The times in ``findings`` sum to the
    difference between the two steps, or to the step of a single run. ``warnings`` are reasons to
    doubt the times. ``roofline`` is the least time that the device needs for the slow step.
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
        """Return the kind of time that the verdict names."""
        return next((e for e in self.findings if e.finding is self.outcome.cause), None)

    @cached_property
    def verdict(self) -> Verdict:
        """Return the result: bottleneck, cause, fixes and certainty."""
        findings = [explained.finding for explained in self.findings]
        return verdict_of(self.fast, self.slow, findings, self.outcome, self.remedies)

    @property
    def sentence(self) -> str:
        return self.verdict.sentence

    @property
    def ratio(self) -> Ratio | None:
        """Return how many times as long the slow step takes, with a 95 % interval."""
        return self.outcome.ratio

    @property
    def fixes(self) -> tuple[Advice, ...]:
        """Return the fixes, best first."""
        return self.verdict.fixes

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Return the time of each kind, such as matmul, in the steps of both runs."""
        if self.fast is None:
            return ()
        return tuple(explained.finding.difference for explained in self.findings)

    @property
    def settings(self) -> tuple[settings.Disagreement, ...]:
        """Return the settings that differ between the two runs."""
        return () if self.fast is None else settings.disagreements(self.fast.info, self.slow.info)

    @property
    def lacks(self) -> tuple[tuple[str, Lack], ...]:
        """Return the data missing in each profile, by name of the run, slow run first."""
        if self.fast is None:
            return tuple((self.slow.label, lack) for lack in self.slow.lacks)
        fast, slow = labels(self.fast, self.slow)
        pairs = ((slow, self.slow), (fast, self.fast))
        return tuple((label, lack) for label, profile in pairs for lack in profile.lacks)

    @property
    def doubts(self) -> tuple[tuple[StepProfile, Warning], ...]:
        """Return the reasons to doubt the times of each run."""
        runs = (self.slow,) if self.fast is None else (self.fast, self.slow)
        return tuple((profile, doubt) for profile in runs for doubt in profile.doubts)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return a sentence about each kind of missing data."""
        if self.fast is None:
            return tuple(lack.sentence for _, lack in self.lacks)
        return tuple(f"{run}: {lack.sentence}" for run, lack in self.lacks)

    @property
    def shown(self) -> tuple[Explained, ...]:
        """Return the kinds of time to show; () if two runs are compared without a known cause."""
        if self.fast is not None and self.dominant is None:
            return ()
        return tuple(e for e in self.findings if abs(e.finding.share or 0) >= LEAST_SHARE)

    @property
    def remedies(self) -> tuple[Advice, ...]:
        return tuple(advice for explained in self.findings for advice in explained.remedies)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``lstmprof diagnose --format json`` writes.

        docs/diagnose.schema.json describes the fields.
        """
        fast, slow = self.fast, self.slow
        return {
            "schema_version": VERSION,
            "slow": slow.name,
            "fast": None if fast is None else fast.name,
            "slow_ns": slow.length_ns,
            "fast_ns": fast and fast.length_ns,
            "difference_ns": fast and slow.length_ns - fast.length_ns,
            "steps": "clean" if slow.span is not None else "profiled",
            "state": self.outcome.state,
            "reason": self.outcome.words or None,
            "verdict": self.verdict.to_dict(),
            "settings": [_fields(d, "setting", "slow", "fast") for d in self.settings],
            "lacks": [{"run": run, **lack.to_dict()} for run, lack in self.lacks],
            "lane": {**_fields(slow, "rank", "device"), "of": slow.lanes},
            "fast_lane": fast and {**_fields(fast, "rank", "device"), "of": fast.lanes},
            "straggler": slow.straggler and asdict(slow.straggler),
            "overlap": slow.overlap
            and {**asdict(slow.overlap), **_fields(slow.overlap, "overlapped_ns", "share")},
            "busy_share": slow.busy_ns / slow.length_ns if slow.device is not None else None,
            "waterfall": [_fields(d, *_DIFFERENCE) for d in self.differences],
            "findings": [_finding(explained) for explained in self.findings],
            "roofline": None if self.roofline is None else _roofline(self.roofline),
            "what_if": [replay.to_dict() for replay in self.what_ifs],
            "doubts": [{"run": profile.name, **asdict(d)} for profile, d in self.doubts],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def waterfall(self) -> Table:
        """Return the time of each kind, such as matmul, in the steps of both runs."""
        rows = [_fields(d, *_DIFFERENCE) for d in self.differences]
        return Table("waterfall", pa.Table.from_pylist(rows, schema(WATERFALL)), WATERFALL)

    def table(self) -> Table:
        """Return one row per kind of time, largest first."""
        rows = [
            {
                **_fields(e.finding, "rank", "kind", "slow_ns", "delta_ns", "share"),
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
        """Return one row per kind of time, largest first."""
        return self.table().to_pandas()

    @property
    def kernel_names(self) -> list[str]:
        """Return the kernel names of both runs, which sentences show in short form."""
        profiles = [profile for profile in (self.fast, self.slow) if profile is not None]
        return [row["name"] for profile in profiles for row in profile.rows("kernels")]

    def __repr__(self) -> str:
        return page(self)

    def _repr_markdown_(self) -> str:
        """Show this diagnosis in a notebook."""
        return markdown_page(self)


def _fields(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _finding(explained: Explained) -> dict[str, Any]:
    finding, reasons = explained.finding, list(explained.certainty.reasons)
    compared = finding.kind == SLOWER and finding.fast
    slower = reason(compared, finding.slow) if compared else None
    return {
        **_fields(finding, "rank", "kind", "group", "fast_ns", "slow_ns", "delta_ns", "share"),
        "saves_ns": finding.saving.ns,
        "saves_by": finding.saving.by,
        "certainty": {"level": explained.certainty.level, "reasons": reasons},
        "reason": slower.name if slower else None,
        "sentence": explained.sentence,
        "counts": [
            {
                "quantity": change.quantity,
                "unit": QUANTITIES[change.quantity].unit,
                **_fields(change, "fast", "slow"),
            }
            for change in finding.changes
        ],
        "parts": [asdict(part) for part in finding.parts],
        "largest": [{**asdict(c), "delta_ns": c.delta_ns} for c in finding.largest],
        "remedies": [advice.to_dict() for advice in explained.remedies],
    }


def _roofline(limit: Roofline) -> dict[str, Any]:
    return {
        "peaks": asdict(limit.peaks),
        **_fields(limit, "step_ns", "share", "memory_share", "gemm_flops_per_s"),
        "reaches": [
            {**asdict(r), "categories": list(r.categories), "share": r.share} for r in limit.reaches
        ],
    }


def diagnose_all(
    breakdowns: Sequence[Breakdown],
    across: Collection[str] = (),
    wanted: DiagnosisOptions = _NOTHING,
    *,
    must_compare: bool = False,
) -> list[Diagnosis]:
    """Compare each run with the fastest comparable run."""
    names = made_unique(breakdown.run.name for breakdown in breakdowns)
    breakdown_of = dict(zip(names, breakdowns, strict=True))
    place = wanted.rank, wanted.device
    profiles = [replace(step_profile_of(b, *place), name=name) for name, b in breakdown_of.items()]
    diagnoses: list[Diagnosis] = []
    for group in [profiles] if must_compare else comparable_groups(profiles, across):
        limits = {p.name: roofline_of(p, profiles, wanted.peaks) for p in group}
        fastest, *others = sorted(group, key=lambda profile: profile.length_ns)
        pairs = [compare(fastest, other, across) for other in others]
        diagnoses += [
            replace(_with_measured_gains(d, group), roofline=limits[d.slow.name]) for d in pairs
        ]
        # diagnose a run alone if its group has no other run
        for p in () if pairs else group:
            saved = savings(breakdown_of[p.name], p, limits[p.name])
            diagnoses.append(replace(alone(p, saved), roofline=limits[p.name]))
    return [
        replace(
            d,
            what_ifs=what_ifs_of(breakdown_of[d.slow.name], d.slow, d.roofline, wanted),
            notes=(*d.notes, *(() if d.roofline or not wanted.peaks else (_NO_ROOFLINE,))),
        )
        for d in diagnoses
    ]


def _with_measured_gains(diagnosis: Diagnosis, group: Sequence[StepProfile]) -> Diagnosis:
    """Add the measured gain of each fix that another run has, and drop fixes without gain."""
    findings = []
    for explained in diagnosis.findings:
        advice = (with_measured_gain(a, diagnosis.slow, group) for a in explained.remedies)
        findings.append(replace(explained, remedies=tuple(a for a in advice if a is not None)))
    return replace(diagnosis, findings=tuple(findings))


def with_measured_gain(
    advice: Advice, slow: StepProfile, group: Sequence[StepProfile]
) -> Advice | None:
    """Add the gain that the fastest run with this fix shows, or drop the fix (None)."""
    others = [p for p in group if _follows(p, advice, slow)]
    if not others:
        return advice
    other = min(others, key=lambda profile: profile.length_ns)
    gain_ns = slow.length_ns - other.length_ns
    # drop the fix, because the run with the fix is not faster
    if gain_ns <= 0:
        return None
    # keep the fix without a measured gain, because the gain may be noise
    if no_difference(other, slow):
        return advice
    return replace(advice, measured_ns=other.length_ns, measured_with=other.label, gain_ns=gain_ns)


def _follows(other: StepProfile, advice: Advice, slow: StepProfile) -> bool:
    """Return whether the run ``other`` already has this fix."""
    if other.implementation is not None or slow.implementation is not None:
        return other.implementation == advice.implementation is not None
    # a profile without a known implementation shows only one fix: one op per layer
    if other.framework != slow.framework or advice.name != layer_in_one_op.name:
        return False
    for size in ("time_steps", "batch", "inputs", "hidden"):
        here, there = ({row.get(size) for row in p.rows("layers")} for p in (other, slow))
        if None not in here | there and here != there:
            return False
    forms, slow_forms = ({row["form"] for row in p.rows("layers")} for p in (other, slow))
    return forms == {LAYER_OP} and slow_forms <= {LOOP, CELL_OP} and bool(slow_forms)


def compare(first: StepProfile, second: StepProfile, across: Collection[str] = ()) -> Diagnosis:
    """Explain why the slower of two runs is slower."""
    refuse_unless_comparable(first, second, across)
    fast, slow = sorted((first, second), key=lambda profile: profile.length_ns)
    differences = findings(fast, slow)
    result = outcome(fast, slow, differences)
    return Diagnosis(
        fast=fast,
        slow=slow,
        outcome=result,
        findings=_explained(differences, result),
        warnings=tuple(
            f"{label}: {text}"
            for label, profile in zip(labels(fast, slow), (fast, slow), strict=True)
            for text in profile.warnings
        ),
        notes=tuple(_notes(fast, slow)),
    )


def alone(profile: StepProfile, saved: Mapping[str, Saving] | None = None) -> Diagnosis:
    """Explain the step of a single run, with the savings by kind of time."""
    parts = findings(None, profile, saved)
    result = outcome_of_one(profile, parts)
    explained = _explained(parts, result)
    return Diagnosis(
        fast=None,
        slow=profile,
        outcome=result,
        findings=explained,
        warnings=profile.warnings,
        notes=(*_time_notes(profile), *profile.notes),
    )


def _explained(differences: list[Finding], result: Outcome) -> tuple[Explained, ...]:
    """Add a sentence, the certainty and the fixes to each kind of time."""
    explained, given = [], set[str]()
    for finding in differences:
        certainty = certainty_of(finding, differences)
        large = (finding.share or 0) >= ADVISED_SHARE and finding.delta_ns > 0
        is_advised = large and result.state != "none" and certainty.level != "unknown"
        advised = remedies(finding) if is_advised else ()
        # advise each fix once
        advice = tuple(a for a in advised if a.sentence not in given)
        given |= {a.sentence for a in advice}
        explained.append(Explained(finding, sentences.finding_sentence(finding), certainty, advice))
    return tuple(explained)


def _notes(fast: StepProfile, slow: StepProfile) -> list[str]:
    notes = [f"the runs differ in {text}" for text in disagreements(fast, slow).values()]
    if differ := settings.disagreements(fast.info, slow.info):
        names, values = labels(fast, slow), "; ".join(map(str, differ))
        notes.insert(0, f"{names[1]} differs from {names[0]} in settings: {values}")
    if not timed(fast, slow):
        notes.append(f"{untimed(fast, slow)}, so profiled times are compared")
    if (fast.device is None) != (slow.device is None):
        notes.append(
            "one run used a GPU and the other a CPU: compare their step times, not their breakdowns"
        )
    for profile in (fast, slow):
        notes += [f"{profile.name}: {note}" for note in (*_time_notes(profile), *profile.notes)]
        if profile.info.agrees_with_reference is False:
            notes.append(
                f"{profile.name}: lstmprof did not compare the network's results with a float64 "
                "reference, because the implementation's file does not define load(network, "
                "weights), which copies the reference's weights into the network"
            )
    first_steps = _first_steps(fast, slow)
    return [*notes, first_steps] if first_steps else notes


def _time_notes(profile: StepProfile) -> list[str]:
    """Return notes on time lost to other processes, and on ops that run in few steps."""
    lost = lost_in_words(profile.lost_ns, profile.length_ns, profile.cpu_share)
    rare = [
        f"in only {r.steps} of {profile.steps} steps, {cropped(r.name)} takes "
        f"{milliseconds(r.each_ns)} ms"
        for r in profile.rare[:MOST_RARE]
    ]
    return [*([lost] if lost else []), *rare]


def _first_steps(fast: StepProfile, slow: StepProfile) -> str | None:
    """Note after how many steps the fast run has made up for its long first step."""
    first, other = (profile.info.compile_ns for profile in (fast, slow))
    gain = slow.length_ns - fast.length_ns
    if first is None or other is None or gain <= 0 or not timed(fast, slow):
        return None
    price = first - other
    if price < LONG_FIRST_STEP * slow.length_ns:
        return None
    (name, slower), took = labels(fast, slow), milliseconds(first)
    return (
        f"the first step of {name} takes {took} ms, but the later steps are shorter than the steps "
        f"of {slower}: {name} has caught up with {slower} after {-(-price // gain):,} steps"
    )

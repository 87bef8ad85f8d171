"""A diagnosis for programs: its sentence, waterfall and findings with their evidence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.diagnosis import Diagnosis, Explained, WhatIf
from lstmprof.diagnose.findings import (
    Change,
    lengths,
    timed,
)
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.sentences import (
    of_what_if,
)
from lstmprof.diagnose.step_profile import StepProfile


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """All of a diagnosis; unknown is None.

    The ``delta_ns`` of ``waterfall`` sum to ``difference_ns``, those of ``findings`` too; of a run
    alone these sum to ``slow_ns``, its profiled step.
    """
    fast, slow = diagnosis.fast, diagnosis.slow
    ends = (None, slow.profiled_ns) if fast is None else lengths(fast, slow)
    dominant = diagnosis.dominant
    return {
        "slow": slow.name,
        "fast": None if fast is None else fast.name,
        "slow_ns": ends[1],
        "fast_ns": ends[0],
        "difference_ns": None if ends[0] is None else ends[1] - ends[0],
        "steps": "undisturbed" if fast is not None and timed(fast, slow) else "profiled",
        "cause": None if dominant is None else dominant.finding.kind,
        "sentence": diagnosis.sentence,
        "busy_share": _busy_share(slow),
        "waterfall": [{**asdict(d), "delta_ns": d.delta_ns} for d in diagnosis.waterfall],
        "findings": [_finding(explained) for explained in diagnosis.findings],
        "roofline": None if diagnosis.roofline is None else _roofline(diagnosis.roofline),
        "what_if": [_what_if(one) for one in diagnosis.what_ifs],
        "warnings": list(diagnosis.warnings),
        "notes": list(diagnosis.notes),
    }


def _busy_share(profile: StepProfile) -> float | None:
    """Share of the profiled step in which a device was busy; None on a host."""
    return profile.busy_ns / profile.profiled_ns if profile.device is not None else None


def _finding(explained: Explained) -> dict[str, Any]:
    finding = explained.finding
    return {
        "kind": finding.kind,
        "fast_ns": finding.fast_ns,
        "slow_ns": finding.slow_ns,
        "delta_ns": finding.delta_ns,
        "share": finding.share,
        "sentence": explained.sentence,
        "counts": [_count(change) for change in finding.changes],
        "largest": [{**asdict(c), "delta_ns": c.delta_ns} for c in finding.largest],
        "remedies": [asdict(advice) for advice in explained.remedies],
    }


def _count(change: Change) -> dict[str, Any]:
    unit = QUANTITIES[change.quantity].unit
    return {"quantity": change.quantity, "unit": unit, "fast": change.fast, "slow": change.slow}


def _roofline(limit: Roofline) -> dict[str, Any]:
    return {
        "peaks": asdict(limit.peaks),
        "step_ns": limit.step_ns,
        "share": limit.share,
        "memory_share": limit.memory_share,
        "gemm_flops_per_s": limit.gemm_flops_per_s,
        "reaches": [{**asdict(reach), "share": reach.share} for reach in limit.reaches],
    }


def _what_if(one: WhatIf) -> dict[str, Any]:
    found = one.prediction
    state, part, ns = found.bottleneck or (None, None, None)
    return {
        "change": one.name,
        "observed_ns": found.observed_ns,
        "replayed_ns": found.replayed_ns,
        "predicted_ns": found.predicted_ns,
        "saved_ns": found.saved_ns,
        "undisturbed_ns": found.undisturbed_ns,
        "bottleneck": {"state": state, "part": part, "ns": ns},
        "sentence": of_what_if(one.name, found),
    }

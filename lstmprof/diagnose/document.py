"""A diagnosis for programs: its sentence, waterfall and findings with their evidence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lstmprof.diagnose.counts import QUANTITIES
from lstmprof.diagnose.diagnosis import Diagnosis, Explained, WhatIf
from lstmprof.diagnose.findings import lengths, timed
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.sentences import of_what_if


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """All of a diagnosis as JSON has it; unknown is None.

    The ``delta_ns`` of ``waterfall`` sum to ``difference_ns``, those of ``findings`` too; of a run
    alone these sum to ``slow_ns``, its profiled step. ``busy_share`` is of that; None on a host.
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
        "busy_share": slow.busy_ns / slow.profiled_ns if slow.device is not None else None,
        "waterfall": [{**asdict(d), "delta_ns": d.delta_ns} for d in diagnosis.differences],
        "findings": [_finding(explained) for explained in diagnosis.findings],
        "roofline": None if diagnosis.roofline is None else _roofline(diagnosis.roofline),
        "what_if": [_what_if(replay) for replay in diagnosis.what_ifs],
        "warnings": list(diagnosis.warnings),
        "notes": list(diagnosis.notes),
    }


def _of(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _finding(explained: Explained) -> dict[str, Any]:
    finding = explained.finding
    return {
        **_of(finding, "kind", "fast_ns", "slow_ns", "delta_ns", "share"),
        "sentence": explained.sentence,
        "counts": [
            {
                "quantity": change.quantity,
                "unit": QUANTITIES[change.quantity].unit,
                **_of(change, "fast", "slow"),
            }
            for change in finding.changes
        ],
        "largest": [{**asdict(c), "delta_ns": c.delta_ns} for c in finding.largest],
        "remedies": [asdict(advice) for advice in explained.remedies],
    }


def _roofline(limit: Roofline) -> dict[str, Any]:
    return {
        "peaks": asdict(limit.peaks),
        **_of(limit, "step_ns", "share", "memory_share", "gemm_flops_per_s"),
        "reaches": [{**asdict(reach), "share": reach.share} for reach in limit.reaches],
    }


def _what_if(what_if: WhatIf) -> dict[str, Any]:
    prediction = what_if.prediction
    bottleneck = prediction.bottleneck or (None, None, None)
    return {
        "change": what_if.name,
        **_of(prediction, "observed_ns", "replayed_ns", "predicted_ns", "saved_ns"),
        "undisturbed_ns": prediction.undisturbed_ns,
        "bottleneck": dict(zip(("state", "part", "ns"), bottleneck, strict=True)),
        "sentence": of_what_if(what_if.name, prediction),
    }

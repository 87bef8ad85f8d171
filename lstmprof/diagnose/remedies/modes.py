"""What a mode or a setting does beside the work: checks, fills, denormals, threads."""

from __future__ import annotations

import re

from lstmprof.diagnose import causes, settings
from lstmprof.diagnose.causes import DISPATCH, LAUNCH, MEMORY, SYNC
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import HOST, TORCH, WORK, Remedy, Told, often, total
from lstmprof.diagnose.step_profile import labels
from lstmprof.numbers import cropped, listed

#: What anomaly mode calls for each gradient, as often; torch 2 has the second.
_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::item")
_NODE = re.compile(r"autograd::engine::evaluate_function: (?!torch::autograd::AccumulateGrad)")


def anomaly_mode(f: Finding) -> Told | None:
    """Autograd looks for NaN in what every node puts out."""
    rows = f.slow.rows("ops")
    checks = next((r["count"] for r in rows if r["name"] == _CHECKS[0]), 0)
    nodes = sum(r["count"] for r in rows if _NODE.search(r["name"]))
    if not nodes or checks < nodes:
        return None
    spent = "host_total_ns" if f.slow.device is None else "device_total_ns"
    times = [r.get(spent) for r in rows if r["name"] in _CHECKS and r["count"] == checks]
    known = [ns for ns in times if ns is not None]
    return Told(
        "every node of the backward pass is searched for NaN "
        f"({often(f.slow, checks / f.slow.steps)}): anomaly mode is on, "
        "torch.autograd.set_detect_anomaly(False)",
        round(sum(known) / f.slow.steps) if known else None,
    )


def filled_memory(f: Finding) -> Told | None:
    """New memory is filled before it is used: what deterministic algorithms ask for."""
    filled = f.slow.seen.filled
    if not filled:
        return None
    times = often(f.slow, sum(h.count for h in filled))
    return Told(
        f"new tensors are filled before they are written, {times}: deterministic algorithms do "
        "that; torch.utils.deterministic.fill_uninitialized_memory = False leaves it out",
        total(filled),
    )


def denormals(f: Finding) -> Told | None:
    """A CPU that computes with denormal numbers, and is slower than one that does not."""
    if f.fast is None or f.slow.device is not None:
        return None
    if (settings.denormals(f.fast.info), settings.denormals(f.slow.info)) != ("flushed", "kept"):
        return None
    return Told(
        "the faster run flushed denormal numbers to zero, this one did not: "
        "torch.set_flush_denormal(True)"
    )


def faster_settings(f: Finding) -> Told | None:
    """What was set otherwise in the faster run, but what has a remedy of its own."""
    differ = [] if f.fast is None else settings.disagreements(f.fast.info, f.slow.info)
    others = [d for d in differ if d.setting not in (settings.DENORMALS, settings.ANOMALY)]
    if f.fast is None or not others:
        return None
    values = listed([cropped(f"{d.setting} {d.fast}") for d in others])
    return Told(f"set as in {labels(f.fast, f.slow)[0]}: {values}")


NO_ANOMALY_MODE = Remedy(
    name="no anomaly mode",
    cause="anomaly mode searches what every node of the backward pass puts out for NaN",
    condition="a search for NaN for every node of the backward pass",
    kinds=(*HOST, *WORK, SYNC),
    frameworks=TORCH,
    saves="these searches",
    decide=anomaly_mode,
    sources=("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",),
)
LEAVE_UNFILLED = Remedy(
    name="leave memory unfilled",
    cause="deterministic algorithms fill new memory before it is written",
    condition="fill_ inside ops that allocate",
    kinds=(MEMORY, DISPATCH, LAUNCH),
    frameworks=TORCH,
    saves="filling",
    decide=filled_memory,
    sources=("https://docs.pytorch.org/docs/stable/deterministic.html",),
)
FLUSH_DENORMALS = Remedy(
    name="flush denormals",
    cause="a CPU computes with denormal numbers, each with the help of microcode",
    condition="on a CPU the faster run flushed denormal numbers and this one did not",
    kinds=(*WORK, causes.SLOWER),
    frameworks=TORCH,
    decide=denormals,
    sources=(
        "https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
        "https://github.com/pytorch/pytorch/issues/19651",
    ),
)
FASTER_SETTINGS = Remedy(
    name="settings of the faster run",
    cause="the same calls take longer under other settings",
    condition="a setting differs between both, and the same calls take longer in this one",
    kinds=(causes.SLOWER,),
    decide=faster_settings,
    sources=("https://docs.pytorch.org/docs/stable/backends.html",),
)

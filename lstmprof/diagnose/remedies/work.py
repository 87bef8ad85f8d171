"""What makes the work itself less: casts, copies, products, and what a mode does beside it."""

from __future__ import annotations

import re

from lstmprof.diagnose import settings
from lstmprof.diagnose.counts import counted
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import Told, each, often, total
from lstmprof.diagnose.step_profile import labels
from lstmprof.numbers import count, cropped, listed, milliseconds

#: GPUs with TF32: compute capability 8.0 and later; kernels that say so.
_AMPERE = re.compile(r"\b(?:A100|A10|A30|A40|H100|H200|B200|L4|L40|RTX (?:A\d|[3-5]0\d\d))")
_AMPERE_KERNEL = re.compile(r"^(?:ampere|sm80|sm86|sm89|sm90)_|cutlass_(?:80|90)")
#: Products of float32 that use no tensor cores, of cuBLAS.
_FLOAT32_PRODUCT = re.compile(r"sgemm(?!.*tf32)|simt_sgemm")
_RELAYS = ("aten::contiguous", "aten::reshape", "aten::clone", "aten::flatten")
_TO_CHANNELS_LAST = re.compile(r"(?i)nchwtonhwc|nhwctonchw")
#: What anomaly mode calls for each gradient, as often; torch 2 has the second.
_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::item")
_NODE = re.compile(r"autograd::engine::evaluate_function: (?!torch::autograd::AccumulateGrad)")


def casts_each_time_step(f: Finding) -> Told | None:
    """Automatic mixed precision casts in every time step what does not change between them."""
    casts, steps = counted(f.slow, "casts"), f.slow.time_steps
    if not str(f.slow.info.precision).startswith("amp") or not steps or casts < steps:
        return None
    took = sum(c.ns for c in f.contributors if "cast" in (c.part, c.purpose))
    return Told(
        f"autocast casts {count(casts / steps)} times a time step: cast weights and inputs once "
        "before the loop, or keep the weights in half precision",
        round(took * (1 - 1 / steps)),
    )


def casts(f: Finding) -> Told | None:
    """Who casts from what to what, the largest."""
    rows = sorted(f.slow.rows("casts"), key=lambda row: -row["total_ns"])
    if not rows or rows[0]["op"] is None:
        return None
    row = rows[0]
    types = f" from {row['from_dtype']} to {row['to_dtype']}" if row["to_dtype"] else ""
    op, times = cropped(row["op"]), often(f.slow, row["count"] / f.slow.steps)
    within = f" in {cropped(row['within'])}" if row["within"] else ""
    return Told(
        f"{op}{within} casts{types} {times}: keep what it casts in the type that is needed there",
        round(row["total_ns"] / f.slow.steps),
    )


def contiguous(f: Finding) -> Told | None:
    """Copies into another layout that torch was asked for or had to make."""
    moved = [h for h in f.slow.seen.moved if h.within in _RELAYS]
    if not moved:
        return None
    times = often(f.slow, sum(h.count for h in moved))
    return Told(
        f"{moved[0].within} copies elements into another layout {times}, "
        f"{milliseconds(total(moved))} ms{each(f.slow)}: keep the tensor in the layout in which it "
        "is read, or move it once",
        total(moved),
    )


def channels_last(f: Finding) -> Told | None:
    """Convolutions whose images are turned into the layout that their kernels read, and back."""
    rows = [r for r in f.slow.rows("kernels") if _TO_CHANNELS_LAST.search(r["name"])]
    if not rows:
        return None
    took = round(sum(r["total_ns"] for r in rows) / f.slow.steps)
    times = often(f.slow, sum(r["count"] for r in rows) / f.slow.steps)
    return Told(
        f"images are turned between NCHW and NHWC {times}, {milliseconds(took)} ms{each(f.slow)}: "
        "give the model and its inputs memory_format=torch.channels_last",
        took,
    )


def tf32(f: Finding) -> Told | None:
    """Float32 products on a GPU that has TF32, which is off."""
    info = f.slow.info
    if f.slow.device is None or info.tf32 or info.precision not in (None, "fp32"):
        return None
    rows = [r for r in f.slow.rows("kernels") if _FLOAT32_PRODUCT.search(r["name"])]
    named = f"{info.device_name} {' '.join(info.device_names.values())}"
    ampere = _AMPERE.search(named) or any(_AMPERE_KERNEL.search(r["name"]) for r in rows)
    if not ampere or not rows:
        return None
    how = "--precision tf32 or amp-bf16 runs them on the tensor cores"
    if info.precision is None:
        how = "torch.set_float32_matmul_precision('high') runs them on the tensor cores, with "
        how += "fewer digits"
    return Told(
        f"{cropped(rows[0]['name'])} and such are float32 products: {how}",
        round(sum(r["total_ns"] for r in rows) / f.slow.steps),
    )


def native_ctc(f: Finding) -> Told | None:
    """PyTorch's own CTC kernels ran on a GPU where cuDNN has one."""
    own = [c for c in f.contributors if "ctc_loss_log_alpha" in (c.name or "")]
    if not own:
        return None
    return Told(
        "cuDNN's CTC needs int32 targets on the CPU, concatenated, full-length inputs and blank 0",
        f.slow_ns,
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

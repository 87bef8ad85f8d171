"""Cells that are more than an LSTM: what they add is in no framework's layer op."""

from __future__ import annotations

import re

from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies.told import HOST, WORK, Example, Remedy, Told
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.implementations import LOOP
from lstmprof.numbers import count

#: What is in the cell, by ops that run in every time step; then who has a kernel of such a cell.
_EXTRAS = (
    (
        "a normalisation",
        re.compile(
            r"aten::native_(?:layer|batch|group)_norm$"
            r"|(?i:layer_?norm)\w*/(?:.*:)?(?:Rsqrt|FusedBatchNormV3)$"
        ),
        "haste's LayerNormLSTM is one fused kernel on a GPU",
    ),
    (
        "random numbers, as zoneout or dropout of the state need them,",
        re.compile(r"aten::(?:bernoulli\w*|native_dropout|rand_like)$"),
        "haste's LSTM has zoneout on a GPU",
    ),
)
_PEEPHOLES = "products of the state with a vector of weights, as peepholes are,"
_COMPILED = {
    "torch": "torch.compile the cell alone",
    "tensorflow": "tf.function(jit_compile=True) around the loop fuses it",
    "jax": "jax.jit around the scan fuses it",
}
#: As many calls as time steps, but for a few before or after the loop.
_EACH = 0.9


def extra_in_cell(profile: StepProfile) -> tuple[str, float, str | None] | None:
    """What a loop of cells does in every time step that no layer op does; None where nothing is.

    (what, calls per time step, who has such a cell).
    """
    steps = looped_time_steps(profile)
    if not steps:
        return None
    ops = profile.rows("ops")
    for what, pattern, elsewhere in _EXTRAS:
        times = sum(r["count"] for r in ops if pattern.search(r["name"])) / profile.steps / steps
        if times >= _EACH:
            return what, times, elsewhere
    peepholes = profile.seen.peepholes / steps
    return (_PEEPHOLES, peepholes, None) if peepholes >= 2 * _EACH else None


def looped_time_steps(profile: StepProfile) -> float:
    """Time steps of loops of cells in a step of training; 0 where there is none, or it is unknown.

    By the recurrent layers that the profile shows.
    """
    loops = [row for row in profile.rows("layers") if row["form"] == LOOP and row["time_steps"]]
    return float(sum(row["time_steps"] * (row["calls"] or 0) for row in loops)) / profile.steps


def variant_cell(f: Finding) -> Told | None:
    """A cell that does more in every time step than the layers of libraries do."""
    extra = extra_in_cell(f.slow)
    if extra is None:
        return None
    what, times, elsewhere = extra
    often = "once" if round(times) <= 1 else f"{count(round(times))} times"
    how = [_COMPILED.get(f.slow.framework or ""), elsewhere if f.slow.device is not None else None]
    ways = "; ".join(way for way in how if way)
    after = f": {ways}" if ways else ""
    return Told(
        f"the cell has {what} {often} a time step, and no framework's layer op has that, so its "
        f"loop stays{after}"
    )


FUSE_THE_CELL = Remedy(
    name="fuse the cell",
    cause="a cell with layer normalisation, peepholes or zoneout, which cuDNN and layer ops lack",
    condition="a loop of cells in which a normalisation or random numbers run in every time step, "
    "or two products of the state with a vector of weights",
    kinds=(*HOST, *WORK),
    decide=variant_cell,
    sources=("https://github.com/lmnt-com/haste", "https://arxiv.org/abs/1607.06450"),
    example=Example(
        of="an LSTM in operators with nn.LayerNorm over its gates, 12 time steps, PyTorch on a CPU",
        told="the cell has a normalisation once per time step, and no framework's layer op has "
        "that, so its loop stays: torch.compile the cell alone",
    ),
)

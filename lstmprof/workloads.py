"""The networks: those of the ASR benchmark study by name, and any other that the user describes.

A workload is network + data shape + loss + optimizer; everything an implementation needs to know.
Its weights and its data come from here too, from NumPy and one seed, so that every implementation
starts from the same numbers.

Source of the four names: S. Braun, "LSTM Benchmarks for Deep Learning Frameworks"
(arXiv:1806.01818), tables 1 and 2: the output layer has no bias, cross-entropy looks at the last
time step, CTC at every one. The data are N(0, 1), as the paper says. Sequences of unequal length
are zero-padded and run over their full padded length; only the CTC loss knows the lengths.

Keeps to the standard library, NumPy and Python 3.7: capture workers import it.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Optional, Tuple

from lstmprof.errors import UsageError, unknown_name

LOSSES = ("ce", "ctc", "mse")


@dataclasses.dataclass(frozen=True)
class Workload:
    """One network and the shape of what it is fed."""

    name: str
    layers: int
    hidden: int
    bidirectional: bool
    batch: int
    time_steps: int
    features: int
    classes: int
    loss: str
    labels: Optional[int] = None  # target length of one sequence; CTC only
    shortest: Optional[int] = None  # least sequence length, the longest being time_steps; CTC only
    optimizer: str = "adam"
    learning_rate: float = 1e-3

    @property
    def directions(self) -> int:
        """2 for a bidirectional network, else 1."""
        return 2 if self.bidirectional else 1


NAMED: Tuple[Workload, ...] = (
    Workload("1x320-ce-short", 1, 320, False, 64, 100, 123, 10, "ce"),
    Workload("1x320-ce-long", 1, 320, False, 32, 1000, 123, 10, "ce"),
    Workload("4x320-ce-long", 4, 320, True, 32, 1000, 123, 10, "ce"),
    Workload("4x320-ctc-long", 4, 320, True, 32, 1000, 123, 59, "ctc", labels=100, shortest=500),
)

#: fields an option may override, with the suffix each adds to the name
_SUFFIXES = (
    ("layers", "l"),
    ("hidden", "h"),
    ("bidirectional", "bi"),
    ("batch", "b"),
    ("time_steps", "t"),
    ("features", "d"),
    ("classes", "c"),
    ("loss", ""),
    ("labels", "y"),
)


def named(name: str) -> Workload:
    """The workload called ``name``.

    Raises:
        UsageError: no such workload; says which name is nearest.
    """
    for workload in NAMED:
        if workload.name == name:
            return workload
    raise unknown_name("workload", name, [w.name for w in NAMED])


def with_overrides(workload: Workload, **fields: object) -> Workload:
    """``workload`` with every field that is not None replaced, and a name that says so.

    CTC's lengths and labels keep their proportion to ``time_steps`` unless they are given. A field
    equal to the named workload's own is no override.

    Raises:
        UsageError: the result is no network (a size below 1, CTC targets longer than the sequences
        can spell).
    """
    given = {k: v for k, v in fields.items() if v is not None and v != getattr(workload, k)}
    suffix = "".join(
        "-" + _suffix(field, letter, given[field]) for field, letter in _SUFFIXES if field in given
    )
    changed = dataclasses.replace(workload, name=workload.name + suffix, **given)  # type: ignore[arg-type]
    return _checked(_ctc_lengths(changed, workload, fields.get("labels") is not None))


def _suffix(field: str, letter: str, value: object) -> str:
    if field == "bidirectional":
        return "bi" if value else "uni"
    return "{}{}".format(letter, value)


def _ctc_lengths(changed: Workload, base: Workload, labels_given: bool) -> Workload:
    if changed.loss != "ctc":
        if labels_given:
            raise UsageError(
                "--labels is the length of CTC targets", "add --loss ctc or leave it out"
            )
        return dataclasses.replace(changed, labels=None, shortest=None)
    shortest = max(1, changed.time_steps // 2)
    labels = changed.labels
    if not labels_given:
        per_step = (base.labels or 0) / base.time_steps if base.loss == "ctc" else 0.1
        labels = max(1, int(changed.time_steps * per_step))
    return dataclasses.replace(changed, labels=labels, shortest=shortest)


def _checked(w: Workload) -> Workload:
    for field in ("layers", "hidden", "batch", "time_steps", "features", "classes"):
        if getattr(w, field) < 1:
            raise UsageError("{} must be at least 1, not {}".format(field, getattr(w, field)))
    if w.loss not in LOSSES:
        raise unknown_name("loss", w.loss, LOSSES)
    if w.loss == "ctc":
        assert w.labels is not None
        assert w.shortest is not None
        if w.classes < 2:
            raise UsageError(
                "CTC needs at least 2 classes, one of them the blank", "give --classes 2 or more"
            )
        if w.labels < 1:
            raise UsageError("labels must be at least 1, not {}".format(w.labels))
        if 2 * w.labels > w.shortest + 1:
            raise UsageError(
                "targets of {} labels may need {} time steps, the shortest sequence has {}".format(
                    w.labels, 2 * w.labels - 1, w.shortest
                ),
                "give fewer --labels or more --time-steps",
            )
    return w


Weights = Dict[str, "object"]  # name -> float32 array; NumPy is imported on use


def parameter_shapes(w: Workload) -> Dict[str, Tuple[int, ...]]:
    """Name -> shape of every weight, in PyTorch's names and layout, gates in the order i f g o.

    ``weight_ih_l{k}[_reverse]`` (4·hidden, inputs), ``weight_hh_l{k}[_reverse]`` (4·hidden, hidden)
    and
    ``bias_l{k}[_reverse]`` (4·hidden), ``head`` (classes, directions·hidden). One bias a layer: an
    API with two holds zeros in the second.
    """
    shapes: Dict[str, Tuple[int, ...]] = {}
    for layer in range(w.layers):
        inputs = w.features if layer == 0 else w.directions * w.hidden
        for suffix in ("", "_reverse")[: w.directions]:
            shapes["weight_ih_l{}{}".format(layer, suffix)] = (4 * w.hidden, inputs)
            shapes["weight_hh_l{}{}".format(layer, suffix)] = (4 * w.hidden, w.hidden)
            shapes["bias_l{}{}".format(layer, suffix)] = (4 * w.hidden,)
    shapes["head"] = (w.classes, w.directions * w.hidden)
    return shapes


def weights(w: Workload, seed: int) -> Weights:
    """The shared initial weights, float32, U(−1/√hidden, 1/√hidden), as ``parameter_shapes``."""
    import numpy as np

    rng = np.random.RandomState(seed)
    bound = w.hidden**-0.5
    return {
        name: rng.uniform(-bound, bound, shape).astype(np.float32)
        for name, shape in parameter_shapes(w).items()
    }


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch of data, NumPy, time-major.

    ``inputs`` (time, batch, features) float32. ``targets``: ce (batch,) int64 classes; mse (batch,
    classes) float32; ctc (batch, labels) int64 in 1…classes−1, 0 being the blank. ``lengths``
    (batch,) int64: time steps of each sequence, all of them ``time_steps`` but for ctc; inputs
    beyond are zero.
    """

    inputs: object
    targets: object
    lengths: object


def batch(w: Workload, seed: int) -> Batch:
    """The shared batch of ``w``; inputs N(0, 1), targets uniform."""
    import numpy as np

    rng = np.random.RandomState(seed + 1)
    inputs = rng.standard_normal((w.time_steps, w.batch, w.features)).astype(np.float32)
    lengths = np.full(w.batch, w.time_steps, dtype=np.int64)
    if w.loss == "mse":
        return Batch(inputs, rng.standard_normal((w.batch, w.classes)).astype(np.float32), lengths)
    if w.loss == "ce":
        return Batch(inputs, rng.randint(0, w.classes, w.batch).astype(np.int64), lengths)
    assert w.shortest is not None
    assert w.labels is not None
    lengths = rng.randint(w.shortest, w.time_steps + 1, w.batch).astype(np.int64)
    lengths[0] = w.time_steps
    inputs[np.arange(w.time_steps)[:, None] >= lengths[None, :]] = 0.0
    return Batch(inputs, rng.randint(1, w.classes, (w.batch, w.labels)).astype(np.int64), lengths)

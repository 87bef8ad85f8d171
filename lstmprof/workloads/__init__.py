"""Networks to measure: networks of published LSTM benchmarks (``studies``), and users' networks.

NumPy makes the weights and data from a seed, so all implementations compute the same numbers.
Capture workers import this file, so Python 3.7 and NumPy must suffice.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Tuple

from lstmprof.base.errors import UsageError, unknown_name
from lstmprof.workloads import corpora

LOSSES = ("ce", "ctc", "mse", "mean")
OPTIMIZERS = ("adam", "sgd")  # sgd: without momentum
#: Cell -> number of gates. The gates' order is PyTorch's: i f g o for lstm, r z n for gru.
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclasses.dataclass(frozen=True)
class Workload:
    """A network, the shape of its data, its loss and its optimizer."""

    name: str
    layers: int
    hidden: int  # units per direction
    bidirectional: bool
    batch: int
    time_steps: int
    features: int
    classes: int
    loss: str  # ctc, ce: cross-entropy, mse: squared error, mean: of all outputs
    labels: Optional[int] = None  # length of the target of each sequence; CTC only
    shortest: Optional[int] = None  # time steps of the shortest sequence; the longest: time_steps
    optimizer: str = "adam"  # one of OPTIMIZERS
    learning_rate: float = 1e-3
    cell: str = "lstm"  # a key of GATES; gru multiplies by the reset gate after the matmul
    # whether an output layer exists; if not, the output is the last hidden state (``classes`` wide)
    head: bool = True
    each_step: bool = False  # ce and mse at every time step
    vocabulary: Optional[int] = None  # inputs are tokens, embedded in ``features`` numbers
    variable_length: bool = False  # layers know the lengths, and skip the padding with zeros
    data: Optional[str] = None  # the user's data file, see ``corpora``

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def every_step(self) -> bool:
        return self.each_step or self.loss in ("ctc", "mean")


#: Fields that options can override, with the field's letter in the workload's name (``-h512``).
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
    ("cell", ""),
    ("variable_length", ""),
    ("data", ""),
)
OVERRIDABLE = tuple(field for field, _ in _SUFFIXES)


def with_overrides(workload: Workload, **fields: object) -> Workload:
    """Replace fields by ``fields`` that are not None, and add the changes to the name."""
    given = {k: v for k, v in fields.items() if v is not None and v != getattr(workload, k)}
    suffix = "".join(
        "-" + _suffix(field, letter, given[field]) for field, letter in _SUFFIXES if field in given
    )
    changed = dataclasses.replace(workload, name=workload.name + suffix, **given)  # type: ignore[arg-type]
    if not changed.head:
        changed = dataclasses.replace(changed, classes=changed.directions * changed.hidden)
    return checked(_lengths(changed, workload, fields.get("labels") is not None))


def _suffix(field: str, letter: str, value: object) -> str:
    if field == "bidirectional":
        return "bi" if value else "uni"
    if field == "variable_length":
        return "varlen" if value else "padded"
    if field == "data":
        return field
    return "{}{}".format(letter, value)


def _lengths(changed: Workload, base: Workload, labels_given: bool) -> Workload:
    shortest = max(1, changed.time_steps // 2)
    if changed.loss != "ctc":
        if labels_given:
            raise UsageError(
                "--labels sets the length of CTC targets, but the loss is not ctc",
                "add --loss ctc, or omit --labels",
            )
        return dataclasses.replace(
            changed, labels=None, shortest=shortest if changed.variable_length else None
        )
    labels = changed.labels
    if not labels_given:
        per_step = (base.labels or 0) / base.time_steps if base.loss == "ctc" else 0.1
        labels = max(1, int(changed.time_steps * per_step))
    return dataclasses.replace(changed, labels=labels, shortest=shortest)


def checked(w: Workload) -> Workload:
    """Return the workload, or raise UsageError for an invalid or contradictory field."""
    for field in ("layers", "hidden", "batch", "time_steps", "features", "classes"):
        if getattr(w, field) < 1:
            raise UsageError("{} must be at least 1, not {}".format(field, getattr(w, field)))
    for kind, choices in (("loss", LOSSES), ("cell", tuple(GATES)), ("optimizer", OPTIMIZERS)):
        if getattr(w, kind) not in choices:
            raise unknown_name(kind, getattr(w, kind), choices)
    if w.loss == "ctc" and not w.head:
        raise UsageError("CTC needs an output layer, which this workload lacks")
    if w.data and (not w.vocabulary or w.variable_length):
        reason = "does not read tokens" if not w.vocabulary else "has --variable-length"
        raise UsageError(
            "{} {}, but --data gives tokens of one length".format(w.name, reason),
            "use --workload imdb-gru or ptb-large",
        )
    if w.variable_length and w.each_step:
        raise UsageError(
            "a loss at every time step needs sequences of one length", "omit --variable-length"
        )
    if w.loss == "ctc":
        if w.labels is None or w.shortest is None:
            raise UsageError("CTC needs the length of the targets and of the shortest sequence")
        if w.classes < 2:
            raise UsageError(
                "CTC needs at least 2 classes, including the blank", "use --classes 2 or more"
            )
        if w.labels < 1:
            raise UsageError("labels must be at least 1, not {}".format(w.labels))
        if 2 * w.labels > w.shortest + 1:
            raise UsageError(
                "CTC may need {} time steps for targets of {} labels, but the shortest sequence "
                "has {} time steps".format(2 * w.labels - 1, w.labels, w.shortest),
                "lower --labels, or raise --time-steps",
            )
    return w


Weights = Dict[str, "object"]  # name -> float32 array; NumPy is imported on use


def parameter_shapes(w: Workload) -> Dict[str, Tuple[int, ...]]:
    """Return the shape of each weight, in PyTorch's names and layout."""
    shapes: Dict[str, Tuple[int, ...]] = {}
    gates = GATES[w.cell] * w.hidden
    for layer in range(w.layers):
        inputs = w.features if layer == 0 else w.directions * w.hidden
        for suffix in ("", "_reverse")[: w.directions]:
            shapes["weight_ih_l{}{}".format(layer, suffix)] = (gates, inputs)
            shapes["weight_hh_l{}{}".format(layer, suffix)] = (gates, w.hidden)
            # one bias per gate: an API with two biases sets the second bias to 0
            shapes["bias_l{}{}".format(layer, suffix)] = (gates,)
    if w.head:
        shapes["head"] = (w.classes, w.directions * w.hidden)
    if w.vocabulary:
        shapes["embedding"] = (w.vocabulary, w.features)
    return shapes


def reordered(rows: Any, places: Tuple[int, ...]) -> Any:
    """Reorder the gates in the rows of weights; (2, 0, 1) puts the last gate first."""
    import numpy as np

    gates = np.split(rows, len(places))
    return np.concatenate([gates[place] for place in places])


def weights(w: Workload, seed: int) -> Weights:
    """Return the initial weights that all implementations share."""
    import numpy as np

    rng = np.random.RandomState(seed)
    bound = w.hidden**-0.5
    return {
        name: rng.uniform(-bound, bound, shape).astype(np.float32)
        for name, shape in parameter_shapes(w).items()
    }


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch of data in NumPy arrays, time first."""

    inputs: object  # float32 (time, batch, features), or int64 tokens (time, batch)
    # ce: int64 classes ([time,] batch). mse: float32 ([time,] batch, classes).
    # ctc: int64 labels from 1 (batch, labels). mean: empty.
    targets: object
    lengths: object  # (batch,): time steps of each sequence; later inputs are zero


def batch(w: Workload, seed: int) -> Batch:
    """Return the data that all implementations share: random, or from the user's file."""
    import numpy as np

    if w.data:
        inputs, targets = corpora.tokens(w, seed)
        return Batch(inputs, targets, np.full(w.batch, w.time_steps, dtype=np.int64))
    rng = np.random.RandomState(seed + 1)
    place: Tuple[int, ...] = (w.time_steps, w.batch)
    if w.vocabulary:
        inputs = rng.randint(0, w.vocabulary, place).astype(np.int64)
    else:
        inputs = rng.standard_normal((*place, w.features)).astype(np.float32)
    lengths = np.full(w.batch, w.time_steps, dtype=np.int64)
    if w.shortest is not None:
        lengths[1:] = rng.randint(w.shortest, w.time_steps + 1, w.batch)[1:]
        inputs[np.arange(w.time_steps)[:, None] >= lengths[None, :]] = 0
    place = place if w.each_step else place[1:]
    if w.loss == "mean":
        return Batch(inputs, np.zeros(0, np.float32), lengths)
    if w.loss == "mse":
        return Batch(inputs, rng.standard_normal((*place, w.classes)).astype(np.float32), lengths)
    if w.loss == "ce":
        return Batch(inputs, rng.randint(0, w.classes, place).astype(np.int64), lengths)
    assert w.labels is not None
    return Batch(inputs, rng.randint(1, w.classes, (w.batch, w.labels)).astype(np.int64), lengths)

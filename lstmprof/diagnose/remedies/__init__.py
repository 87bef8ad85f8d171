"""What to do about a finding: the catalogue of causes, each with its fix, in order.

::

    starting  eager  keras  cells  cpu_layers  layers  sequences  launching  waiting  feeding
        work  modes ─▶ TABLE ─▶ remedies

A row is advised if this profile shows its condition, if it is for the profile's framework, and if
its fix saves enough. Of two runs of one implementation, the slower gets only the advice that the
faster one alone would not get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.diagnose import causes
from lstmprof.diagnose.findings import Finding, findings, lengths
from lstmprof.diagnose.remedies import (
    cells,
    cpu_layers,
    eager,
    feeding,
    keras,
    launching,
    layers,
    modes,
    sequences,
    starting,
    waiting,
    work,
)
from lstmprof.diagnose.remedies.rows import Remedy
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.numbers import milliseconds

#: Pieces of advice for one finding.
MOST = 3
#: A fix for a smaller share of the step, or of the difference between two runs, is not advised.
WORTH = 0.05

#: Framework → the sites of its makers.
_SITES = {
    "torch": ("docs.pytorch.org/", "github.com/pytorch/"),
    "tensorflow": ("www.tensorflow.org/", "github.com/tensorflow/"),
    "jax": ("docs.jax.dev/", "github.com/jax-ml/"),
}

#: The first ``MOST`` rows that match a finding are advised.
TABLE: tuple[Remedy, ...] = (
    starting.PROFILE_LATER,
    starting.WARM_MIOPEN,
    starting.TRACE_ONCE,
    waiting.EVEN_OUT_THE_RANKS,
    modes.NO_ANOMALY_MODE,
    modes.DETACH_THE_STATE,
    sequences.PAD,
    sequences.BATCH_SEQUENCES,
    cells.WHOLE_SEQUENCE,
    cpu_layers.FLOAT32,
    cpu_layers.FLOAT32_NOT_BFLOAT16,
    cpu_layers.PROJECT_AFTERWARDS,
    cpu_layers.LSTM_ON_CPU,
    modes.FLUSH_DENORMALS,
    modes.NO_GRADIENT_HOOKS,
    modes.COMPUTE_ONCE,
    modes.NO_TORCHSCRIPT,
    eager.JIT_THE_WHOLE,
    eager.IN_ONE_FUNCTION,
    keras.KERAS_ON_CUDNN,
    cells.FUSE_THE_CELL,
    keras.PAD_AT_THE_END,
    keras.KERAS_OUT_OF_ITS_LOOP,
    keras.UPGRADE_KERAS,
    cells.CUDNN_FOR_JAX,
    cells.VALUES_IN_LOOP,
    cells.LAYER_IN_ONE_OP,
    cells.INPUTS_AT_ONCE,
    cells.WHOLE_SCAN,
    work.DO_IT_ONCE,
    sequences.UNBIND,
    sequences.SLICE_AT_ONCE,
    layers.FLATTEN_PARAMETERS,
    layers.FLATTEN_ONCE,
    sequences.TIME_FIRST,
    layers.PERSISTENT_KERNELS,
    layers.MIOPEN_LAYER,
    launching.CUDA_GRAPH,
    launching.XLA,
    cells.FUSED_CELL,
    launching.TORCH_COMPILE,
    work.SPARSE_GRADIENT,
    launching.FUSED_OPTIMIZER,
    launching.FUSE_ELEMENTWISE,
    waiting.COMPUTE_ON_THE_DEVICE,
    waiting.ASK_FOR_NO_VALUE,
    waiting.ASK_FOR_NO_SIZE,
    waiting.SYNCHRONISE_ONCE,
    waiting.PIN_MEMORY,
    work.NO_TENSOR_CORES,
    work.MULTIPLES_OF_8,
    work.CAST_ONCE,
    work.KEEP_ONE_TYPE,
    work.CHANNELS_LAST,
    work.KEEP_THE_LAYOUT,
    feeding.WORKERS,
    feeding.PREFETCH,
    feeding.INPUT_BESIDE,
    waiting.EVENT_SOONER,
    waiting.LOOK_INSIDE,
    waiting.RECORD_FRAMES,
    work.TF32,
    work.CUDNN_CTC,
    waiting.ALLOCATE_ONCE,
    waiting.OVERLAP_COMMUNICATION,
    modes.LEAVE_UNFILLED,
    launching.LARGER_BATCH,
    launching.FILL_THE_DEVICE,
    modes.AS_MANY_THREADS,
    modes.FASTER_SETTINGS,
)


@dataclass(frozen=True)
class Advice:
    """A fix that fits a run: what to change, why, and the source of the claim.

    ``cause`` is what makes the step slow, ``seen`` the evidence for it (may be empty), ``fix`` what
    to change. ``framework`` is None if the fix works in all frameworks. ``saves_ns`` is the time
    that the fix addresses, at most; None is unknown. ``implementation`` is the implementation to
    use instead, if any; ``measured_ns`` is its step in a run beside this one, and ``gain_ns`` the
    difference. ``instead`` is new work that takes an unknown part of ``saves_ns``.
    """

    name: str
    cause: str
    fix: str
    condition: str
    framework: str | None
    saves_ns: int | None
    source: str
    seen: str = ""
    implementation: str | None = None
    instead: str | None = None
    measured_ns: int | None = None
    gain_ns: int | None = None

    def __repr__(self) -> str:
        return f"<Advice {self.name}: {self.fix}" + (f"; {self.gain}>" if self.gain else ">")

    @property
    def worth_ns(self) -> int:
        """Time that the fix saves, in ns: as measured, else at most, else 0 (unknown)."""
        return self.gain_ns or self.saves_ns or 0

    @property
    def gain(self) -> str:
        """How much the fix saves and how that is known; empty if unknown."""
        if self.gain_ns is not None:
            return f"saves {milliseconds(self.gain_ns)} ms, measured with {self.implementation}"
        if self.saves_ns is None:
            return ""
        minus = f", minus the time of {self.instead}" if self.instead else ""
        return f"saves up to {milliseconds(self.saves_ns)} ms{minus}"

    @property
    def sentence(self) -> str:
        """The evidence and the fix, as one sentence."""
        return f"{self.seen}; {self.fix}" if self.seen else self.fix

    @property
    def text(self) -> str:
        """The evidence, the fix and how much it saves, as one sentence."""
        return f"{self.sentence} ({self.gain})" if self.gain else self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON has it."""
        return asdict(self)


def remedies(finding: Finding) -> tuple[Advice, ...]:
    """Return the first ``MOST`` pieces of advice for a finding."""
    rows = (remedy for remedy in TABLE if finding.kind in remedy.kinds)
    advice = (_advice(remedy, finding) for remedy in rows)
    return tuple(one for one in advice if one is not None)[:MOST]


def of_most(advice: Sequence[Advice], whole_ns: int, named: Finding | None) -> Advice | None:
    """Return the advice whose cause is the verdict's; None if none qualifies.

    Its fix addresses half of ``whole_ns`` at least. A row that comes ``first`` may save an unknown
    share, or half of the ``named`` finding, and precedes rows ``of_several`` kinds of time.
    """
    wide = {row.name for row in TABLE if row.of_several}
    large = [a for a in advice if a.saves_ns is None or 2 * a.saves_ns >= whole_ns]
    leading = {row.name: row.kinds for row in TABLE if row.first}
    first = [a for a in large if a.name in leading]
    if named is not None and not first:
        own = (a for a in advice if named.kind in leading.get(a.name, ()))
        first = [a for a in own if 2 * a.worth_ns >= named.delta_ns]
    several = [a for a in large if a.name in wide and a.saves_ns is not None]
    return max(first or several, key=lambda a: a.worth_ns, default=None)


def _advice(remedy: Remedy, finding: Finding) -> Advice | None:
    """Return the advice of a row for a finding; None if it does not match or is not worth it."""
    framework = finding.slow.framework
    if remedy.frameworks and framework not in remedy.frameworks:
        return None
    match = remedy.decide(finding)
    if match is None:
        return None
    saves_ns = None if match.saves_ns is None else min(match.saves_ns, _limit_ns(remedy, finding))
    fast = finding.fast
    if fast is not None and _are_twins(finding):
        alone = next((f for f in findings(None, fast) if f.kind == finding.kind), None)
        before = None if alone is None else remedy.decide(alone)
        if before is not None and _is_worth(before.saves_ns, fast.length_ns):
            return None
        if saves_ns is not None and before is not None:
            saves_ns -= before.saves_ns or 0
    if not _is_worth(saves_ns, _whole_ns(finding)):
        return None
    return Advice(
        name=remedy.name,
        cause=match.cause or remedy.cause,
        fix=match.fix or remedy.fix,
        seen=match.seen,
        condition=remedy.condition,
        framework=framework if remedy.frameworks else None,
        saves_ns=saves_ns,
        source=match.source or _source(remedy, framework),
        implementation=match.implementation,
        instead=remedy.instead,
    )


def _source(remedy: Remedy, framework: str | None) -> str:
    """Return the first source that is of ``framework`` or of none; else the first of all."""
    others = [site for of, sites in _SITES.items() if of != framework for site in sites]
    own = (s for s in remedy.sources if not any(s.startswith(f"https://{o}") for o in others))
    return remedy.sources[0] if framework not in _SITES else next(own, remedy.sources[0])


def _limit_ns(remedy: Remedy, finding: Finding) -> int:
    """Return the most that a row can save: the finding's time, or its kinds' if ``of_several``.

    A fix for one wait of a device for its host may save all such waits.
    """
    profile = finding.slow
    kinds = {finding.kind, *(remedy.kinds if remedy.of_several else ())}
    if profile.device is not None and kinds & set(causes.WAITS):
        kinds |= set(causes.WAITS)
    of_kind = causes.by_kind(profile, causes.comparison_of(profile))
    return sum(total_ns(of_kind[kind]) for kind in kinds)


def _is_worth(saves_ns: int | None, whole_ns: int) -> bool:
    return saves_ns is None or saves_ns >= WORTH * whole_ns


def _whole_ns(finding: Finding) -> int:
    """Return the step of a run alone, or the difference of two."""
    if finding.fast is None:
        return finding.slow.length_ns
    ends = lengths(finding.fast, finding.slow)
    return ends[1] - ends[0]


def _are_twins(finding: Finding) -> bool:
    """Return whether two runs are of one implementation and framework, as far as is known."""
    fast, slow = finding.fast, finding.slow
    if fast is None:
        return False
    return (fast.implementation, fast.framework) == (slow.implementation, slow.framework)

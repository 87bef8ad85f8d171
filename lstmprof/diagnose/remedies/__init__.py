"""What to do about a finding: the catalogue of causes, each with its remedy, in order.

::

    starting  eager  launching  keras  variants  cells  loops  cudnn  rocm  tensor_cores  sequences
    weights  waiting  feeding  work  modes
        ─▶ TABLE ─▶ remedies

A remedy is told where its condition is seen in this profile, for the framework of the profile, and
where it addresses enough time. Of two runs of one implementation the slower is told only what the
faster one, alone, would not be told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.diagnose import causes
from lstmprof.diagnose.findings import Finding, findings, lengths
from lstmprof.diagnose.remedies import (
    cells,
    cudnn,
    eager,
    feeding,
    keras,
    launching,
    loops,
    modes,
    rocm,
    sequences,
    starting,
    tensor_cores,
    variants,
    waiting,
    weights,
    work,
)
from lstmprof.diagnose.remedies.told import Remedy
from lstmprof.numbers import milliseconds

#: Remedies told of one finding.
MOST = 3
#: What addresses less of the step, of two runs of their difference, is not worth a remedy.
WORTH = 0.05

#: Where a framework's own pages are.
_SITES = {
    "torch": ("docs.pytorch.org/", "github.com/pytorch/"),
    "tensorflow": ("www.tensorflow.org/", "github.com/tensorflow/"),
    "jax": ("docs.jax.dev/", "github.com/jax-ml/"),
}

#: Of the rows that fit a finding the first ``MOST`` are told.
TABLE: tuple[Remedy, ...] = (
    starting.PROFILE_LATER,
    rocm.WARM_MIOPEN,
    starting.TRACE_ONCE,
    modes.NO_ANOMALY_MODE,
    sequences.PAD,
    sequences.BATCH_SEQUENCES,
    modes.FLUSH_UNDERFLOW,
    modes.NO_GRADIENT_HOOKS,
    modes.COMPUTE_ONCE,
    modes.NO_TORCHSCRIPT,
    eager.JIT_THE_WHOLE,
    eager.IN_ONE_FUNCTION,
    keras.KERAS_ON_CUDNN,
    variants.FUSE_THE_CELL,
    keras.PAD_AT_THE_END,
    keras.KERAS_OUT_OF_ITS_LOOP,
    keras.UPGRADE_KERAS,
    loops.CUDNN_FOR_JAX,
    cells.VALUES_IN_LOOP,
    cells.LAYER_IN_ONE_OP,
    cells.INPUTS_AT_ONCE,
    loops.WHOLE_SCAN,
    work.DO_IT_ONCE,
    sequences.UNBIND,
    sequences.SLICE_AT_ONCE,
    weights.FLATTEN_PARAMETERS,
    weights.UNTIE,
    weights.FLATTEN_ONCE,
    sequences.TIME_FIRST,
    cudnn.PERSISTENT_KERNELS,
    rocm.MIOPEN_LAYER,
    launching.CUDA_GRAPH,
    launching.XLA,
    cells.FUSED_CELL,
    launching.TORCH_COMPILE,
    launching.FUSED_OPTIMIZER,
    waiting.ASK_FOR_NO_VALUE,
    waiting.ASK_FOR_NO_SIZE,
    waiting.SYNCHRONISE_ONCE,
    waiting.PIN_MEMORY,
    tensor_cores.NO_TENSOR_CORES,
    tensor_cores.MULTIPLES_OF_8,
    work.CAST_ONCE,
    work.KEEP_ONE_TYPE,
    work.CHANNELS_LAST,
    work.KEEP_THE_LAYOUT,
    feeding.WORKERS,
    feeding.MORE_WORKERS,
    feeding.PREFETCH,
    feeding.INPUT_BESIDE,
    waiting.EVENT_SOONER,
    waiting.NO_HOST_FUNCTION,
    waiting.LOOK_INSIDE,
    work.TF32,
    work.CUDNN_CTC,
    waiting.ALLOCATE_ONCE,
    waiting.OVERLAP_COMMUNICATION,
    modes.LEAVE_UNFILLED,
    launching.LARGER_BATCH,
    launching.FILL_THE_DEVICE,
    modes.AS_MANY_THREADS,
    modes.FLUSH_DENORMALS,
    modes.FASTER_SETTINGS,
)


@dataclass(frozen=True)
class Advice:
    """A remedy that fits: what to do, why it fits, and where it comes from.

    ``cause`` is what makes the step slow, ``seen`` the evidence for it (may be empty), ``fix``
    what to change. ``framework`` is None if the fix is for any. ``saves_ns`` is the time of the
    clean step that the fix addresses; of two runs of one implementation, what the slower has more
    of it. None is unknown. ``implementation`` is the row that it advises to use, if any, and
    ``measured_ns`` the step of a run of that row beside this one. ``instead`` is what will take an
    unknown part of ``saves_ns``.
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

    @property
    def worth_ns(self) -> int:
        """What it saves: as measured, else as addressed, else 0."""
        return self.gain_ns or self.saves_ns or 0

    @property
    def gain(self) -> str:
        """How much it saves and how that is known; empty if unknown."""
        if self.gain_ns is not None:
            return f"{milliseconds(self.gain_ns)} ms less, measured here"
        if self.saves_ns is None:
            return ""
        less = f", less what {self.instead} takes" if self.instead else ""
        return f"up to {milliseconds(self.saves_ns)} ms less{less}"

    @property
    def sentence(self) -> str:
        """The evidence, then the fix."""
        return f"{self.seen}: {self.fix}" if self.seen else self.fix

    @property
    def text(self) -> str:
        """The evidence, the fix and its gain."""
        return f"{self.sentence} ({self.gain})" if self.gain else self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON has it."""
        return asdict(self)


def remedies(finding: Finding) -> tuple[Advice, ...]:
    """The first ``MOST`` remedies that fit a finding."""
    fitting = (remedy for remedy in TABLE if finding.kind in remedy.kinds)
    advice = (_advice(remedy, finding) for remedy in fitting)
    return tuple(one for one in advice if one is not None)[:MOST]


def of_most(advice: Iterable[Advice], step_ns: int) -> Advice | None:
    """The cause whose time, of several kinds, is most of a step: half of it at least."""
    several = {row.name for row in TABLE if row.of_several}
    large = [a for a in advice if a.name in several and 2 * (a.saves_ns or 0) >= step_ns]
    return max(large, key=lambda a: a.saves_ns or 0, default=None)


def _advice(remedy: Remedy, finding: Finding) -> Advice | None:
    """What ``remedy`` says of a finding; None where it does not fit or is not worth it."""
    framework = finding.slow.framework
    if remedy.frameworks and framework not in remedy.frameworks:
        return None
    told = remedy.decide(finding)
    if told is None:
        return None
    saves_ns = None if told.saves_ns is None else min(told.saves_ns, _limit_ns(remedy, finding))
    if _are_twins(finding):
        before = _of_the_faster(remedy, finding)
        if before is not None and _is_worth(before.saves_ns, before.whole_ns):
            return None
        saved_ns = (before and before.saves_ns) or 0
        saves_ns = None if saves_ns is None else saves_ns - saved_ns
    if not _is_worth(saves_ns, _whole_ns(finding)):
        return None
    of_one = framework if remedy.frameworks else None
    return Advice(
        name=remedy.name,
        cause=remedy.cause,
        fix=told.fix,
        seen=told.seen,
        condition=remedy.condition,
        framework=of_one,
        saves_ns=saves_ns,
        source=told.source or _source(remedy, framework),
        implementation=told.implementation,
        instead=remedy.instead,
    )


def _source(remedy: Remedy, framework: str | None) -> str:
    """The first source that is of ``framework`` or of none; of those of others the first."""
    others = [site for of, sites in _SITES.items() if of != framework for site in sites]
    own = (s for s in remedy.sources if not any(s.startswith(f"https://{o}") for o in others))
    return remedy.sources[0] if framework not in _SITES else next(own, remedy.sources[0])


def _limit_ns(remedy: Remedy, finding: Finding) -> int:
    """The finding's time; of one wait of a device for its host that of all, told together.

    A cause whose time is of several kinds can take the whole step.
    """
    profile = finding.slow
    if remedy.of_several:
        return profile.length_ns
    if profile.device is not None and finding.kind in causes.WAITS:
        return max(finding.slow_ns, profile.waits_for_host_ns)
    return finding.slow_ns


def _is_worth(saves_ns: int | None, whole_ns: int) -> bool:
    return saves_ns is None or saves_ns >= WORTH * whole_ns


def _whole_ns(finding: Finding) -> int:
    """The step of a run alone, the difference of two."""
    if finding.fast is None:
        return finding.slow.length_ns
    ends = lengths(finding.fast, finding.slow)
    return ends[1] - ends[0]


def _are_twins(finding: Finding) -> bool:
    """Whether two runs are of one implementation and framework, or nothing tells them apart."""
    fast, slow = finding.fast, finding.slow
    if fast is None:
        return False
    return (fast.implementation, fast.framework) == (slow.implementation, slow.framework)


@dataclass(frozen=True)
class _Before:
    """What a remedy addresses in the faster run alone, and the length of its step."""

    saves_ns: int | None
    whole_ns: int


def _of_the_faster(remedy: Remedy, finding: Finding) -> _Before | None:
    """What ``remedy`` would address in the faster run alone; None where it does not fit that."""
    if finding.fast is None:
        return None
    alone = next((f for f in findings(None, finding.fast) if f.kind == finding.kind), None)
    told = None if alone is None else remedy.decide(alone)
    return None if told is None else _Before(told.saves_ns, finding.fast.length_ns)

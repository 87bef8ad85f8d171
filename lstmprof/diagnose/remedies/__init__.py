"""The catalogue of causes, each with its fix, in the order in which fixes are advised.

::

    starting  keras  cells  scans  layers  sequences  launching  waiting  feeding  work  modes
        ─▶ TABLE ─▶ remedies

A row is advised if the profile shows its condition, the row is for the profile's framework, and its
fix saves enough time. If two runs of one implementation are compared, advice that the fast run
would get as well is omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.diagnose.findings import Finding, causes, findings
from lstmprof.diagnose.remedies import (
    cells,
    feeding,
    keras,
    launching,
    layers,
    modes,
    scans,
    sequences,
    starting,
    waiting,
    work,
)
from lstmprof.diagnose.remedies.rows import Remedy
from lstmprof.diagnose.step_profile import total_ns
from lstmprof.numbers import in_prose, milliseconds

#: Largest number of fixes for one finding.
MOST = 3
#: A fix is not advised if it saves a smaller share of the step, or of the difference between two
#: runs.
WORTH = 0.05

#: Framework → how the addresses of its makers' pages begin.
_SITES = {
    "torch": ("docs.pytorch.org/", "github.com/pytorch/"),
    "tensorflow": ("www.tensorflow.org/", "github.com/tensorflow/"),
    "jax": ("docs.jax.dev/", "github.com/jax-ml/"),
}

#: All causes. The first ``MOST`` rows that match a finding are advised.
TABLE: tuple[Remedy, ...] = (
    starting.PROFILE_LATER,
    starting.WARM_MIOPEN,
    starting.CAPTURE_ONCE,
    starting.TRACE_ONCE,
    starting.KEEP_IT_COMPILED,
    waiting.EVEN_OUT_THE_RANKS,
    waiting.GROUP_BY_LENGTH,
    modes.NO_ANOMALY_MODE,
    modes.NO_DEBUGGING,
    modes.DETACH_THE_STATE,
    sequences.PAD,
    sequences.BATCH_SEQUENCES,
    cells.WHOLE_SEQUENCE,
    sequences.FLOAT32,
    sequences.FLOAT32_NOT_BFLOAT16,
    sequences.PROJECT_AFTERWARDS,
    sequences.LSTM_ON_CPU,
    modes.FLUSH_DENORMALS,
    modes.NO_GRADIENT_HOOKS,
    modes.COMPUTE_ONCE,
    modes.NO_TORCHSCRIPT,
    starting.JIT_THE_WHOLE,
    starting.IN_ONE_FUNCTION,
    keras.KERAS_ON_CUDNN,
    cells.FUSE_THE_CELL,
    keras.PAD_AT_THE_END,
    keras.KERAS_OUT_OF_ITS_LOOP,
    keras.UPGRADE_KERAS,
    scans.CUDNN_FOR_JAX,
    cells.LOOP_WITHOUT_THE_HOST,
    cells.PARALLEL_FORM,
    cells.VALUES_IN_LOOP,
    cells.LAYER_OUTSIDE_COMPILED_CODE,
    cells.LAYER_IN_ONE_OP,
    cells.INPUTS_AT_ONCE,
    scans.GATES_TOGETHER,
    scans.UNROLL_THE_LOOP,
    scans.WHOLE_SCAN,
    work.DO_IT_ONCE,
    sequences.UNBIND,
    sequences.SLICE_AT_ONCE,
    layers.BFLOAT16_ON_CUDNN,
    layers.CAST_WEIGHTS_ONCE,
    layers.FLATTEN_PARAMETERS,
    layers.FLATTEN_ONCE,
    sequences.TIME_FIRST,
    layers.PERSISTENT_KERNELS,
    layers.MIOPEN_LAYER,
    waiting.ASK_FOR_NO_VALUE,
    launching.CUDA_GRAPH,
    launching.XLA,
    cells.FUSED_CELL,
    launching.TORCH_COMPILE,
    work.SPARSE_GRADIENT,
    launching.FUSED_OPTIMIZER,
    launching.FUSE_ELEMENTWISE,
    waiting.COMPUTE_ON_THE_DEVICE,
    waiting.ASK_FOR_NO_SIZE,
    waiting.SYNCHRONISE_ONCE,
    waiting.PIN_MEMORY,
    waiting.KEEP_ON_THE_GPU,
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
    waiting.LAUNCH_AHEAD,
    waiting.WAIT_BESIDE_THE_STEP,
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
    """A fix that fits a run: what to change, why, and a source.

    ``cause`` is what makes the step slow. ``seen`` is the evidence in the profile; it may be empty.
    ``fix`` is what to change. ``condition`` is what a profile must show for this advice. ``source``
    is the address of a page that explains it. ``framework`` is None if the fix works in every
    framework.

    ``saves_ns`` is the time per step that the fix saves, in ns; it is None if unknown. If
    ``at_most`` it is an upper limit, because a device may wait for other work instead. On a CPU it
    is the time of the work that the fix removes: the step may gain more, if other work then finds
    its data in the caches. ``instead`` names new work that takes an unknown part of ``saves_ns``;
    it is None if there is no such work.

    ``implementation`` is the implementation of ``lstmprof list`` to use instead; it is None if the
    fix is another change. ``measured_with`` is the name of a run that was diagnosed together with
    this one and has the fix, ``measured_ns`` is the step of that run, and ``gain_ns`` is how much
    shorter that step is than this run's. These are None if there is no such run.
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
    measured_with: str | None = None
    gain_ns: int | None = None
    at_most: bool = True

    def __repr__(self) -> str:
        return f"<Advice {self.name}: {self.fix}" + (f"; {self.gain}>" if self.gain else ">")

    @property
    def worth_ns(self) -> int:
        """Return the time per step that the fix saves, in ns.

        The time is measured if possible, else ``saves_ns``, else 0 (unknown).
        """
        return self.gain_ns or self.saves_ns or 0

    @property
    def gain(self) -> str:
        """Return how much the fix saves and whether that was measured; empty if unknown."""
        if self.gain_ns is not None:
            run = in_prose(self.measured_with or "")
            return f"saves {milliseconds(self.gain_ns)} ms, measured with {run}"
        if self.saves_ns is None:
            return ""
        minus = f", minus the time of {self.instead}" if self.instead else ""
        about = "up to" if self.at_most else "about"
        return f"saves {about} {milliseconds(self.saves_ns)} ms{minus}"

    @property
    def sentence(self) -> str:
        """Return the evidence and the fix in one sentence."""
        return f"{self.seen}; {self.fix}" if self.seen else self.fix

    @property
    def text(self) -> str:
        """Return the evidence, the fix and how much it saves, in one sentence."""
        return f"{self.sentence} ({self.gain})" if self.gain else self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return this advice as a dictionary with the fields of the JSON output.

        Unknown values are None.
        """
        return asdict(self)


def remedies(finding: Finding) -> tuple[Advice, ...]:
    """Return the advice for a finding, at most ``MOST`` fixes."""
    rows = (remedy for remedy in TABLE if finding.kind in remedy.kinds)
    advice = (_advice(remedy, finding) for remedy in rows)
    return tuple(one for one in advice if one is not None)[:MOST]


def leading_advice(advice: Sequence[Advice], whole_ns: int, named: Finding | None) -> Advice | None:
    """Return the advice whose cause becomes the verdict's cause, or None if no advice qualifies.

    The fix must save at least half of ``whole_ns``, or an unknown time. Advice from rows of
    ``TABLE`` with ``first`` precedes advice from rows with ``several_kinds``. If no advice with
    ``first`` saves that much, half of the time of the ``named`` finding is enough.
    """
    wide = {row.name for row in TABLE if row.several_kinds}
    large = [a for a in advice if a.saves_ns is None or 2 * a.saves_ns >= whole_ns]
    leading = {row.name: row.kinds for row in TABLE if row.first}
    first = [a for a in large if a.name in leading]
    if named is not None and not first:
        own = (a for a in advice if named.kind in leading.get(a.name, ()))
        first = [a for a in own if 2 * a.worth_ns >= named.delta_ns]
    several = [a for a in large if a.name in wide and a.saves_ns is not None]
    return max(first or several, key=lambda a: a.worth_ns, default=None)


def _advice(remedy: Remedy, finding: Finding) -> Advice | None:
    """Return the advice of ``remedy``, or None if it does not match or saves too little."""
    framework = finding.slow.framework
    if remedy.frameworks and framework not in remedy.frameworks:
        return None
    match = remedy.decide(finding)
    if match is None:
        return None
    saves_ns = None if match.saves_ns is None else min(match.saves_ns, _limit_ns(remedy, finding))
    fast, slow = finding.fast, finding.slow
    # two unknown implementations count as the same
    alike = fast and (fast.implementation, fast.framework) == (slow.implementation, framework)
    if fast is not None and alike:
        alone = next((f for f in findings(None, fast) if f.kind == finding.kind), None)
        before = None if alone is None else remedy.decide(alone)
        if before is not None and _is_worth(before.saves_ns, fast.length_ns):
            return None
        if saves_ns is not None and before is not None:
            saves_ns -= before.saves_ns or 0
    whole_ns = slow.length_ns - (fast.length_ns if fast else 0)
    if not _is_worth(saves_ns, whole_ns):
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
        at_most=finding.slow.device is not None,
    )


def _source(remedy: Remedy, framework: str | None) -> str:
    """Return the first source that is not a page of another framework, else the first one."""
    others = [site for of, sites in _SITES.items() if of != framework for site in sites]
    own = (s for s in remedy.sources if not any(s.startswith(f"https://{o}") for o in others))
    return remedy.sources[0] if framework not in _SITES else next(own, remedy.sources[0])


def _limit_ns(remedy: Remedy, finding: Finding) -> int:
    """Return the most ns per step that a fix can save: the time of all kinds that it affects."""
    profile = finding.slow
    kinds = {finding.kind, *(remedy.kinds if remedy.several_kinds else ())}
    if profile.device is not None and kinds & set(causes.WAITS):
        kinds |= set(causes.WAITS)
    contributors = causes.by_kind(profile)
    return sum(total_ns(contributors[kind]) for kind in kinds)


def _is_worth(saves_ns: int | None, whole_ns: int) -> bool:
    return saves_ns is None or saves_ns >= WORTH * whole_ns

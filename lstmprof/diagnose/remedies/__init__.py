"""Causes of slow steps, and the fix that lstmprof advises for each cause.

::

    starting  keras  cells  scans  layers  sequences  launching  waiting  feeding  work  modes
        ─▶ TABLE ─▶ remedies

``TABLE`` is in the order of advice. Each row is a ``Remedy``: a cause, a fix, and a function that
looks for the cause in a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.base.numbers import in_prose, milliseconds
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

#: Largest number of fixes for one kind of time.
MOST = 3
#: Smallest saving of an advised fix, as a share of the step or of two steps' difference.
WORTH = 0.05

#: Framework → beginnings of the addresses of its documentation and its code.
_SITES = {
    "torch": ("docs.pytorch.org/", "github.com/pytorch/"),
    "tensorflow": ("www.tensorflow.org/", "github.com/tensorflow/"),
    "jax": ("docs.jax.dev/", "github.com/jax-ml/"),
}

#: All causes, in the order in which their fixes are advised.
TABLE: tuple[Remedy, ...] = (
    starting.starts,
    starting.miopen_compiles,
    starting.captures,
    starting.retraces,
    starting.gave_up,
    waiting.late_rank,
    waiting.late_in_turn,
    modes.anomaly_mode,
    modes.debugging,
    modes.undetached,
    sequences.packed_on_cpu,
    sequences.one_by_one,
    cells.one_time_step_per_call,
    sequences.in_float64,
    sequences.in_bfloat16,
    sequences.projected,
    sequences.no_lstm,
    modes.denormals,
    modes.gradient_hooks,
    modes.recomputed,
    modes.scripted_backward,
    starting.jitted_whole,
    starting.outside_of_a_function,
    keras.keras_without_cudnn,
    cells.variant_cell,
    keras.masked,
    keras.standard_loop,
    keras.own_loop,
    scans.scanned_layer,
    cells.loop_asks_host,
    cells.reference_form,
    cells.values_in_loop,
    cells.unrolled_layer,
    cells.cells_of_trees,
    cells.layer_in_one_op,
    cells.input_matmuls,
    scans.gates_apart,
    scans.small_loop,
    scans.scan_of_pytensor,
    work.repeated,
    sequences.indexed_time_steps,
    sequences.slices,
    layers.in_bfloat16_off_cudnn,
    layers.weights_cast,
    layers.weights_apart,
    layers.flattened_each_step,
    sequences.relaid_input,
    layers.persistent_kernels,
    layers.layer_on_miopen,
    waiting.values_read,
    launching.cuda_graph,
    launching.xla,
    cells.separate_gates,
    launching.compiled_step,
    work.dense_table,
    launching.fused_optimizer,
    launching.unfused,
    waiting.computed_on_cpu,
    waiting.sizes_read,
    waiting.device_synchronised,
    waiting.pageable_copies,
    waiting.transfers,
    work.no_tensor_cores,
    work.odd_sizes,
    work.casts_each_time_step,
    work.casts,
    work.channels_last,
    work.relaid_by_choice,
    feeding.loader,
    feeding.dataset,
    feeding.own_input,
    waiting.queued_work,
    waiting.run_dry,
    waiting.script_waits,
    waiting.waits_for_python,
    waiting.hidden_python,
    work.tf32,
    work.native_ctc,
    waiting.allocations,
    waiting.collectives,
    modes.filled_memory,
    launching.larger_batch,
    launching.fill_the_device,
    modes.crowded,
    modes.faster_settings,
)


@dataclass(frozen=True)
class Advice:
    """A fix that fits a run, with its evidence and saving."""

    name: str
    cause: str
    fix: str
    condition: str  # what a profile must show for this advice
    framework: str | None
    saves_ns: int | None  # per step; an upper limit if ``at_most``
    source: str
    seen: str = ""  # evidence in the profile
    implementation: str | None = None  # built-in implementation to use instead
    instead: str | None = None  # new work that takes a part of the saved time
    measured_ns: int | None = None  # step of another run that has the fix
    measured_with: str | None = None
    gain_ns: int | None = None
    at_most: bool = True

    def __repr__(self) -> str:
        return f"<Advice {self.name}: {self.fix}" + (f"; {self.gain}>" if self.gain else ">")

    @property
    def worth_ns(self) -> int:
        """Return the time per step that the fix saves: measured if possible, else computed."""
        return self.gain_ns or self.saves_ns or 0

    @property
    def gain(self) -> str:
        """Return the saving as text, such as ``saves about 3.0 ms``."""
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
        return f"{self.seen}; {self.fix}" if self.seen else self.fix

    @property
    def text(self) -> str:
        return f"{self.sentence} ({self.gain})" if self.gain else self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        return asdict(self)


def remedies(finding: Finding) -> tuple[Advice, ...]:
    """Return at most ``MOST`` fixes for this kind of time, in the order of ``TABLE``."""
    rows = (remedy for remedy in TABLE if finding.kind in remedy.kinds)
    advice = (_advice(remedy, finding) for remedy in rows)
    return tuple(a for a in advice if a is not None)[:MOST]


def leading_advice(advice: Sequence[Advice], whole_ns: int, named: Finding | None) -> Advice | None:
    """Return the advice whose cause the verdict names."""
    wide = {row.name for row in TABLE if row.several_kinds}
    # keep fixes that save at least half of ``whole_ns``, or an unknown time
    large = [a for a in advice if a.saves_ns is None or 2 * a.saves_ns >= whole_ns]
    leading = {row.name: row.kinds for row in TABLE if row.first}
    first = [a for a in large if a.name in leading]
    if named is not None and not first:
        own = (a for a in advice if named.kind in leading.get(a.name, ()))
        first = [a for a in own if 2 * a.worth_ns >= named.delta_ns]
    several = [a for a in large if a.name in wide and a.saves_ns is not None]
    return max(first or several, key=lambda a: a.worth_ns, default=None)


def _advice(remedy: Remedy, finding: Finding) -> Advice | None:
    """Return a row's advice if its cause fits and its fix saves enough."""
    framework = finding.slow.framework
    if remedy.frameworks and framework not in remedy.frameworks:
        return None
    match = remedy.decide(finding)
    if match is None:
        return None
    saves_ns = None if match.saves_ns is None else min(match.saves_ns, _limit_ns(remedy, finding))
    fast, slow = finding.fast, finding.slow
    # two runs count as alike if both implementations are unknown (None)
    alike = fast and (fast.implementation, fast.framework) == (slow.implementation, framework)
    if fast is not None and alike:
        # give no advice if the cause also slows the fast run
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
        # say "about" on a CPU: a step may gain more, because caches then hold other data
        at_most=match.at_most or slow.device is not None,
    )


def _source(remedy: Remedy, framework: str | None) -> str:
    """Return the source to cite, if possible not a page on another framework."""
    others = [site for of, sites in _SITES.items() if of != framework for site in sites]
    own = (s for s in remedy.sources if not any(s.startswith(f"https://{o}") for o in others))
    return remedy.sources[0] if framework not in _SITES else next(own, remedy.sources[0])


def _limit_ns(remedy: Remedy, finding: Finding) -> int:
    """Return the upper limit of a fix's saving, in ns per step."""
    profile = finding.slow
    kinds = {finding.kind, *(remedy.kinds if remedy.several_kinds else ())}
    if profile.device is not None and kinds & set(causes.WAITS):
        kinds |= set(causes.WAITS)
    contributors = causes.by_kind(profile)
    return sum(total_ns(contributors[kind]) for kind in kinds)


def _is_worth(saves_ns: int | None, whole_ns: int) -> bool:
    return saves_ns is None or saves_ns >= WORTH * whole_ns

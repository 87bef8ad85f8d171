"""Compare a run with the layer op of the run's framework, such as torch.nn.LSTM.

A layer op runs all time steps of a layer in one op. lstmprof captures the layer op on this machine,
with the run's network: ``mine takes 3.10× as long as nn.LSTM on this machine``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal

from lstmprof import implementations
from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.base.names import FRAMEWORK_NAMES
from lstmprof.base.numbers import count, listed, milliseconds, percent
from lstmprof.base.package import __version__
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.interpreters import Interpreter, Wish, interpreters, lacks
from lstmprof.capture.request import CaptureRequest, refusal, run_name
from lstmprof.capture.worker.machine import host
from lstmprof.diagnose.certainty.pair import CELLS, in_words
from lstmprof.diagnose.diagnosis import Diagnosis, diagnose_all
from lstmprof.diagnose.recommend.shapes import (
    LAYERS,
    RECORD,
    Shape,
    call_ns,
    is_here,
    shape_of,
    slowest_layer,
)
from lstmprof.diagnose.step_profile import step_profile_of
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP, Implementation
from lstmprof.runs.border import LeaveOut, border
from lstmprof.runs.directory import cache_folder, usable_cache
from lstmprof.runs.metadata import RunInfo
from lstmprof.runs.run import Run, is_run, open_run

#: Framework → implementations that run a layer in one op, the preferred implementation first.
LAYER_ROWS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch-nn-lstm",),
    "tensorflow": ("tf-cudnnlstm", "tf-lstmblockfusedcell"),
    "tensorflow1": ("tf1-cudnnlstm", "tf1-lstmblockfusedcell"),
    "jax": ("jax-cudnn",),
}
#: Implementation → name of its op in messages; ``{cell}`` becomes ``LSTM``, ``GRU`` or ``RNN``.
_OPS = {
    "torch-nn-lstm": "nn.{cell}",
    "tf-cudnnlstm": "CudnnRNNV3",
    "tf-lstmblockfusedcell": "BlockLSTM",
    "tf1-cudnnlstm": "CudnnLSTM",
    "tf1-lstmblockfusedcell": "LSTMBlockFusedCell",
    "jax-cudnn": "jax.experimental.rnn",
}
TABLES = ("ledger", "collectives")
BUILTIN = "builtin"
ITERATIONS = 30
#: Seconds of timed steps per process. A few suffice, because a layer op is fast.
TIMING_S = 5.0

State = Literal["faster", "slower", "same", "unknown"]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Against:
    """How a run compares with its framework's layer op, such as nn.LSTM."""

    run: str
    state: State  # of the layer op, compared with the run
    sentence: str
    builtin: str | None = None  # name of the layer op's run
    op: str | None = None
    factor: float | None = None
    compared: Literal["steps", "layers"] | None = None
    same_machine: bool | None = None
    diagnosis: Diagnosis | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        plain = {name: value for name, value in vars(self).items() if name != "diagnosis"}
        diagnosis = None if self.diagnosis is None else self.diagnosis.to_dict()
        return {**plain, "diagnosis": diagnosis}


def against_builtin(
    breakdown: Breakdown, wanted: DiagnosisOptions, progress: Progress = lambda line: None
) -> Against:
    """Compare a run with the framework's layer op, such as nn.LSTM."""
    name = breakdown.run.name
    try:
        shape = shape_of(breakdown)
        request = request_of(shape, breakdown.run.info.implementation)
    except UsageError as fault:
        step = f"; {fault.next_step}" if fault.next_step == RECORD else ""
        return Against(
            name, "unknown", f"{fault.fault}, so it was not compared with a layer op{step}."
        )
    run = builtin_run(request, breakdown.run, progress)
    op = _OPS[request.implementation].format(cell=shape.workload.cell.upper())
    tables = TABLES if shape.layer is None else (*TABLES, LAYERS)
    best = break_down(run, None, tables)
    if shape.layer is not None:
        return _compare_layers(breakdown, best, shape, shape.layer, op)
    if not same_machine(breakdown.run.info, run.info):
        return _elsewhere(breakdown, best, shape, op)
    return _compare_steps(breakdown, best, shape, op, wanted)


def request_of(shape: Shape, implementation: str | None = None) -> CaptureRequest:
    """Request a capture of the layer op; raise UsageError if the op cannot run here."""
    framework = shape.framework or ""
    called = FRAMEWORK_NAMES.get(framework, framework or "the unknown framework of the run")
    rows = [r for n in LAYER_ROWS.get(framework, ()) if (r := implementations.ROWS.get(n))]
    if not is_here(shape.device):
        raise UsageError("the run used a GPU, but this machine has none")
    reasons = []
    for row in rows:
        request = CaptureRequest(
            row.name,
            shape.workload,
            device=shape.device,
            precision=shape.precision,
            mode=shape.mode,
            iterations=ITERATIONS,
            timing_s=TIMING_S,
            seed=shape.seed,
            threads=shape.threads,
        )
        interpreter = interpreters(row, Wish())[0]
        why = refusal(request) or _lacking(row, interpreter)
        if why is None and row.name != implementation:
            return replace(request, python=interpreter.python)
        reasons.append(why or f"the run already uses {row.name}, the layer op of {called}")
    raise UsageError(listed(reasons) or f"{called} has no op for a whole layer")


def _lacking(row: Implementation, interpreter: Interpreter) -> str | None:
    """Return what is missing to run the implementation, as a clause."""
    if interpreter.environment is None:
        lacking = lacks(row)
        return lacking and f"{row.name}: {lacking}"
    if interpreter.environment.is_made:
        return None
    return f"{row.name} is not installed; lstmprof capture --impl {row.name} installs it"


def builtin_run(request: CaptureRequest, neighbour: Run, progress: Progress) -> Run:
    """Return an existing run of the layer op, or capture a new run."""
    name, cache = run_name(request), cache_folder()
    folder = cache / BUILTIN
    without_device = run_name(replace(request, device="auto"))
    for path in (neighbour.path.parent / name, neighbour.path.parent / without_device):
        if path != neighbour.path and is_run(path) and _serves(open_run(path).info, request):
            progress(f"reusing {path}")
            return open_run(path)
    if is_run(folder / name) and _serves(open_run(folder / name).info, request):
        progress(f"reusing {folder / name}")
        return open_run(folder / name)
    progress(f"capturing {request.implementation} with the same shapes (about a minute)")
    return capture_run(request, usable_cache(cache) / BUILTIN, force=True, progress=progress)


def _serves(info: RunInfo, request: CaptureRequest) -> bool:
    """Return whether an existing run makes the requested capture unnecessary."""
    return (
        info.implementation == request.implementation
        and info.workload.name == request.workload.name
        and (info.precision, info.mode) == (request.precision, request.mode)
        and info.device == request.device
        and info.lstmprof_version == __version__
        and not info.label
        and request.threads in (None, info.threads)
        and info.hardware.cpu_model == host.hardware()["cpu_model"]
        and _is_installed(info)
    )


def _is_installed(info: RunInfo) -> bool:
    """Return whether the run used the version of the framework that is installed here."""
    if not info.framework:
        return False
    version = (info.versions or {}).get(info.framework)
    try:
        return str(version).partition("+")[0] == metadata.version(info.framework).partition("+")[0]
    except metadata.PackageNotFoundError:  # such as tensorflow, if the package is tensorflow-cpu
        return True


def same_machine(first: RunInfo, other: RunInfo) -> bool:
    """Return whether both runs used the same models of CPU and GPU."""
    facts = [(i.hardware.cpu_model, i.hardware.gpu or _gpu(i)) for i in (first, other)]
    return facts[0][0] is not None and facts[0] == facts[1]


def _gpu(info: RunInfo) -> str | None:
    return next(iter(info.device_names.values()), None) if info.device_names else None


def _compare_steps(
    breakdown: Breakdown, best: Breakdown, shape: Shape, op: str, wanted: DiagnosisOptions
) -> Against:
    """Compare the step times of a run and of its layer op, measured on one machine."""
    diagnosis = diagnose_all([breakdown, best], (), wanted, must_compare=True)[0]
    assert diagnosis.fast is not None
    mine, other = diagnosis.slow, diagnosis.fast
    if mine.info is not breakdown.run.info:
        mine, other = other, mine
    name, outcome = breakdown.run.name, diagnosis.outcome
    factor: float | None = None
    state: State = "faster" if mine is diagnosis.slow else "slower"
    ending = f"{op} runs each layer in one op"
    if outcome.state == "none" or not outcome.differs:
        state = "same" if outcome.state == "none" else "unknown"
        what = "both" if state == "same" else "difference unknown:"
        ending += f"; {what} {outcome.words}"
    else:
        assert outcome.ratio is not None
        factor = mine.length_ns / other.length_ns
        times = f"{milliseconds(mine.length_ns)} against {milliseconds(other.length_ns)} ms"
        ratio = f"{times} per step; ratio {in_words(outcome.ratio)}"
        ending += f". {name} takes {factor:.2f}× as long as {op} on this machine ({ratio})"
    sentence = f"{name} {how_it_runs(breakdown, shape)}; {ending}."
    return Against(name, state, sentence, best.run.name, op, factor, "steps", True, diagnosis)


def _elsewhere(breakdown: Breakdown, best: Breakdown, shape: Shape, op: str) -> Against:
    """Report both step times without a ratio, because the machines differ."""
    mine, other = (milliseconds(step_profile_of(each).length_ns) for each in (breakdown, best))
    name = breakdown.run.name
    sentence = (
        f"{name} {how_it_runs(breakdown, shape)} and takes {mine} ms per step; {op} takes {other} "
        f"ms on this machine. The times cannot be compared: {_where(breakdown, best)}."
    )
    return Against(name, "unknown", sentence, best.run.name, op, None, "steps", False)


def _where(breakdown: Breakdown, best: Breakdown) -> str:
    info = breakdown.run.info
    machine = info.hardware.gpu or _gpu(info) or info.hardware.cpu_model
    here_is = best.run.info.device_name or "unknown"
    if machine is None:
        return f"the profile does not name its machine (this machine: {here_is})"
    return f"the profile is from another machine ({machine}; this machine: {here_is})"


def _compare_layers(
    breakdown: Breakdown, best: Breakdown, shape: Shape, layer: Mapping[str, Any], op: str
) -> Against:
    """Compare a profiled call of the slowest layer with a call of the layer op."""
    name, row = breakdown.run.name, slowest_layer(best)
    how = how_it_runs(breakdown, shape)
    if row is None or not call_ns(row) or not call_ns(layer):
        sentence = (
            f"{name} {how}. The profile does not show how long this layer takes, so lstmprof "
            f"cannot compare the layer with {op}."
        )
        return Against(name, "unknown", sentence, best.run.name)
    mine, other = call_ns(layer), call_ns(row)
    what = "forward" if shape.mode == "forward" else "forward and backward"
    times = f"{milliseconds(mine)} against {milliseconds(other)} ms {what}, under the profiler"
    padded = ", over padded sequences" if layer["packed"] else ""
    if not same_machine(breakdown.run.info, best.run.info):
        sentence = (
            f"{name} {how} in {milliseconds(mine)} ms; {op} runs the layer in one op in "
            f"{milliseconds(other)} ms on this machine{padded}. The times cannot be compared: "
            f"{_where(breakdown, best)}."
        )
        return Against(name, "unknown", sentence, best.run.name, op, None, "layers", False)
    factor = mine / other
    share = None if best.timings is None else best.timings.inflation_share
    off = None if share is None else abs(share)
    if off is None or max(factor, 1 / factor) <= 1 + off:
        changes = (
            ""
            if off is None
            else f", because profiling changes the time of a step by {percent(off)}"
        )
        sentence = f"{name} {how}. {op} may be equally fast ({times}){changes}."
        return Against(name, "same", sentence, best.run.name, op, None, "layers", True)
    state: State = "faster" if factor > 1 else "slower"
    sentence = (
        f"{name} {how}; {op} runs the layer in one op{padded}. {name} takes {factor:.2f}× as long "
        f"as {op} on this machine ({times}). This result is likely, but not certain, because "
        f"profiling changes the time of a step by {percent(off)}."
    )
    return Against(name, state, sentence, best.run.name, op, factor, "layers", True)


def how_it_runs(breakdown: Breakdown, shape: Shape) -> str:
    """Describe how a run computes its layer: ``runs 30 LSTMCell steps per batch``."""
    row = shape.layer or slowest_layer(breakdown)
    w = shape.workload
    cells = w.time_steps * w.layers * w.directions
    if row is not None:
        return _by_row(row, cells, w.time_steps)
    implementation = implementations.ROWS.get(breakdown.run.info.implementation or "")
    if implementation is None:
        return f"runs {shape.words}"
    form = implementation.form_on(shape.device.partition(":")[0])
    if form == LAYER_OP:
        return "runs each layer as one op"
    each = "each cell as one op" if form == CELL_OP else "in a loop of separate ops"
    return f"runs {count(cells)} cells per batch, {each} ({implementation.summary})"


def _by_row(row: Mapping[str, Any], cells: int, time_steps: int) -> str:
    form, op = row["form"], row["op"]
    if form == LAYER_OP:
        return f"runs its layer as one op ({op})"
    if form == CELL_OP:
        return f"runs {count(cells)} calls of {CELLS.get(op, op)} per batch"
    assert form == LOOP
    for column, noun in (("ops_per_time_step", "ops"), ("kernels_per_time_step", "kernels")):
        if row[column]:
            each = f"{count(row[column])} {noun} per time step"
            return f"runs {count(time_steps)} time steps per batch in a loop, with {each}"
    return f"runs {count(time_steps)} time steps per batch in a loop of separate ops"


def try_against_builtin(
    breakdown: Breakdown, wanted: DiagnosisOptions, leave_out: LeaveOut, progress: Progress
) -> Against:
    """Compare a run with the framework's layer op, and return an error as a result."""
    name = breakdown.run.name
    try:
        with border(breakdown.run.path):
            return against_builtin(breakdown, wanted, progress)
    except LstmprofError as fault:
        failed = f"{name}: not compared with its layer op: {fault.fault}"
        leave_out(LstmprofError(failed, fault.next_step))
        return Against(name, "unknown", f"{failed}.")

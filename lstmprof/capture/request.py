"""What is to be captured, in JSON for a worker or a script's process."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from typing import Any, Dict, List, Optional, Tuple

from lstmprof import implementations
from lstmprof.capture.implementation_file import ImplementationFile
from lstmprof.errors import UsageError, unknown_name
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload, checked

MODES = ("train", "forward")
#: fp32 is strict; tf32 lets GEMMs round their inputs to TF32; amp-* is the framework's own mixed
#: precision (autocast, with gradient scaling for fp16; a Keras policy)
PRECISIONS = ("fp32", "tf32", "amp-fp16", "amp-bf16")
LONGEST_S = 30 * 86400.0
#: worker processes that share the iterations of a run unless it is asked for otherwise: the fewest
#: that show how far processes of the same code differ
ROUNDS = 3
#: profiled steps of all rounds, unless their number is given: ten are enough for a clean step
PROFILED = 12
#: who may look on from outside in a pass of its own
PY_SPY, PERF = "py-spy", "perf"
SAMPLERS = (PY_SPY, PERF)
#: who records profiled steps: the framework's own profiler, or Nsight Systems from outside
FRAMEWORKS_OWN, NSYS = "framework", "nsys"
PROFILERS = (FRAMEWORKS_OWN, NSYS)

#: where the worker leaves its result, beside the request
RESULT = "result.json"
#: FIFO that the launcher holds open: a process that Nsight Systems started ends with it
LIFELINE = "lifeline"
#: the line by which a worker gives up its turn and asks for the next
TURN = "turn"
#: how a worker's lines begin where others write to the same pipe
MARK = "lstmprof: "


@dataclasses.dataclass(frozen=True)
class CaptureRequest:
    """One capture. The first iteration is a warm-up: its wall time is the compile time."""

    implementation: str
    workload: Workload
    device: str = "auto"  # auto: the first GPU the framework can use, else the CPU
    precision: str = "fp32"  # one of PRECISIONS
    mode: str = "train"  # forward: no gradients, no optimizer; the loss is computed
    iterations: int = 30  # of all rounds: of ROUNDS each one's median has an interval of its own
    timing_s: Optional[float] = None  # after so long no further iteration is timed
    warmup: Optional[int] = None  # None: what the implementation needs (``warmup_iterations``)
    profile_steps: Optional[int] = None  # of a round; None: a share of PROFILED; 0: no profile
    profiler: str = FRAMEWORKS_OWN  # one of PROFILERS
    seed: int = 0
    threads: Optional[int] = None  # None: 1 on the CPU, every allowed CPU on a GPU
    timeout_s: float = 3600.0
    python: str = sys.executable
    cuda_graph: bool = False  # replay the step as a CUDA graph
    xla: bool = False  # compile the step with XLA
    keep_denormals: bool = False  # do not flush them to zero
    onednn: bool = True  # False: leave its kernels to those of the framework's own
    anomaly: bool = False  # search gradients for NaN
    deterministic: bool = False  # deterministic algorithms alone
    peaks: bool = True  # measure what the device does at best, after the passes
    label: str = ""  # what the user calls it: part of the run's name
    sampler: Optional[str] = None  # one of SAMPLERS; None: no sampled pass
    sampler_s: float = 10.0  # how long it looks on, all rounds together
    turn_with: Tuple[str, ...] = ()  # runs with whose workers this one takes turns, itself too
    cpus: Tuple[int, ...] = ()  # to keep to; none: the idlest
    file: Optional[ImplementationFile] = None  # the user's; ``implementation`` is its name then

    def __post_init__(self) -> None:
        """``cuda`` is what frameworks call the first GPU."""
        if self.device == "cuda":
            object.__setattr__(self, "device", "cuda:0")

    @property
    def row(self) -> Implementation:
        """The row of the table, or of the user's file."""
        return implementations.find(self.implementation) if self.file is None else self.file.row

    @property
    def steps_to_profile(self) -> int:
        """Profiled steps of this worker."""
        return PROFILED if self.profile_steps is None else self.profile_steps

    @property
    def warmup_iterations(self) -> int:
        """Iterations before those that count: as asked for, else until the row has settled."""
        if self.warmup is not None:
            return self.warmup
        return self.row.settles_after

    def to_json(self) -> str:
        """The request as the worker reads it."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> CaptureRequest:
        """The request that ``to_json`` wrote."""
        fields = json.loads(text)
        named: Dict[str, Any] = {"workload": Workload(**fields["workload"])}
        named.update({name: tuple(fields.get(name, ())) for name in ("turn_with", "cpus")})
        if fields.get("file") is not None:
            named["file"] = ImplementationFile(**fields["file"])
        return cls(**dict(fields, **named))


def run_name(request: CaptureRequest) -> str:
    """The name of the run that ``request`` makes: what differs between runs, defaults left out."""
    parts = [request.implementation, request.workload.name, request.precision]
    parts += [request.mode] if request.mode != "train" else []
    parts += [request.device.replace(":", "")] if request.device != "auto" else []
    parts += ["cuda-graph"] if request.cuda_graph else []
    parts += ["xla"] if request.xla else []
    parts += [request.profiler] if request.profiler != FRAMEWORKS_OWN else []
    parts += switched(request)
    parts += [request.label] if request.label else []
    return "--".join(parts)


def switched(request: CaptureRequest) -> List[str]:
    """The settings that ``request`` asks for and that are not the usual ones, by their options."""
    settings = (
        ("keep-denormals", request.keep_denormals),
        ("no-onednn", not request.onednn),
        ("anomaly", request.anomaly),
        ("deterministic", request.deterministic),
    )
    return [name for name, is_asked in settings if is_asked]


def wanted(request: CaptureRequest) -> List[str]:
    """What ``request`` needs of an implementation, in the words of ``Implementation.refuses``.

    A worker asks again once ``auto`` is a device: ``cpu`` and ``tf32 on cpu`` are needs too, and
    so are ``cuda-graph on cpu``, ``cuda-graph of ctc``, ``xla of amp-bf16`` and their like.
    """
    workload, device = request.workload, request.device.partition(":")[0]
    both = "{} on {}".format(request.precision, device)
    needs = [device, request.precision, both, request.mode, workload.loss]
    asked = (
        ("layers", workload.layers > 1),
        ("bidirectional", workload.bidirectional),
        ("cuda-graph", request.cuda_graph),
        ("cuda-graph on " + device, request.cuda_graph),
        ("cuda-graph of " + workload.loss, request.cuda_graph),
        ("xla", request.xla),
        ("xla on " + device, request.xla),
        ("xla of " + workload.loss, request.xla),
        ("xla of " + request.precision, request.xla),
        (workload.cell, workload.cell != "lstm"),
        ("head", workload.head),
        ("no head", not workload.head),
        ("each step", workload.each_step),
        ("tokens", bool(workload.vocabulary)),
        (workload.optimizer, True),
        ("variable length", workload.variable_length),
        ("cuda-graph of variable length", request.cuda_graph and workload.variable_length),
        ("cuda-graph of anomaly", request.cuda_graph and request.anomaly),
    )
    return needs + [name for name, is_asked in asked if is_asked] + switched(request)


def refusal(request: CaptureRequest) -> Optional[str]:
    """Why the implementation cannot do what ``request`` asks; None where it can."""
    refuses = request.row.refusals()
    for need in wanted(request):
        if need in refuses:
            return "{} does not support {}: {}".format(request.implementation, need, refuses[need])
    return None


def check_device(request: CaptureRequest) -> None:
    """Raise UsageError if no framework has such a device."""
    if not re.match(r"(auto|cpu|cuda:\d+)\Z", request.device):
        raise UsageError(
            "unknown device '{}'".format(request.device),
            "give auto, cpu, cuda or cuda:1, cuda:2, …",
        )


def check(request: CaptureRequest) -> None:
    """Raise UsageError if no worker could mean ``request``."""
    of = {"mode": MODES, "precision": PRECISIONS, "profiler": PROFILERS}
    for field, choices in of.items():
        if getattr(request, field) not in choices:
            raise unknown_name(field, getattr(request, field), choices)
    if request.sampler is not None and request.sampler not in SAMPLERS:
        raise unknown_name("sampler", request.sampler, SAMPLERS)
    checked(request.workload)
    refused = refusal(request)
    if refused:
        raise UsageError(refused, "'lstmprof list' shows what each supports")
    check_device(request)
    for field, least in (("iterations", 1), ("warmup", 1), ("profile_steps", 0), ("threads", 1)):
        value = getattr(request, field)
        if value is not None and value < least:
            raise UsageError("{} must be at least {}, not {}".format(field, least, value))
    if request.timing_s is not None and not 0 < request.timing_s <= LONGEST_S:
        raise UsageError(
            "--timing-seconds must be above 0 and at most 30 days, not {} s".format(
                request.timing_s
            )
        )
    if not 0 < request.sampler_s <= LONGEST_S:
        raise UsageError(
            "--sampler-seconds must be above 0 and at most 30 days, not {} s".format(
                request.sampler_s
            )
        )
    if not 0 < request.timeout_s <= LONGEST_S:
        raise UsageError(
            "--timeout must be above 0 and at most 30 days, not {} s".format(request.timeout_s)
        )
    if not 0 <= request.seed < 2**32 - 1:
        raise UsageError("seed must be from 0 to 2³²−2, not {}".format(request.seed))


#: What a script does once its steps are measured.
GO_ON, STOP = "go-on", "stop"
THEN = (GO_ON, STOP)


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """A script, where its run goes, how many steps are let pass, timed and profiled.

    ``target`` is the path of a file, of a ``module`` its name. ``step_function`` is ``name`` of a
    function in the script, or ``module:name``; None has the framework's steps found. ``writer`` is
    the interpreter that writes the run; ``folder`` is for the recording of Nsight Systems.
    ``watch`` times every step until the script ends, and profiles when steps slow down.
    ``parts`` is the folder for the parts of ranks, in the request of a process of a job.
    """

    target: str
    place: str
    arguments: List[str] = dataclasses.field(default_factory=list)
    module: bool = False
    python: str = sys.executable
    warmup: int = 5
    timed: int = 20
    steps: int = 10
    step_function: Optional[str] = None
    framework: Optional[str] = None
    then: str = GO_ON
    profiler: str = FRAMEWORKS_OWN
    force: bool = False
    quiet: bool = False
    watch: bool = False
    parts: str = ""
    compare_with: Optional[str] = None
    writer: str = sys.executable
    folder: str = ""
    facts: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Return the request as ``from_json`` reads it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ScriptRequest:
        """Return the request in ``text``."""
        return cls(**json.loads(text))

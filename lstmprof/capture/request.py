"""Settings that lstmprof passes to the process that measures, and the result."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from lstmprof import implementations
from lstmprof.base.errors import UsageError, unknown_name
from lstmprof.capture.implementation_file import ImplementationFile
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload, checked

MODES = ("train", "forward")
#: Precisions. fp32 never uses TF32; amp-* is mixed precision, amp-fp16 with gradient scaling.
PRECISIONS = ("fp32", "tf32", "amp-fp16", "amp-bf16")
LONGEST_S = 30 * 86400.0
#: Number of worker processes per run; fewer hide how much times differ between processes.
ROUNDS = 3
#: Number of profiled steps in all workers of a run; of ten, at least one is undisturbed.
PROFILED = 12
#: Names of the programs that can sample the worker's call stacks.
PY_SPY, PERF = "py-spy", "perf"
SAMPLERS = (PY_SPY, PERF)
FRAMEWORKS_OWN, NSYS = "framework", "nsys"
PROFILERS = (FRAMEWORKS_OWN, NSYS)

RESULT = "result.json"
#: Name of a FIFO; the process under Nsight Systems ends when lstmprof closes the FIFO.
LIFELINE = "lifeline"
#: Line that a worker prints to end its turn and to ask for the next turn.
TURN = "turn"
#: Prefix of a worker's progress lines, because nsys writes to the same pipe.
MARK = "lstmprof: "


@dataclasses.dataclass(frozen=True)
class CaptureRequest:
    """The settings of one capture, or of one of its worker processes."""

    implementation: str
    workload: Workload
    device: str = "auto"  # auto: the first GPU that the framework can use, else the CPU
    precision: str = "fp32"  # one of PRECISIONS
    mode: str = "train"  # forward: no gradients, no optimizer; the loss is computed
    # timed steps of all workers together; ten per worker suffice for the median's 95 % interval
    iterations: int = 30
    timing_s: Optional[float] = None  # no iteration is timed after this many seconds
    # warm-up steps; None: as many as the implementation needs
    warmup: Optional[int] = None
    # profiled steps per worker; None: ``PROFILED`` steps in all workers
    profile_steps: Optional[int] = None
    profiler: str = FRAMEWORKS_OWN  # one of PROFILERS
    seed: int = 0
    threads: Optional[int] = None  # None: 1 on the CPU, every allowed CPU on a GPU
    timeout_s: float = 3600.0
    python: str = sys.executable
    cuda_graph: bool = False  # replay the step as a CUDA graph
    xla: bool = False  # compile the step with XLA
    keep_denormals: bool = False  # do not flush denormal numbers to zero
    onednn: bool = True  # False: the framework's own kernels instead of oneDNN's
    anomaly: bool = False  # PyTorch's anomaly detection, which checks gradients for NaN
    deterministic: bool = False  # use only deterministic algorithms
    peaks: bool = True  # measure the device's peak rates after the passes
    label: str = ""  # the user's label, part of the run's name
    sampler: Optional[str] = None  # one of SAMPLERS; None: no sampled pass
    sampler_s: float = 10.0  # over all rounds
    turn_with: Tuple[str, ...] = ()  # runs whose workers take turns, including this one
    cpus: Tuple[int, ...] = ()  # CPUs to use; empty: the idlest
    # the file with the user's own implementation
    file: Optional[ImplementationFile] = None

    def __post_init__(self) -> None:
        if self.device == "cuda":
            object.__setattr__(self, "device", "cuda:0")

    @property
    def row(self) -> Implementation:
        """Return the implementation: built in, or in the user's file."""
        return implementations.find(self.implementation) if self.file is None else self.file.row

    @property
    def steps_to_profile(self) -> int:
        return PROFILED if self.profile_steps is None else self.profile_steps

    @property
    def warmup_iterations(self) -> int:
        if self.warmup is not None:
            return self.warmup
        return self.row.settles_after

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> CaptureRequest:
        fields = json.loads(text)
        named: Dict[str, Any] = {"workload": Workload(**fields["workload"])}
        named.update({name: tuple(fields.get(name, ())) for name in ("turn_with", "cpus")})
        if fields.get("file") is not None:
            named["file"] = ImplementationFile(**fields["file"])
        return cls(**dict(fields, **named))


def run_name(request: CaptureRequest) -> str:
    """Return the run's name: ``implementation--workload--precision--options``."""
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
    """Return the switches that differ from the default, such as ``no-onednn``."""
    settings = (
        ("keep-denormals", request.keep_denormals),
        ("no-onednn", not request.onednn),
        ("anomaly", request.anomaly),
        ("deterministic", request.deterministic),
    )
    return [name for name, is_asked in settings if is_asked]


def wanted(request: CaptureRequest) -> List[str]:
    """Return the features that a request needs: ``["cpu", "fp32", …]``."""
    workload, device = request.workload, request.device.partition(":")[0]
    both = "{} on {}".format(request.precision, device)
    needs = [device, request.precision, both, request.mode, workload.loss]
    features = (
        ("layers", workload.layers > 1),
        ("bidirectional", workload.bidirectional),
        ("cuda-graph", request.cuda_graph),
        ("cuda-graph on " + device, request.cuda_graph),
        ("cuda-graph with " + workload.loss, request.cuda_graph),
        ("xla", request.xla),
        ("xla on " + device, request.xla),
        ("xla with " + workload.loss, request.xla),
        ("xla with " + request.precision, request.xla),
        (workload.cell, workload.cell != "lstm"),
        ("head", workload.head),
        ("no head", not workload.head),
        ("each step", workload.each_step),
        ("tokens", bool(workload.vocabulary)),
        (workload.optimizer, True),
        ("variable length", workload.variable_length),
        ("cuda-graph with variable length", request.cuda_graph and workload.variable_length),
        ("cuda-graph with anomaly", request.cuda_graph and request.anomaly),
    )
    return needs + [name for name, is_asked in features if is_asked] + switched(request)


def refusal(request: CaptureRequest) -> Optional[str]:
    """Return why the implementation does not support a request, or None."""
    refuses = request.row.refusals()
    for need in wanted(request):
        if need in refuses:
            return "{} does not support {}: {}".format(request.implementation, need, refuses[need])
    return None


def check_device(request: CaptureRequest) -> None:
    if not re.match(r"(auto|cpu|cuda:\d+)\Z", request.device):
        raise UsageError(
            "unknown device '{}'".format(request.device),
            "give auto, cpu, cuda or cuda:1, cuda:2, …",
        )


@dataclasses.dataclass(frozen=True)
class CaptureResult:
    metadata: Mapping[str, Any]  # for run.json
    timings: Mapping[str, Sequence[Any]]  # the columns of timings.parquet
    profiles: Tuple[Path, ...]  # raw profiles, gzipped
    pid: Optional[int] = None  # process id of the worker
    samples: Optional[Path] = None  # sampled call stacks, gzipped
    shapes: Optional[Path] = None  # input shapes of one step's ops


def check(request: CaptureRequest) -> None:
    """Raise UsageError if a request is not valid or not supported."""
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
    limits = (
        ("--timing-seconds", request.timing_s),
        ("--sampler-seconds", request.sampler_s),
        ("--timeout", request.timeout_s),
    )
    for option, seconds in limits:
        if seconds is not None and not 0 < seconds <= LONGEST_S:
            raise UsageError(
                "{} must be above 0 and at most 30 days, not {} s".format(option, seconds)
            )
    if not 0 <= request.seed < 2**32 - 1:
        raise UsageError("seed must be from 0 to 2³²−2, not {}".format(request.seed))


GO_ON, STOP = "go-on", "stop"
THEN = (GO_ON, STOP)


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """A user's script, and the settings of ``lstmprof run``."""

    target: str
    place: str
    arguments: List[str] = dataclasses.field(default_factory=list)
    module: bool = False
    python: str = sys.executable
    warmup: int = 5
    timed: int = 20
    steps: int = 10
    step_function: Optional[str] = None  # ``name`` in the script, or ``module:name``
    framework: Optional[str] = None
    then: str = GO_ON
    profiler: str = FRAMEWORKS_OWN
    force: bool = False
    quiet: bool = False
    watch: bool = False
    parts: str = ""  # folder for the results of a job's ranks
    compare_with: Optional[str] = None
    writer: str = sys.executable
    folder: str = ""  # for the recording of Nsight Systems
    facts: Dict[str, Any] = dataclasses.field(default_factory=dict)  # more for run.json

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ScriptRequest:
        return cls(**json.loads(text))

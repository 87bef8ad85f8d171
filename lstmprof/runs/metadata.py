"""What a run says besides its events: run.json, typed, and the columns of timings.parquet.

The record is the registry, too: each field states its unit, its meaning and when it is null, and
from that come docs/tables.md and the table ``runs`` in SQL. There a field has a column of its own,
called by its name, or by another where a table has one of that name. A field of several values (a
list, versions by package) is JSON text there.
"""

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from lstmprof import names
from lstmprof.errors import RunError
from lstmprof.events import DeviceFacts
from lstmprof.events.annotate.calls import Coverage
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.events.schema import SCHEMA_VERSION, Column, schema
from lstmprof.runs.fields import (
    FOREIGN as _FOREIGN,
    NEVER as _NEVER,
    NO_GPU as _NO_GPU,
    UNREAD as _UNREAD,
    Flag as _Flag,
    Int as _Int,
    Ints as _Ints,
    Real as _Real,
    Reals as _Reals,
    Record as _Record,
    Text as _Text,
    Texts as _Texts,
    Versions as _Versions,
    fact as _fact,
)
from lstmprof.runs.settings import Counters, Settings

_CAPTURED = "the run is a capture"
_BUILT_IN = "the run is of one of lstmprof's own implementations, or an ingested profile"
_NOT_MEASURED = "it was not measured"
_OLDER = "it cannot be read on that machine, or an older lstmprof made the run"

AGAIN = "capture or ingest the run again"

_Item = TypeVar("_Item")


class WorkloadInfo(_Record, frozen=True):
    """The network and the data that a capture ran, as ``workloads.Workload`` has them."""

    name: Annotated[_Text, _fact("name of the network", column="workload")] = None
    layers: Annotated[_Int, _fact("recurrent layers")] = None
    hidden: Annotated[_Int, _fact("hidden units of a layer and direction")] = None
    bidirectional: Annotated[_Flag, _fact("whether layers run both ways")] = None
    cell: Annotated[_Text, _fact("lstm, gru or rnn")] = None
    batch: Annotated[_Int, _fact("sequences in a batch")] = None
    time_steps: Annotated[_Int, _fact("of the longest sequence")] = None
    features: Annotated[_Int, _fact("inputs of a time step")] = None
    classes: Annotated[_Int, _fact("outputs")] = None
    vocabulary: Annotated[_Int, _fact("number of distinct tokens", "the inputs are numbers")] = None
    head: Annotated[_Flag, _fact("whether there is an output layer")] = None
    loss: Annotated[_Text, _fact("ce, ctc, mse or mean", column="loss_kind")] = None
    each_step: Annotated[_Flag, _fact("whether at every time step")] = None
    labels: Annotated[_Int, _fact("length of CTC targets", "the loss is not ctc")] = None
    shortest: Annotated[_Int, _fact("time steps of the shortest sequence", "all are alike")] = None
    variable_length: Annotated[_Flag, _fact("whether the layers know the sequences' lengths")] = (
        None
    )
    optimizer: Annotated[_Text, _fact("adam or sgd")] = None
    learning_rate: Annotated[_Real, _fact("of the optimizer")] = None

    def __bool__(self) -> bool:
        return self != WorkloadInfo()

    @property
    def words(self) -> int | None:
        """Tokens of a batch; None where the inputs are numbers, or it is unknown."""
        if not self.vocabulary or self.batch is None or self.time_steps is None:
            return None
        return self.batch * self.time_steps

    @property
    def shape(self) -> str:
        """Of its inputs, for reading: ``64×20×123``."""
        return f"{self.batch}×{self.time_steps}×{self.features}"


class Hardware(_Record, frozen=True):
    """The machine that a capture ran on."""

    cpu_model: Annotated[_Text, _fact("of the host", _UNREAD)] = None
    cores: Annotated[_Int, _fact("CPUs of the host", _UNREAD)] = None
    memory_bytes: Annotated[_Int, _fact("memory of the host", _UNREAD, "bytes")] = None
    system: Annotated[_Text, _fact("operating system", _UNREAD)] = None
    cpu_governor: Annotated[_Text, _fact("of the CPU's clock", _UNREAD)] = None
    gpu: Annotated[_Text, _fact("model of the GPU", _NO_GPU)] = None
    gpu_memory_bytes: Annotated[_Int, _fact("memory of the GPU", _NO_GPU, "bytes")] = None


class Peaks(_Record, frozen=True):
    """What the device did at best, by the framework's own library."""

    gemm_flops_per_s: Annotated[_Real, _fact("of a product", _NOT_MEASURED, "1/s")] = None
    gemm_size: Annotated[_Int, _fact("rows of its matrices", _NOT_MEASURED)] = None
    copy_bytes_per_s: Annotated[_Real, _fact("of a copy", _NOT_MEASURED, "bytes/s")] = None
    copy_bytes: Annotated[_Int, _fact("read and written", _NOT_MEASURED, "bytes")] = None
    precision: Annotated[_Text, _fact("of the product", _NOT_MEASURED)] = None
    reason: Annotated[_Text, _fact("why none was measured", "they were")] = None


class Yardstick(_Record, frozen=True):
    """What a machine needed for work that is always the same: medians of some repeats.

    Of one version of Python and NumPy and as many threads; see ``capture.worker.yardstick``.
    ``…_cpu_ns`` are CPU time of the same repeats: other processes that took the CPU are not in it.
    """

    product_ns: _Int = None
    python_ns: _Int = None
    copy_ns: _Int = None
    product_cpu_ns: _Int = None
    python_cpu_ns: _Int = None
    copy_cpu_ns: _Int = None


class Yardsticks(_Record, frozen=True):
    """The same work before and after a round; None where it was not done."""

    before: Yardstick | None = None
    after: Yardstick | None = None


class ThreadTime(_Record, frozen=True):
    """What one thread of a round's process had of the CPUs; see ``capture.worker.threads``.

    ``waited_ns``: ready to run, with no CPU. ``main``: whether it calls the steps, in which a
    framework may have others do the work.
    ``cpus``: those that it may run on, as ``0-1,4``.
    """

    round: _Int = None
    name: _Text = None
    main: _Flag = None
    cpu_ns: _Int = None
    waited_ns: _Int = None
    cpus: _Text = None


class RecordingInfo(_Record, frozen=True):
    """What the profiler took to record one event, in a loop of trivial calls in a round's process.

    CPU time, profiled less not. ``event_before_ns`` of ``event_ns`` are spent before the begin is
    noted, ``event_inside_ns`` until the end is, the rest after it; ``range_ns`` is of one of the
    capture's own ranges. ``*_error_ns`` is half of the middle half of the repeats. None: not known.
    """

    event_ns: _Real = None
    event_error_ns: _Real = None
    event_before_ns: _Real = None
    event_inside_ns: _Real = None
    range_ns: _Real = None
    range_error_ns: _Real = None
    range_inside_ns: _Real = None
    page_fault_ns: _Real = None


class Sampling(_Record, frozen=True):
    """A pass of a round in which a sampler looked on from outside, or why there was none."""

    sampler: Annotated[_Text, _fact("py-spy or perf", _NEVER)] = None
    version: Annotated[_Text, _fact("of it", "it did not run")] = None
    rate_hz: Annotated[_Int, _fact("samples a second that it was asked for", "it did not run")] = (
        None
    )
    steps: Annotated[_Int, _fact("steps that it saw", "it did not run")] = None
    samples: Annotated[_Int, _fact("of threads that did not wait", "it did not run")] = None
    reason: Annotated[_Text, _fact("why it did not run", "it did")] = None


class RunInfo(_Record, frozen=True):
    """run.json; None is unknown."""

    name: Annotated[str, _fact("of the run", _NEVER, column="run")] = ""
    source: Annotated[_Text, _fact("capture, own code or ingest", _FOREIGN)] = None
    schema_version: Annotated[_Int, _fact("of the Parquet files", _FOREIGN)] = None
    created: Annotated[_Text, _fact("when the run was written, ISO 8601", _FOREIGN)] = None
    command: Annotated[_Text, _fact("the command line that made it", _FOREIGN)] = None
    lstmprof_version: Annotated[_Text, _fact("that wrote the run", _FOREIGN)] = None
    implementation: Annotated[_Text, _fact("what was run: see lstmprof list")] = None
    implementation_file: Annotated[
        _Text, _fact("the user's file that it is, and the function in it", _BUILT_IN)
    ] = None
    implementation_sha256: Annotated[_Text, _fact("of that file", _BUILT_IN)] = None
    agrees_with_reference: Annotated[
        _Flag,
        _fact(
            "whether that file was held to the float64 reference before it was timed, and agreed; "
            "false: it claims nothing of what it computes",
            _BUILT_IN,
        ),
    ] = None
    framework: Annotated[_Text, _fact("of the implementation")] = None
    label: Annotated[_Text, _fact("what --label gave, may be empty")] = None
    workload: WorkloadInfo = WorkloadInfo()
    precision: Annotated[_Text, _fact("fp32, tf32, amp-fp16 or amp-bf16")] = None
    tf32: Annotated[_Flag, _fact("whether TF32 was allowed")] = None
    mode: Annotated[_Text, _fact("train or forward")] = None
    cuda_graph: Annotated[_Flag, _fact("whether the step was a CUDA graph")] = None
    xla: Annotated[_Flag, _fact("whether XLA compiled it")] = None
    seed: Annotated[_Int, _fact("of weights and data")] = None
    warmup: Annotated[
        _Int, _fact("iterations before those that count", column="warmup_iterations")
    ] = None
    iterations: Annotated[
        _Int, _fact("iterations that count, of all rounds", column="counted_iterations")
    ] = None
    rounds: Annotated[_Texts, _fact("when each round started, JSON")] = None
    turn_with: Annotated[
        _Texts,
        _fact("runs whose workers took turns with its own at every iteration, JSON", "none did"),
    ] = None
    device: Annotated[_Text, _fact("cpu or cuda:N", column="ran_on")] = None
    device_name: Annotated[_Text, _fact("model of GPU or CPU", _UNREAD)] = None
    kernels_used: Annotated[_Text, _fact("whose kernels ran the recurrence", _UNREAD)] = None
    peaks: Annotated[Peaks | None, _fact("what the device did at best, JSON", _NOT_MEASURED)] = None
    backend: Annotated[
        _Text,
        _fact(
            "PyTensor's compiler, cuDNN's algorithm, or what an engine ran on",
            "of no such framework",
        ),
    ] = None
    threads: Annotated[_Int, _fact("threads of the framework")] = None
    affinity: Annotated[_Ints, _fact("CPUs it was pinned to, JSON", _UNREAD)] = None
    denormals_flushed: Annotated[
        _Flag, _fact("whether denormals were flushed to zero", _UNREAD)
    ] = None
    garbage_collector: Annotated[_Text, _fact("what was done with Python's")] = None
    settings: Settings = Settings()
    versions: Annotated[_Versions, _fact("of Python and packages, JSON")] = None
    python_executable: Annotated[_Text, _fact("the worker's interpreter")] = None
    hardware: Hardware = Hardware()
    load_average_before: Annotated[_Reals, _fact("of 1, 5 and 15 minutes, JSON", _UNREAD)] = None
    started_at: Annotated[_Text, _fact("when the worker started, ISO 8601")] = None
    ended_at: Annotated[_Text, _fact("when it ended, ISO 8601")] = None
    compile_ns: Annotated[_Int, _fact("first step of the process", unit="ns")] = None
    timing_wall_ns: Annotated[_Int, _fact("all counted iterations of all rounds", unit="ns")] = None
    timing_cpu_ns: Annotated[_Int, _fact("CPU time in them", _UNREAD, "ns")] = None
    timing_page_faults: Annotated[_Int, _fact("page faults in them that read no disk", _UNREAD)] = (
        None
    )
    timing_major_faults: Annotated[_Int, _fact("page faults in them that did", _UNREAD)] = None
    timing_preemptions: Annotated[
        _Int, _fact("involuntary context switches of the process in them", _UNREAD)
    ] = None
    timing_voluntary_switches: Annotated[_Int, _fact("voluntary ones in them", _UNREAD)] = None
    timing_threads: Annotated[
        tuple[ThreadTime, ...] | None,
        _fact(
            "CPU time in them, and in reading their loss, of the threads that had most, round by "
            "round, JSON",
            _UNREAD,
        ),
    ] = None
    profiled_rounds: Annotated[
        _Ints, _fact("round of each profiled step, in the order of events.parquet, JSON", _UNREAD)
    ] = None
    profiled_wall_ns: Annotated[_Ints, _fact("each profiled step, JSON", unit="ns")] = None
    profiled_cpu_ns: Annotated[_Ints, _fact("CPU time in each, JSON", _UNREAD, "ns")] = None
    profiled_page_faults: Annotated[
        _Ints, _fact("page faults in each that read no disk, JSON", _UNREAD)
    ] = None
    profiled_major_faults: Annotated[
        _Ints, _fact("page faults in each that did, JSON", _UNREAD)
    ] = None
    profiled_preemptions: Annotated[
        _Ints, _fact("involuntary context switches in each, JSON", _UNREAD)
    ] = None
    profiled_voluntary_switches: Annotated[_Ints, _fact("voluntary ones, JSON", _UNREAD)] = None
    yardsticks: Annotated[
        tuple[Yardsticks, ...] | None,
        _fact("what a fixed product, Python loop and copy took, of each round, JSON", _UNREAD),
    ] = None
    counters: Counters = Counters()
    cpu_clock_mhz: Annotated[_Real, _fact("mean of its CPUs at the end", _UNREAD, "MHz")] = None
    padding: Annotated[
        _Text,
        _fact(
            "where sequences that Keras masks were filled up: front or behind",
            "lstmprof run did not see it",
        ),
    ] = None
    sampling: Annotated[
        tuple[Sampling, ...] | None,
        _fact("the sampled pass of each round, JSON", "no --sampler was asked for"),
    ] = None
    timing_cpu_energy_j: Annotated[
        _Real,
        _fact(
            "of the CPU packages in the first round's iterations, by RAPL",
            f"others took turns with it, or {_UNREAD}",
            "J",
        ),
    ] = None
    timing_gpu_energy_j: Annotated[_Real, _fact("of the GPU in them, by NVML", _NO_GPU, "J")] = None
    gpu_sm_clock_mhz: Annotated[
        _Int, _fact("multiprocessors' clock at their end", _NO_GPU, "MHz")
    ] = None
    gpu_memory_clock_mhz: Annotated[_Int, _fact("memory's clock at their end", _NO_GPU, "MHz")] = (
        None
    )
    gpu_temperature_c: Annotated[_Int, _fact("at their end", _NO_GPU, "°C")] = None
    gpu_throttle_reasons: Annotated[_Texts, _fact("what held its clocks down, JSON", _NO_GPU)] = (
        None
    )
    peak_memory_bytes: Annotated[_Int, _fact("largest the worker was", _UNREAD, "bytes")] = None
    loss_first: Annotated[_Real, _fact("of the first step")] = None
    loss_last: Annotated[_Real, _fact("of the last timed step")] = None
    loss_fell: Annotated[_Flag, _fact("whether the last is the lower", "nothing was trained")] = (
        None
    )
    profiler: Annotated[_Text, _fact("that took the profile")] = None
    recording: Annotated[
        tuple[RecordingInfo, ...] | None,
        _fact("what recording an event costs, of each round, JSON", _NOT_MEASURED, "ns"),
    ] = None
    nvtx: Annotated[_Flag, _fact("whether phases were NVTX ranges too", _UNREAD)] = None
    source_paths: Annotated[_Texts, _fact("the files it was read from, JSON", _CAPTURED)] = None
    source_stamps: Annotated[
        _Texts, _fact("path, size and time of each of them, JSON", _CAPTURED)
    ] = None
    step_range: Annotated[_Text, _fact("what --step-range gave", "it was not given")] = None
    profile_format: Annotated[_Text, _fact("kineto, xplane …", _FOREIGN)] = None
    profile_metadata: Annotated[
        dict[str, Any] | None, _fact("what the profile says of itself, JSON", _FOREIGN)
    ] = None
    base_ns: Annotated[
        _Int, _fact("time since 1970 of start_ns 0", "the profile does not say", "ns")
    ] = None
    device_names: Annotated[dict[str, str], _fact("by device number, JSON", _NEVER)] = (
        msgspec.field(default_factory=dict)
    )
    device_facts: Annotated[
        dict[str, DeviceFacts],
        _fact("compute capability, multiprocessors and warp size by device number, JSON", _NEVER),
    ] = msgspec.field(default_factory=dict)
    accelerators: Annotated[
        tuple[str, ...], _fact("GPUs and their like that the profile names, JSON", _NEVER)
    ] = ()
    gpu_complaint: Annotated[
        _Text, _fact("what the profiler logged of a GPU it recorded nothing on", "nothing")
    ] = None
    notes: Annotated[tuple[str, ...], _fact("what a reader must know, JSON", _NEVER)] = ()
    recorded: Annotated[
        tuple[Recorded, ...] | None,
        _fact("what the profile holds of each rank, JSON", f"{_FOREIGN}, or an older lstmprof"),
    ] = None
    links: Annotated[Coverage | None, _fact("how many events are linked, JSON", _FOREIGN)] = None


#: Conditions that are no field of run.json by their name.
_CONDITIONS: Mapping[str, Callable[[RunInfo], Any]] = {
    "workload": lambda info: info.workload or None,
    "device": lambda info: info.device_name or next(iter(info.device_names.values()), None),
}


def condition(name: str, info: RunInfo) -> Any:
    """What run.json says of one of ``names.CONDITIONS``; None is unknown."""
    return _CONDITIONS.get(name, attrgetter(name))(info)


def alike(
    items: Iterable[_Item], info_of: Callable[[_Item], RunInfo], across: Collection[str] = ()
) -> list[list[_Item]]:
    """``items`` in groups that agree in all of ``names.CONDITIONS`` but those ``across``."""
    conditions = [name for name in names.CONDITIONS if name not in across]
    groups: dict[tuple[Any, ...], list[_Item]] = {}
    for item in items:
        values = tuple(condition(name, info_of(item)) for name in conditions)
        groups.setdefault(values, []).append(item)
    return list(groups.values())


@dataclass(frozen=True)
class Fact:
    """A field of run.json: its place, dots between names, and its column."""

    place: str
    column: Column

    def of(self, info: RunInfo) -> Any:
        """Its value in SQL."""
        value = functools.reduce(getattr, self.place.split("."), info)
        if value is None or not pa.types.is_string(self.column.type) or isinstance(value, str):
            return value
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


_COLUMN_TYPES = {_Int: pa.int64(), _Real: pa.float64(), _Flag: pa.bool_()}


def _facts(record: type[msgspec.Struct], prefix: str = "") -> Iterator[Fact]:
    """The fields of ``record``, those of a record that it holds in its place."""
    for name, hint in get_type_hints(record, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            yield from _facts(hint, f"{name}.")
            continue
        meta = hint.__metadata__[-1]
        arrow = _COLUMN_TYPES.get(hint.__origin__, pa.string())
        column = meta.extra["column"] or name
        yield Fact(
            prefix + name,
            Column(column, arrow, meta.extra["unit"], meta.description, meta.extra["null_when"]),
        )


@functools.cache
def facts() -> tuple[Fact, ...]:
    """Every field of run.json that is a column of the table ``runs`` in SQL."""
    return tuple(_facts(RunInfo))


def facts_table(infos: Sequence[tuple[str, RunInfo]]) -> pa.Table:
    """The table ``runs`` of SQL: a row a run, by what it is called."""
    rows = [
        {fact.column.name: fact.of(info) for fact in facts()} | {"run": name}
        for name, info in infos
    ]
    return pa.Table.from_pylist(rows, schema=schema([fact.column for fact in facts()]))


def run_info(facts: Mapping[str, Any]) -> RunInfo:
    """The record of ``facts``, which a worker or a reader of profiles tells.

    Raises:
        TypeError: one is no field of run.json, so that nobody would read it.
        RunError: one has another type than its field.
    """
    with _run_errors(f"run '{facts.get('name', '')}'"):
        info = msgspec.convert(facts, RunInfo)
    unknown = list(_unknown(facts, info))
    if unknown:
        raise TypeError(f"no field of run.json: {', '.join(unknown)}")
    return info


def _unknown(facts: Mapping[str, Any], record: msgspec.Struct) -> Iterator[str]:
    for name, value in facts.items():
        if name not in record.__struct_fields__:
            yield name
        elif isinstance(inner := getattr(record, name), msgspec.Struct):
            yield from (f"{name}.{field}" for field in _unknown(value, inner))


class _Version(msgspec.Struct):
    schema_version: Any = None


def decoded(text: bytes, place: object) -> RunInfo:
    """The record in the JSON ``text``, which lies at ``place``.

    Raises:
        RunError: it is damaged, a field has another type, or a later version of lstmprof wrote it.
    """
    with _run_errors(place):
        version = msgspec.json.decode(text, type=_Version).schema_version
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise RunError(
                f"{place}: schema version {version}, this lstmprof reads {SCHEMA_VERSION}",
                "install the lstmprof that wrote it, or a later one",
            )
        return msgspec.json.decode(text, type=RunInfo)


@contextmanager
def _run_errors(place: object) -> Iterator[None]:
    """Make an error for users, which names the field, of what is wrong at ``place``."""
    try:
        yield
    except msgspec.ValidationError as fault:
        reason, _, field = str(fault).replace("`", "").partition(" - at $.")
        where = f"{place}: {field}" if field else place
        raise RunError(f"{where}: {reason[0].lower()}{reason[1:]}", AGAIN) from fault
    except (ValueError, RecursionError) as fault:
        raise RunError(f"{place}: is damaged ({str(fault).rstrip('.')})", AGAIN) from fault


def encoded(info: RunInfo) -> bytes:
    """``info`` as JSON for people."""
    try:
        text = msgspec.json.encode(info)
    except UnicodeEncodeError:  # a surrogate without its other, in a file's name or a profile
        text = json.dumps(msgspec.to_builtins(info), ensure_ascii=False).encode(errors="replace")
    return msgspec.json.format(text, indent=1) + b"\n"


#: The columns of timings.parquet, one row an iteration of the undisturbed pass.
ITERATIONS = (
    Column("round", pa.int64(), "", "which worker process ran it, from 0"),
    Column("iteration", pa.int64(), "", "number in the run, warm-up included"),
    Column("warmup", pa.bool_(), "", "whether it is warm-up, which no statistic counts"),
    Column(
        "turn",
        pa.int64(),
        "",
        "number of its turn in the round, from 0, where workers took turns on one CPU: the turn of "
        "that number of another came right before it or after it",
        "it is warm-up of the process, or the run was captured alone",
    ),
    Column("after_profile", pa.bool_(), "", "whether its round was profiled before it", _OLDER),
    Column("wall_ns", pa.int64(), "ns", "by the host's clock, until the device had ended"),
    Column(
        "device_ns", pa.int64(), "ns", "by the device's events", "it ran on a CPU, or as own code"
    ),
    Column(
        "cpu_ns",
        pa.int64(),
        "ns",
        "CPU time of all threads of the process, in microseconds and some 1 µs too long; of a "
        "thread that runs on another CPU until its last clock tick",
        _OLDER,
    ),
    Column(
        "voluntary_switches",
        pa.int64(),
        "",
        "times that a thread of the process gave up its CPU, to wait",
        _OLDER,
    ),
    Column(
        "preemptions",
        pa.int64(),
        "",
        "times that a CPU was taken from a thread of the process",
        _OLDER,
    ),
    Column(
        "minor_faults",
        pa.int64(),
        "",
        "pages that the kernel provided without reading a disk",
        _OLDER,
    ),
    Column("major_faults", pa.int64(), "", "pages that it read from a disk", _OLDER),
    Column("loss", pa.float64(), "", "of this step", "the step has none, or is of own code"),
)

#: The columns of samples.parquet.
SAMPLES = (
    Column("round", pa.int64(), "", "which worker process was sampled, from 0"),
    Column("thread", pa.string(), "", "its name, as the sampler tells it"),
    Column("part", pa.string(), "", "of the ledger; waiting, compiled or unknown"),
    Column("rule", pa.string(), "", "the rule that says so"),
    Column("line", pa.string(), "", "innermost Python function and line", "no frame is Python's"),
    Column("count", pa.int64(), "", "samples in which the thread had this stack"),
    Column("frames", pa.list_(pa.string()), "", "the stack from the step on, the innermost last"),
)

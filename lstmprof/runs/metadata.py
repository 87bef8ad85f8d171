"""Read, write, group and tabulate the records of run.json (``fields.RunInfo``)."""

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
from lstmprof.implementations import ROWS
from lstmprof.runs.fields import (
    FOREIGN as _FOREIGN,
    NEVER as _NEVER,
    NO_GPU as _NO_GPU,
    NOT_MEASURED as _NOT_MEASURED,
    UNREAD as _UNREAD,
    Counters,
    Flag as _Flag,
    Hardware,
    Int as _Int,
    Ints as _Ints,
    Peaks,
    Real as _Real,
    Reals as _Reals,
    Recompiled,
    Record as _Record,
    RecordingInfo,
    Sampling,
    ScriptLine,
    Settings,
    Text as _Text,
    Texts as _Texts,
    ThreadTime,
    Versions as _Versions,
    WorkloadInfo,
    fact as _fact,
)

_CAPTURED = "the run is a capture"
_BUILT_IN = "the implementation is built in, or the run is an ingested profile"

AGAIN = "capture or ingest the run again"
#: Message for a run with a newer schema version; it is formatted with the run's version and the
#: newest version that this lstmprof reads.
NEWER = "was written by a newer lstmprof (schema version {}; this version reads up to {})"
UPGRADE = "upgrade lstmprof"

_Item = TypeVar("_Item")


class RunInfo(_Record, frozen=True):
    """The facts of run.json; docs/tables.md describes the fields.

    A field is None if the run does not record it.
    """

    name: Annotated[str, _fact("name of the run", _NEVER, column="run")] = ""
    source: Annotated[
        _Text,
        _fact(
            "how the run was made: capture, own code (lstmprof run, lp.watch()) or ingest", _FOREIGN
        ),
    ] = None
    schema_version: Annotated[_Int, _fact("schema version of the Parquet files", _FOREIGN)] = None
    created: Annotated[_Text, _fact("time at which the run was written, ISO 8601", _FOREIGN)] = None
    command: Annotated[_Text, _fact("command line that made the run", _FOREIGN)] = None
    lstmprof_version: Annotated[
        _Text, _fact("version of lstmprof that wrote the run", _FOREIGN)
    ] = None
    implementation: Annotated[_Text, _fact("name of the implementation (lstmprof list)")] = None
    implementation_file: Annotated[
        _Text, _fact("your file and the function in it that builds the network", _BUILT_IN)
    ] = None
    implementation_sha256: Annotated[_Text, _fact("SHA-256 of implementation_file", _BUILT_IN)] = (
        None
    )
    agrees_with_reference: Annotated[
        _Flag,
        _fact(
            "whether the results of implementation_file agreed with the float64 reference before "
            "timing; false if the file has no load()",
            _BUILT_IN,
        ),
    ] = None
    framework: Annotated[_Text, _fact("framework of the implementation")] = None
    label: Annotated[_Text, _fact("value of --label; an empty text if none was given")] = None
    workload: WorkloadInfo = WorkloadInfo()
    precision: Annotated[_Text, _fact("precision: fp32, tf32, amp-fp16 or amp-bf16")] = None
    tf32: Annotated[_Flag, _fact("whether TF32 was allowed")] = None
    mode: Annotated[_Text, _fact("mode: train or forward (no gradients)")] = None
    cuda_graph: Annotated[_Flag, _fact("whether the step was a CUDA graph")] = None
    xla: Annotated[_Flag, _fact("whether XLA compiled the step")] = None
    seed: Annotated[_Int, _fact("random seed of weights and data")] = None
    warmup: Annotated[
        _Int,
        _fact("number of warm-up iterations, which statistics ignore", column="warmup_iterations"),
    ] = None
    iterations: Annotated[
        _Int,
        _fact(
            "number of timed iterations after warm-up, in all rounds", column="counted_iterations"
        ),
    ] = None
    rounds: Annotated[_Texts, _fact("time at which each round started, as JSON")] = None
    turn_with: Annotated[
        _Texts,
        _fact(
            "other runs whose processes took turns with those of this run, one iteration each, as "
            "JSON",
            "the run took turns with no other run",
        ),
    ] = None
    device: Annotated[_Text, _fact("device that ran the steps: cpu or cuda:N", column="ran_on")] = (
        None
    )
    device_name: Annotated[_Text, _fact("model of the device", _UNREAD)] = None
    kernels_used: Annotated[
        _Text, _fact("library whose kernels ran the recurrent layers", _UNREAD)
    ] = None
    peaks: Annotated[
        Peaks | None, _fact("measured peak rates of the device, as JSON", _NOT_MEASURED)
    ] = None
    backend: Annotated[
        _Text,
        _fact(
            "compiler of PyTensor or Theano, algorithm of cuDNN, or device of an inference engine",
            "the framework has no such setting",
        ),
    ] = None
    threads: Annotated[_Int, _fact("number of CPU threads of the framework")] = None
    affinity: Annotated[_Ints, _fact("CPUs that the process was pinned to, as JSON", _UNREAD)] = (
        None
    )
    denormals_flushed: Annotated[
        _Flag, _fact("whether denormal numbers were flushed to zero", _UNREAD)
    ] = None
    garbage_collector: Annotated[_Text, _fact("how Python's garbage collector was set")] = None
    settings: Settings = Settings()
    versions: Annotated[_Versions, _fact("versions of Python and packages, as JSON")] = None
    packages: Annotated[
        _Versions, _fact("every installed package with its version, as JSON", _UNREAD)
    ] = None
    python_executable: Annotated[
        _Text, _fact("path of the Python interpreter that ran the steps")
    ] = None
    hardware: Hardware = Hardware()
    load_average_before: Annotated[
        _Reals, _fact("load average over 1, 5 and 15 minutes before the run, as JSON", _UNREAD)
    ] = None
    started_at: Annotated[_Text, _fact("start of the process, ISO 8601")] = None
    ended_at: Annotated[_Text, _fact("end of the process, ISO 8601")] = None
    compile_ns: Annotated[
        _Int,
        _fact("length of the first step of the process, which includes compilation", unit="ns"),
    ] = None
    timing_wall_ns: Annotated[_Int, _fact("wall time of all timed iterations", unit="ns")] = None
    timing_cpu_ns: Annotated[_Int, _fact("CPU time of all timed iterations", _UNREAD, "ns")] = None
    timing_page_faults: Annotated[
        _Int, _fact("number of page faults without a disk read in the timed iterations", _UNREAD)
    ] = None
    timing_major_faults: Annotated[
        _Int, _fact("number of page faults with a disk read in the timed iterations", _UNREAD)
    ] = None
    timing_preemptions: Annotated[
        _Int,
        _fact("number of involuntary context switches in the timed iterations", _UNREAD),
    ] = None
    timing_voluntary_switches: Annotated[
        _Int, _fact("number of voluntary context switches in the timed iterations", _UNREAD)
    ] = None
    timing_threads: Annotated[
        tuple[ThreadTime, ...] | None,
        _fact(
            "for each round: the busiest threads, with their CPU time in the timed iterations "
            "(which includes reading the loss), as JSON",
            _UNREAD,
        ),
    ] = None
    profiled_rounds: Annotated[
        _Ints,
        _fact(
            "for each profiled step, in the order of events.parquet: number of its round, as JSON",
            _UNREAD,
        ),
    ] = None
    profiled_wall_ns: Annotated[
        _Ints, _fact("wall time of each profiled step, as JSON", unit="ns")
    ] = None
    profiled_cpu_ns: Annotated[
        _Ints, _fact("CPU time of each profiled step, as JSON", _UNREAD, "ns")
    ] = None
    profiled_page_faults: Annotated[
        _Ints,
        _fact("number of page faults without a disk read in each profiled step, as JSON", _UNREAD),
    ] = None
    profiled_major_faults: Annotated[
        _Ints,
        _fact("number of page faults with a disk read in each profiled step, as JSON", _UNREAD),
    ] = None
    profiled_preemptions: Annotated[
        _Ints,
        _fact("number of involuntary context switches in each profiled step, as JSON", _UNREAD),
    ] = None
    profiled_voluntary_switches: Annotated[
        _Ints, _fact("number of voluntary context switches in each profiled step, as JSON", _UNREAD)
    ] = None
    counters: Counters = Counters()
    cpu_clock_mhz: Annotated[
        _Real, _fact("mean clock rate of the used CPUs at the end of the run", _UNREAD, "MHz")
    ] = None
    padding: Annotated[
        _Text,
        _fact(
            "where masked sequences of a Keras model were padded: front or behind",
            "lstmprof run did not observe it",
        ),
    ] = None
    sampling: Annotated[
        tuple[Sampling, ...] | None,
        _fact(
            "for each round: facts about the steps that a sampler observed, as JSON",
            "--sampler was not given",
        ),
    ] = None
    script_lines: Annotated[
        tuple[ScriptLine, ...] | None,
        _fact(
            "lines of your script that took 5 % or more of the time of a few sampled steps, which "
            "ran after the timed steps; time inside a framework does not count; as JSON",
            "the run is not of your own code, or the training ended before these steps",
        ),
    ] = None
    recompiled: Annotated[
        tuple[Recompiled, ...] | None,
        _fact(
            "functions under jax.jit, tf.function or torch.compile that your script compiled more "
            "than once, and what had changed, as JSON",
            "lstmprof saw none",
        ),
    ] = None
    timing_cpu_energy_j: Annotated[
        _Real,
        _fact(
            "energy of the CPU packages over the timed iterations of the first round (RAPL)",
            f"other runs took turns with the run, or {_UNREAD}",
            "J",
        ),
    ] = None
    timing_gpu_energy_j: Annotated[
        _Real,
        _fact(
            "energy of the GPU over the timed iterations of the first round (NVML)",
            f"the iterations took less than 1 s, MIG divides the GPU, or {_NO_GPU}",
            "J",
        ),
    ] = None
    gpu_sm_clock_mhz: Annotated[
        _Int,
        _fact(
            "clock rate of the GPU's multiprocessors after the timed iterations of the first round",
            _NO_GPU,
            "MHz",
        ),
    ] = None
    gpu_memory_clock_mhz: Annotated[
        _Int,
        _fact(
            "clock rate of the GPU's memory after the timed iterations of the first round",
            _NO_GPU,
            "MHz",
        ),
    ] = None
    gpu_temperature_c: Annotated[
        _Int,
        _fact(
            "temperature of the GPU after the timed iterations of the first round", _NO_GPU, "°C"
        ),
    ] = None
    gpu_throttle_reasons: Annotated[
        _Texts, _fact("reasons why the GPU was throttled, as JSON", _NO_GPU)
    ] = None
    peak_memory_bytes: Annotated[
        _Int, _fact("largest memory of the process that ran the steps", _UNREAD, "bytes")
    ] = None
    loss_first: Annotated[_Real, _fact("loss of the first step")] = None
    loss_last: Annotated[_Real, _fact("loss of the last timed step")] = None
    loss_fell: Annotated[
        _Flag, _fact("whether the last loss is lower than the first", "the run did not train")
    ] = None
    profiler: Annotated[_Text, _fact("profiler that recorded the profile")] = None
    recording: Annotated[
        tuple[RecordingInfo, ...] | None,
        _fact(
            "for each round: CPU time that the profiler needs to record one event, as JSON",
            _NOT_MEASURED,
            "ns",
        ),
    ] = None
    shapes_cost: Annotated[
        _Real,
        _fact(
            "how much longer a step is if shapes are recorded, minus 1 (0.05: 5 %), measured "
            "before the profile; above 0.05, lstmprof records shapes only if torch.compile is used",
            "it was not measured: lstmprof measures it only for your own PyTorch code",
        ),
    ] = None
    nvtx: Annotated[_Flag, _fact("whether phases were also recorded as NVTX ranges", _UNREAD)] = (
        None
    )
    source_paths: Annotated[
        _Texts, _fact("files that the run was read from, as JSON", _CAPTURED)
    ] = None
    source_stamps: Annotated[
        _Texts, _fact("path, size and time of each file in source_paths, as JSON", _CAPTURED)
    ] = None
    step_range: Annotated[_Text, _fact("value of --step-range", "--step-range was not given")] = (
        None
    )
    profile_format: Annotated[
        _Text, _fact("format of the profile, such as kineto or xplane", _FOREIGN)
    ] = None
    profile_metadata: Annotated[
        dict[str, Any] | None, _fact("metadata of the profile, as JSON", _FOREIGN)
    ] = None
    base_ns: Annotated[
        _Int, _fact("time of start_ns 0, in ns since 1970", "the profile does not record it", "ns")
    ] = None
    device_names: Annotated[
        dict[str, str], _fact("name of each device by its number, as JSON", _NEVER)
    ] = msgspec.field(default_factory=dict)
    device_facts: Annotated[
        dict[str, DeviceFacts],
        _fact(
            "compute capability, number of multiprocessors and warp size of each device, as JSON",
            _NEVER,
        ),
    ] = msgspec.field(default_factory=dict)
    accelerators: Annotated[
        tuple[str, ...], _fact("accelerators that the profile names, as JSON", _NEVER)
    ] = ()
    gpu_complaint: Annotated[
        _Text,
        _fact(
            "message in which the profiler says that it could not record a GPU",
            "there is no such message",
        ),
    ] = None
    notes: Annotated[
        tuple[str, ...],
        _fact("remarks that lstmprof made when it read the profile, as JSON", _NEVER),
    ] = ()
    recorded: Annotated[
        tuple[Recorded, ...] | None,
        _fact(
            "for each rank: number of events of each sort in the profile, as JSON",
            f"{_FOREIGN}, or an older lstmprof",
        ),
    ] = None
    links: Annotated[
        Coverage | None,
        _fact(
            "number of events that lstmprof linked (kernel with launch, launch with op …), as JSON",
            _FOREIGN,
        ),
    ] = None

    @property
    def called(self) -> str:
        """Return the implementation and the label of the run; empty if both are unknown."""
        return f"{self.implementation or ''} {self.label or ''}".strip()

    def thread_names(self, rank: int | None) -> dict[str, str]:
        """Return thread id -> name of the host threads of ``rank``; empty if not recorded."""
        metadata = self.profile_metadata or {}
        ranks = metadata.get("ranks")
        of_rank = ranks.get(str(rank), metadata) if isinstance(ranks, dict) else metadata
        names_of = of_rank.get("threads") if isinstance(of_rank, dict) else None
        given = names_of.items() if isinstance(names_of, dict) else ()
        return {tid: name for tid, name in given if isinstance(name, str)}


#: Condition of a run (of ``names.CONDITIONS``) that is computed, not a single field of run.json →
#: the function that computes it.
_CONDITIONS: Mapping[str, Callable[[RunInfo], Any]] = {
    "workload": lambda info: info.workload or None,
    "device": lambda info: info.device_name or next(iter(info.device_names.values()), None),
}


def condition(name: str, info: RunInfo) -> Any:
    """Return the value that a run has for one of ``names.CONDITIONS``; None if unknown."""
    return _CONDITIONS.get(name, attrgetter(name))(info)


def alike(
    items: Iterable[_Item], info_of: Callable[[_Item], RunInfo], across: Collection[str] = ()
) -> list[list[_Item]]:
    """Group ``items`` whose runs have equal ``names.CONDITIONS``, except those in ``across``."""
    conditions = [name for name in names.CONDITIONS if name not in across]
    groups: dict[tuple[Any, ...], list[_Item]] = {}
    for item in items:
        values = tuple(condition(name, info_of(item)) for name in conditions)
        groups.setdefault(values, []).append(item)
    return list(groups.values())


@dataclass(frozen=True)
class Fact:
    """A field of run.json (``field_path``, such as ``hardware.gpu``) and its SQL column."""

    field_path: str
    column: Column

    def value(self, info: RunInfo) -> Any:
        """Return the value of the field in ``info``, as SQL shows it."""
        value = functools.reduce(getattr, self.field_path.split("."), info)
        if value is None or not pa.types.is_string(self.column.type) or isinstance(value, str):
            return value
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


_COLUMN_TYPES = {_Int: pa.int64(), _Real: pa.float64(), _Flag: pa.bool_()}


def _facts(record: type[msgspec.Struct], prefix: str = "") -> Iterator[Fact]:
    """Yield the fields of ``record`` and of its nested records, with paths after ``prefix``."""
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
    """Return all fields of run.json that are columns of the SQL table ``runs``."""
    return tuple(_facts(RunInfo))


def facts_table(infos: Sequence[tuple[str, RunInfo]]) -> pa.Table:
    """Return the SQL table ``runs`` with one row per pair (name of the run, its run.json)."""
    rows = [
        {fact.column.name: fact.value(info) for fact in facts()} | {"run": name}
        for name, info in infos
    ]
    return pa.Table.from_pylist(rows, schema=schema([fact.column for fact in facts()]))


def run_info(facts: Mapping[str, Any]) -> RunInfo:
    """Convert ``facts`` (field -> value), from a worker or a reader of profiles, to a record.

    Raises:
        TypeError: a name is not a field of run.json.
        RunError: a value has another type than the field.
    """
    with _run_errors(f"run '{facts.get('name', '')}'"):
        info = msgspec.convert(facts, RunInfo)
    unknown = list(_unknown(facts, info))
    if unknown:
        raise TypeError(f"unknown fields of run.json: {', '.join(unknown)}")
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
    """Return the record from ``text``, the content of the run.json at ``place``.

    If the run has an old name of an implementation, the record has the current name.

    Raises:
        RunError: the JSON is damaged, a field has another type, or a later version of lstmprof
            wrote the run.
    """
    with _run_errors(place):
        version = msgspec.json.decode(text, type=_Version).schema_version
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise RunError(f"{place}: {NEWER.format(version, SCHEMA_VERSION)}", UPGRADE)
        info = msgspec.json.decode(text, type=RunInfo)
        row = ROWS.get(info.implementation or "")
        return info if row is None else msgspec.structs.replace(info, implementation=row.name)


@contextmanager
def _run_errors(place: object) -> Iterator[None]:
    """Convert errors of parsing the run.json at ``place`` to ``RunError`` with the field."""
    try:
        yield
    except msgspec.ValidationError as fault:
        reason, _, field = str(fault).replace("`", "").partition(" - at $.")
        where = f"{place}: {field}" if field else place
        raise RunError(f"{where}: {reason[0].lower()}{reason[1:]}", AGAIN) from fault
    except (ValueError, RecursionError) as fault:
        raise RunError(f"{place}: is damaged ({str(fault).rstrip('.')})", AGAIN) from fault


def encoded(info: RunInfo) -> bytes:
    """Return ``info`` as indented JSON."""
    try:
        text = msgspec.json.encode(info)
    except UnicodeEncodeError:  # a lone surrogate in a file's name or a profile
        text = json.dumps(msgspec.to_builtins(info), ensure_ascii=False).encode(errors="replace")
    return msgspec.json.format(text, indent=1) + b"\n"

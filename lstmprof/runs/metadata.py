"""What a run says besides its events: run.json, typed.

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
from lstmprof.implementations import ROWS
from lstmprof.runs.fields import (
    FOREIGN as _FOREIGN,
    NEVER as _NEVER,
    NO_GPU as _NO_GPU,
    NOT_MEASURED as _NOT_MEASURED,
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
from lstmprof.runs.records import (
    Hardware,
    Peaks,
    RecordingInfo,
    Sampling,
    ScriptLine,
    ThreadTime,
    WorkloadInfo,
)
from lstmprof.runs.settings import Counters, Settings

_CAPTURED = "the run is a capture"
_BUILT_IN = "the implementation is built in, or the run is an ingested profile"

AGAIN = "capture or ingest the run again"
#: Of a run of a schema version, and the one that is read.
NEWER = "was written by a newer lstmprof (schema version {}; this version reads up to {})"
UPGRADE = "upgrade lstmprof"

_Item = TypeVar("_Item")


class RunInfo(_Record, frozen=True):
    """The facts of run.json; None is unknown. docs/tables.md has the fields."""

    name: Annotated[str, _fact("name of the run", _NEVER, column="run")] = ""
    source: Annotated[_Text, _fact("capture, own code or ingest", _FOREIGN)] = None
    schema_version: Annotated[_Int, _fact("schema version of the Parquet files", _FOREIGN)] = None
    created: Annotated[_Text, _fact("when the run was written, ISO 8601", _FOREIGN)] = None
    command: Annotated[_Text, _fact("the command line that made it", _FOREIGN)] = None
    lstmprof_version: Annotated[
        _Text, _fact("version of lstmprof that wrote the run", _FOREIGN)
    ] = None
    implementation: Annotated[_Text, _fact("name of the implementation (lstmprof list)")] = None
    implementation_file: Annotated[
        _Text, _fact("your file and the function in it, if the implementation is one", _BUILT_IN)
    ] = None
    implementation_sha256: Annotated[_Text, _fact("SHA-256 of that file", _BUILT_IN)] = None
    agrees_with_reference: Annotated[
        _Flag,
        _fact(
            "whether the file was compared with the float64 reference before timing, "
            "and agreed; false if it has no load()",
            _BUILT_IN,
        ),
    ] = None
    framework: Annotated[_Text, _fact("framework of the implementation")] = None
    label: Annotated[_Text, _fact("value of --label, may be empty")] = None
    workload: WorkloadInfo = WorkloadInfo()
    precision: Annotated[_Text, _fact("fp32, tf32, amp-fp16 or amp-bf16")] = None
    tf32: Annotated[_Flag, _fact("whether TF32 was allowed")] = None
    mode: Annotated[_Text, _fact("train or forward")] = None
    cuda_graph: Annotated[_Flag, _fact("whether the step was a CUDA graph")] = None
    xla: Annotated[_Flag, _fact("whether XLA compiled it")] = None
    seed: Annotated[_Int, _fact("seed of weights and data")] = None
    warmup: Annotated[
        _Int, _fact("warm-up iterations, which do not count", column="warmup_iterations")
    ] = None
    iterations: Annotated[
        _Int, _fact("counted iterations of all rounds", column="counted_iterations")
    ] = None
    rounds: Annotated[_Texts, _fact("when each round started, JSON")] = None
    turn_with: Annotated[
        _Texts,
        _fact(
            "runs whose workers took turns with this one at every iteration, JSON",
            "it took turns with no run",
        ),
    ] = None
    device: Annotated[_Text, _fact("cpu or cuda:N", column="ran_on")] = None
    device_name: Annotated[_Text, _fact("model of GPU or CPU", _UNREAD)] = None
    kernels_used: Annotated[_Text, _fact("library whose kernels ran the recurrence", _UNREAD)] = (
        None
    )
    peaks: Annotated[
        Peaks | None, _fact("measured peak rates of the device, JSON", _NOT_MEASURED)
    ] = None
    backend: Annotated[
        _Text,
        _fact(
            "compiler of PyTensor or Theano, algorithm of cuDNN, or device of an inference engine",
            "the framework has no such setting",
        ),
    ] = None
    threads: Annotated[_Int, _fact("threads of the framework")] = None
    affinity: Annotated[_Ints, _fact("CPUs that the process was pinned to, JSON", _UNREAD)] = None
    denormals_flushed: Annotated[
        _Flag, _fact("whether denormals were flushed to zero", _UNREAD)
    ] = None
    garbage_collector: Annotated[_Text, _fact("what was done with Python's garbage collector")] = (
        None
    )
    settings: Settings = Settings()
    versions: Annotated[_Versions, _fact("versions of Python and packages, JSON")] = None
    packages: Annotated[
        _Versions, _fact("every installed package with its version, JSON", _UNREAD)
    ] = None
    python_executable: Annotated[_Text, _fact("Python interpreter of the worker")] = None
    hardware: Hardware = Hardware()
    load_average_before: Annotated[
        _Reals, _fact("load average of 1, 5 and 15 minutes before the run, JSON", _UNREAD)
    ] = None
    started_at: Annotated[_Text, _fact("start of the worker, ISO 8601")] = None
    ended_at: Annotated[_Text, _fact("end of the worker, ISO 8601")] = None
    compile_ns: Annotated[
        _Int,
        _fact("length of the first step of the process, which includes compilation", unit="ns"),
    ] = None
    timing_wall_ns: Annotated[_Int, _fact("wall time of all counted iterations", unit="ns")] = None
    timing_cpu_ns: Annotated[_Int, _fact("CPU time of all counted iterations", _UNREAD, "ns")] = (
        None
    )
    timing_page_faults: Annotated[
        _Int, _fact("page faults of the counted iterations that read no disk", _UNREAD)
    ] = None
    timing_major_faults: Annotated[
        _Int, _fact("page faults of the counted iterations that read a disk", _UNREAD)
    ] = None
    timing_preemptions: Annotated[
        _Int,
        _fact("involuntary context switches of the process in the counted iterations", _UNREAD),
    ] = None
    timing_voluntary_switches: Annotated[
        _Int, _fact("voluntary context switches of the process in the counted iterations", _UNREAD)
    ] = None
    timing_threads: Annotated[
        tuple[ThreadTime, ...] | None,
        _fact(
            "CPU time of the busiest threads in the counted iterations, including "
            "reading the loss, by round, JSON",
            _UNREAD,
        ),
    ] = None
    profiled_rounds: Annotated[
        _Ints, _fact("round of each profiled step, in the order of events.parquet, JSON", _UNREAD)
    ] = None
    profiled_wall_ns: Annotated[
        _Ints, _fact("wall time of each profiled step, JSON", unit="ns")
    ] = None
    profiled_cpu_ns: Annotated[
        _Ints, _fact("CPU time of each profiled step, JSON", _UNREAD, "ns")
    ] = None
    profiled_page_faults: Annotated[
        _Ints, _fact("page faults of each profiled step that read no disk, JSON", _UNREAD)
    ] = None
    profiled_major_faults: Annotated[
        _Ints, _fact("page faults of each profiled step that read a disk, JSON", _UNREAD)
    ] = None
    profiled_preemptions: Annotated[
        _Ints, _fact("involuntary context switches of each profiled step, JSON", _UNREAD)
    ] = None
    profiled_voluntary_switches: Annotated[
        _Ints, _fact("voluntary context switches of each profiled step, JSON", _UNREAD)
    ] = None
    counters: Counters = Counters()
    cpu_clock_mhz: Annotated[
        _Real, _fact("mean clock of the CPUs in use, at the end", _UNREAD, "MHz")
    ] = None
    padding: Annotated[
        _Text,
        _fact(
            "where sequences that Keras masks were padded: front or behind",
            "lstmprof run did not observe it",
        ),
    ] = None
    sampling: Annotated[
        tuple[Sampling, ...] | None,
        _fact("sampled pass of each round, JSON", "--sampler was not given"),
    ] = None
    script_lines: Annotated[
        tuple[ScriptLine, ...] | None,
        _fact(
            "lines of your script, outside a framework, on which a few steps after the timed ones "
            "spent 5 % or more, by samples, JSON",
            "it is no run of your own code, or the training ended before",
        ),
    ] = None
    timing_cpu_energy_j: Annotated[
        _Real,
        _fact(
            "energy of the CPU packages in the iterations of the first round, by RAPL",
            f"other runs took turns with it, or {_UNREAD}",
            "J",
        ),
    ] = None
    timing_gpu_energy_j: Annotated[
        _Real,
        _fact(
            "energy of the GPU in the iterations of the first round, by NVML",
            f"the iterations took less than 1 s, MIG divides the GPU, or {_NO_GPU}",
            "J",
        ),
    ] = None
    gpu_sm_clock_mhz: Annotated[
        _Int, _fact("clock of the multiprocessors at the end of these iterations", _NO_GPU, "MHz")
    ] = None
    gpu_memory_clock_mhz: Annotated[
        _Int, _fact("memory clock at the end of these iterations", _NO_GPU, "MHz")
    ] = None
    gpu_temperature_c: Annotated[
        _Int, _fact("GPU temperature at the end of these iterations", _NO_GPU, "°C")
    ] = None
    gpu_throttle_reasons: Annotated[
        _Texts, _fact("reasons why its clocks were throttled, JSON", _NO_GPU)
    ] = None
    peak_memory_bytes: Annotated[_Int, _fact("largest memory of the worker", _UNREAD, "bytes")] = (
        None
    )
    loss_first: Annotated[_Real, _fact("loss of the first step")] = None
    loss_last: Annotated[_Real, _fact("loss of the last timed step")] = None
    loss_fell: Annotated[
        _Flag, _fact("whether the last loss is lower than the first", "the run did not train")
    ] = None
    profiler: Annotated[_Text, _fact("profiler that recorded the profile")] = None
    recording: Annotated[
        tuple[RecordingInfo, ...] | None,
        _fact("cost of recording an event, by round, JSON", _NOT_MEASURED, "ns"),
    ] = None
    shapes_cost: Annotated[
        _Real,
        _fact(
            "share by which recording shapes lengthens a step, measured before the "
            "profile; above 0.05 the profile has no shapes",
            "it was not measured: only runs of your own PyTorch code do",
        ),
    ] = None
    nvtx: Annotated[_Flag, _fact("whether phases were also NVTX ranges", _UNREAD)] = None
    source_paths: Annotated[_Texts, _fact("files that the run was read from, JSON", _CAPTURED)] = (
        None
    )
    source_stamps: Annotated[
        _Texts, _fact("path, size and time of each of these files, JSON", _CAPTURED)
    ] = None
    step_range: Annotated[_Text, _fact("value of --step-range", "it was not given")] = None
    profile_format: Annotated[_Text, _fact("kineto, xplane …", _FOREIGN)] = None
    profile_metadata: Annotated[
        dict[str, Any] | None, _fact("metadata of the profile, JSON", _FOREIGN)
    ] = None
    base_ns: Annotated[
        _Int, _fact("time since 1970 at start_ns 0", "the profile does not record it", "ns")
    ] = None
    device_names: Annotated[
        dict[str, str], _fact("names of the devices by number, JSON", _NEVER)
    ] = msgspec.field(default_factory=dict)
    device_facts: Annotated[
        dict[str, DeviceFacts],
        _fact("compute capability, multiprocessors and warp size by device number, JSON", _NEVER),
    ] = msgspec.field(default_factory=dict)
    accelerators: Annotated[
        tuple[str, ...], _fact("accelerators that the profile names, JSON", _NEVER)
    ] = ()
    gpu_complaint: Annotated[
        _Text,
        _fact(
            "the profiler's log message about a GPU of which it recorded nothing",
            "there is no such message",
        ),
    ] = None
    notes: Annotated[tuple[str, ...], _fact("notes for readers of the run, JSON", _NEVER)] = ()
    recorded: Annotated[
        tuple[Recorded, ...] | None,
        _fact("what the profile holds for each rank, JSON", f"{_FOREIGN}, or an older lstmprof"),
    ] = None
    links: Annotated[Coverage | None, _fact("number of linked events, JSON", _FOREIGN)] = None

    @property
    def called(self) -> str:
        """Implementation and label; empty if both are unknown."""
        return f"{self.implementation or ''} {self.label or ''}".strip()

    def thread_names(self, rank: int | None) -> dict[str, str]:
        """Return names of host threads by thread id, if the profile of ``rank`` has them."""
        metadata = self.profile_metadata or {}
        ranks = metadata.get("ranks")
        of_rank = ranks.get(str(rank), metadata) if isinstance(ranks, dict) else metadata
        names_of = of_rank.get("threads") if isinstance(of_rank, dict) else None
        given = names_of.items() if isinstance(names_of, dict) else ()
        return {tid: name for tid, name in given if isinstance(name, str)}


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
    """Return the record in the JSON ``text``, which lies at ``place``.

    An implementation that was renamed has its present name.

    Raises:
        RunError: it is damaged, a field has another type, or a later version of lstmprof wrote it.
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

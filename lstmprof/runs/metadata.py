"""What a run says besides its events: the fields of run.json and the columns of timings.parquet.

In SQL a field has a column of its own, called by its last name, or by another where a table has one
of that name. A field of several values (a list, versions by package) is JSON text there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lstmprof.events.columns import Column, schema

_MADE_ELSEWHERE = "the run is an ingested profile"
_UNREAD = "it cannot be read on that machine, or the run is an ingested profile"
_NO_GPU = "no GPU was used or NVML does not tell, or the run is an ingested profile"
_CAPTURED = "the run is a capture"
_FOREIGN = "another program made the run"

_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


@dataclass(frozen=True)
class Fact:
    """A field of run.json: its place, dots between names, and its column."""

    place: str
    column: Column


def _fact(
    place: str, type_: pa.DataType, unit: str, meaning: str, null_when: str, name: str = ""
) -> Fact:
    return Fact(place, Column(name or place.rpartition(".")[2], type_, unit, meaning, null_when))


FACTS: tuple[Fact, ...] = (
    _fact("name", _TEXT, "", "of the run", "", "run"),
    _fact("source", _TEXT, "", "capture or ingest", _FOREIGN),
    _fact("schema_version", _INT, "", "of the Parquet files", _FOREIGN),
    _fact("created", _TEXT, "", "when the run was written, ISO 8601", _FOREIGN),
    _fact("command", _TEXT, "", "the command line that made it", _FOREIGN),
    _fact("lstmprof_version", _TEXT, "", "that wrote the run", _FOREIGN),
    _fact("implementation", _TEXT, "", "what was run: see lstmprof list", _MADE_ELSEWHERE),
    _fact("framework", _TEXT, "", "of the implementation", _MADE_ELSEWHERE),
    _fact("label", _TEXT, "", "what --label gave, may be empty", _MADE_ELSEWHERE),
    _fact("workload.name", _TEXT, "", "name of the network", _MADE_ELSEWHERE, "workload"),
    _fact("workload.layers", _INT, "", "recurrent layers", _MADE_ELSEWHERE),
    _fact("workload.hidden", _INT, "", "hidden units of a layer and direction", _MADE_ELSEWHERE),
    _fact("workload.bidirectional", _FLAG, "", "whether layers run both ways", _MADE_ELSEWHERE),
    _fact("workload.cell", _TEXT, "", "lstm, gru or rnn", _MADE_ELSEWHERE),
    _fact("workload.batch", _INT, "", "sequences in a batch", _MADE_ELSEWHERE),
    _fact("workload.time_steps", _INT, "", "of the longest sequence", _MADE_ELSEWHERE),
    _fact("workload.features", _INT, "", "inputs of a time step", _MADE_ELSEWHERE),
    _fact("workload.classes", _INT, "", "outputs", _MADE_ELSEWHERE),
    _fact("workload.vocabulary", _INT, "", "number of distinct tokens", "the inputs are numbers"),
    _fact("workload.head", _FLAG, "", "whether there is an output layer", _MADE_ELSEWHERE),
    _fact("workload.loss", _TEXT, "", "ce, ctc, mse or mean", _MADE_ELSEWHERE, "loss_kind"),
    _fact("workload.each_step", _FLAG, "", "whether at every time step", _MADE_ELSEWHERE),
    _fact("workload.labels", _INT, "", "length of CTC targets", "the loss is not ctc"),
    _fact("workload.shortest", _INT, "", "time steps of the shortest sequence", "all are alike"),
    _fact(
        "workload.variable_length",
        _FLAG,
        "",
        "whether the layers know the sequences' lengths",
        _MADE_ELSEWHERE,
    ),
    _fact("workload.optimizer", _TEXT, "", "adam or sgd", _MADE_ELSEWHERE),
    _fact("workload.learning_rate", _REAL, "", "of the optimizer", _MADE_ELSEWHERE),
    _fact("precision", _TEXT, "", "fp32, tf32, amp-fp16 or amp-bf16", _MADE_ELSEWHERE),
    _fact("tf32", _FLAG, "", "whether TF32 was allowed", _MADE_ELSEWHERE),
    _fact("mode", _TEXT, "", "train or forward", _MADE_ELSEWHERE),
    _fact("cuda_graph", _FLAG, "", "whether the step was a CUDA graph", _MADE_ELSEWHERE),
    _fact("xla", _FLAG, "", "whether XLA compiled it", _MADE_ELSEWHERE),
    _fact("seed", _INT, "", "of weights and data", _MADE_ELSEWHERE),
    _fact(
        "warmup",
        _INT,
        "",
        "iterations before those that count",
        _MADE_ELSEWHERE,
        "warmup_iterations",
    ),
    _fact(
        "iterations",
        _INT,
        "",
        "iterations that count, of the first round",
        _MADE_ELSEWHERE,
        "counted_iterations",
    ),
    _fact("rounds", _TEXT, "", "when each round started, JSON", _MADE_ELSEWHERE),
    _fact("device", _TEXT, "", "cpu or cuda:N", _MADE_ELSEWHERE, "ran_on"),
    _fact("device_name", _TEXT, "", "model of GPU or CPU", _UNREAD),
    _fact("kernels_used", _TEXT, "", "whose kernels ran the recurrence", _UNREAD),
    _fact("peaks", _TEXT, "", "what the device did at best, JSON", "it was not measured"),
    _fact("backend", _TEXT, "", "PyTensor's compiler", "another framework ran"),
    _fact("threads", _INT, "", "threads of the framework", _MADE_ELSEWHERE),
    _fact("affinity", _TEXT, "", "CPUs it was pinned to, JSON", _UNREAD),
    _fact("denormals_flushed", _FLAG, "", "whether denormals were flushed to zero", _UNREAD),
    _fact("garbage_collector", _TEXT, "", "what was done with Python's", _MADE_ELSEWHERE),
    _fact("versions", _TEXT, "", "of Python and packages, JSON", _MADE_ELSEWHERE),
    _fact("python_executable", _TEXT, "", "the worker's interpreter", _MADE_ELSEWHERE),
    _fact("hardware.cpu_model", _TEXT, "", "of the host", _UNREAD),
    _fact("hardware.cores", _INT, "", "CPUs of the host", _UNREAD),
    _fact("hardware.memory_bytes", _INT, "bytes", "memory of the host", _UNREAD),
    _fact("hardware.system", _TEXT, "", "operating system", _UNREAD),
    _fact("hardware.cpu_governor", _TEXT, "", "of the CPU's clock", _UNREAD),
    _fact("hardware.gpu", _TEXT, "", "model of the GPU", _NO_GPU),
    _fact("hardware.gpu_memory_bytes", _INT, "bytes", "memory of the GPU", _NO_GPU),
    _fact("load_average_before", _TEXT, "", "of 1, 5 and 15 minutes, JSON", _UNREAD),
    _fact("started_at", _TEXT, "", "when the worker started, ISO 8601", _MADE_ELSEWHERE),
    _fact("ended_at", _TEXT, "", "when it ended, ISO 8601", _MADE_ELSEWHERE),
    _fact("compile_ns", _INT, "ns", "first step of the process", _MADE_ELSEWHERE),
    _fact("profiled_wall_ns", _TEXT, "ns", "each profiled step, JSON", _MADE_ELSEWHERE),
    _fact("timing_wall_ns", _INT, "ns", "all counted iterations", _MADE_ELSEWHERE),
    _fact("timing_cpu_ns", _INT, "ns", "CPU time in them", _MADE_ELSEWHERE),
    _fact("timing_page_faults", _INT, "", "page faults of the process in them", _UNREAD),
    _fact("profiled_page_faults", _TEXT, "", "in each profiled step, JSON", _UNREAD),
    _fact(
        "timing_preemptions",
        _INT,
        "",
        "involuntary context switches of the process in them",
        _UNREAD,
    ),
    _fact("profiled_preemptions", _TEXT, "", "in each profiled step, JSON", _UNREAD),
    _fact("timing_cpu_energy_j", _REAL, "J", "of the CPU packages in them, by RAPL", _UNREAD),
    _fact("timing_gpu_energy_j", _REAL, "J", "of the GPU in them, by NVML", _NO_GPU),
    _fact("gpu_sm_clock_mhz", _INT, "MHz", "multiprocessors' clock at their end", _NO_GPU),
    _fact("gpu_memory_clock_mhz", _INT, "MHz", "memory's clock at their end", _NO_GPU),
    _fact("gpu_temperature_c", _INT, "°C", "at their end", _NO_GPU),
    _fact("gpu_throttle_reasons", _TEXT, "", "what held its clocks down, JSON", _NO_GPU),
    _fact("peak_memory_bytes", _INT, "bytes", "largest the worker was", _UNREAD),
    _fact("loss_first", _REAL, "", "of the first step", _MADE_ELSEWHERE),
    _fact("loss_last", _REAL, "", "of the last timed step", _MADE_ELSEWHERE),
    _fact("loss_fell", _FLAG, "", "whether the last is the lower", "nothing was trained"),
    _fact("profiler", _TEXT, "", "that took the profile", _MADE_ELSEWHERE),
    _fact("nvtx", _FLAG, "", "whether phases were NVTX ranges too", _UNREAD),
    _fact("source_paths", _TEXT, "", "the files it was read from, JSON", _CAPTURED),
    _fact("source_stamps", _TEXT, "", "path, size and time of each of them, JSON", _CAPTURED),
    _fact("step_range", _TEXT, "", "what --step-range gave", "it was not given"),
    _fact("profile_format", _TEXT, "", "kineto, xplane …", _FOREIGN),
    _fact("profile_metadata", _TEXT, "", "what the profile says of itself, JSON", _FOREIGN),
    _fact("base_ns", _INT, "ns", "time since 1970 of start_ns 0", "the profile does not say"),
    _fact("device_names", _TEXT, "", "by device number, JSON", _FOREIGN),
    _fact("notes", _TEXT, "", "what a reader must know, JSON", _FOREIGN),
    _fact("links", _TEXT, "", "how many events are linked, JSON", _FOREIGN),
)
FACTS_SCHEMA = schema([fact.column for fact in FACTS])

#: The columns of timings.parquet, one row an iteration of the undisturbed pass.
ITERATIONS = (
    Column("round", _INT, "", "which worker process ran it, from 0"),
    Column("iteration", _INT, "", "number in the run, warm-up included"),
    Column("warmup", _FLAG, "", "whether it is warm-up, which no statistic counts"),
    Column("wall_ns", _INT, "ns", "by the host's clock, until the device had ended"),
    Column("device_ns", _INT, "ns", "by the device's events", "it ran on a CPU"),
    Column("loss", _REAL, "", "of this step", "the step has no loss"),
)


def facts_row(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of ``FACTS`` from run.json; what is not there, or of another type, is None."""
    return {f.column.name: _fitting(_at(metadata, f.place), f.column.type) for f in FACTS}


def _at(metadata: Any, place: str) -> Any:
    for name in place.split("."):
        metadata = metadata.get(name) if isinstance(metadata, Mapping) else None
    return metadata


def _fitting(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(type_):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if pa.types.is_boolean(type_) or isinstance(value, bool):
        return value if pa.types.is_boolean(type_) and isinstance(value, bool) else None
    kinds = (int,) if pa.types.is_integer(type_) else (int, float)
    fits = isinstance(value, kinds) and abs(value) < 2**63
    return type_.to_pandas_dtype()(value).item() if fits else None

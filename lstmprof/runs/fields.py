"""The record fields of run.json, and the columns of timings.parquet and samples.parquet."""

from typing import Annotated, TypeAlias

import msgspec
import pyarrow as pa

from lstmprof.events.schema import Column

MADE_ELSEWHERE = "the run is an ingested profile, or your own code that does not provide it"
UNREAD = "that machine does not report it, or the run is an ingested profile"
NO_GPU = "no GPU was used, NVML does not report it, or the run is an ingested profile"
NOT_MEASURED = "it was not measured"
OLDER = "that machine does not report it, or an older lstmprof wrote the run"
FOREIGN = "another program wrote the run"
NEVER = ""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Text: TypeAlias = str | None
Int: TypeAlias = Int64 | None
Real: TypeAlias = float | None
Flag: TypeAlias = bool | None
Texts: TypeAlias = tuple[str, ...] | None
Ints: TypeAlias = tuple[Int64, ...] | None
Reals: TypeAlias = tuple[float, ...] | None
Versions: TypeAlias = dict[str, str | Int64 | None] | None
Variables: TypeAlias = dict[str, str] | None


def fact(
    meaning: str, null_when: str = MADE_ELSEWHERE, unit: str = "", column: str = ""
) -> msgspec.Meta:
    """What a field of run.json says; ``column`` is its name in SQL where that is another."""
    extra = {"null_when": null_when, "unit": unit, "column": column}
    return msgspec.Meta(description=meaning, extra=extra)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of run.json; a field that a later version writes is passed over."""


class WorkloadInfo(Record, frozen=True):
    """The network and the data that a capture ran, as ``workloads.Workload`` has them."""

    name: Annotated[Text, fact("name of the network", column="workload")] = None
    layers: Annotated[Int, fact("recurrent layers")] = None
    hidden: Annotated[Int, fact("hidden units per layer and direction")] = None
    bidirectional: Annotated[Flag, fact("whether layers are bidirectional")] = None
    cell: Annotated[Text, fact("lstm, gru or rnn")] = None
    batch: Annotated[Int, fact("sequences in a batch")] = None
    time_steps: Annotated[Int, fact("time steps of the longest sequence")] = None
    features: Annotated[Int, fact("inputs per time step")] = None
    classes: Annotated[Int, fact("outputs")] = None
    vocabulary: Annotated[Int, fact("number of distinct tokens", "the inputs are numbers")] = None
    head: Annotated[Flag, fact("whether there is an output layer")] = None
    loss: Annotated[Text, fact("ce, ctc, mse or mean", column="loss_kind")] = None
    each_step: Annotated[Flag, fact("whether there is an output at every time step")] = None
    labels: Annotated[Int, fact("length of CTC targets", "the loss is not CTC")] = None
    shortest: Annotated[
        Int, fact("time steps of the shortest sequence", "all sequences have one length")
    ] = None
    variable_length: Annotated[Flag, fact("whether the layers know the sequences' lengths")] = None
    data: Annotated[
        Text, fact("your file with the tokens", "the tokens are random, from the seed")
    ] = None
    optimizer: Annotated[Text, fact("adam or sgd")] = None
    learning_rate: Annotated[Real, fact("learning rate of the optimizer")] = None

    def __bool__(self) -> bool:
        return self != WorkloadInfo()

    @property
    def words(self) -> int | None:
        """Tokens of a batch; None where the inputs are numbers, or it is unknown."""
        if not self.vocabulary or self.batch is None or self.time_steps is None:
            return None
        return self.batch * self.time_steps

    @property
    def sizes(self) -> str:
        """Sizes of the inputs in words."""
        return f"batch {self.batch}, {self.time_steps} time steps, {self.features} features"


class Hardware(Record, frozen=True):
    """The machine that a capture ran on."""

    cpu_model: Annotated[Text, fact("CPU model of the host", UNREAD)] = None
    cores: Annotated[Int, fact("CPUs of the host", UNREAD)] = None
    memory_bytes: Annotated[Int, fact("memory of the host", UNREAD, "bytes")] = None
    system: Annotated[Text, fact("operating system", UNREAD)] = None
    cpu_governor: Annotated[Text, fact("CPU frequency governor", UNREAD)] = None
    gpu: Annotated[Text, fact("model of the GPU", NO_GPU)] = None
    gpu_memory_bytes: Annotated[Int, fact("memory of the GPU", NO_GPU, "bytes")] = None


class Peaks(Record, frozen=True):
    """What the device did at best, by the framework's own library."""

    gemm_flops_per_s: Annotated[Real, fact("of a product", NOT_MEASURED, "1/s")] = None
    gemm_size: Annotated[Int, fact("rows of its matrices", NOT_MEASURED)] = None
    copy_bytes_per_s: Annotated[Real, fact("of a copy", NOT_MEASURED, "bytes/s")] = None
    copy_bytes: Annotated[Int, fact("bytes read and written", NOT_MEASURED, "bytes")] = None
    precision: Annotated[Text, fact("of the product", NOT_MEASURED)] = None
    reason: Annotated[Text, fact("why none was measured", "they were")] = None


class ThreadTime(Record, frozen=True):
    """What one thread of a round's process had of the CPUs; see ``capture.worker.threads``.

    ``waited_ns``: ready to run, with no CPU. ``main``: whether it calls the steps, in which a
    framework may have others do the work.
    ``cpus``: those that it may run on, as ``0-1,4``.
    """

    round: Int = None
    name: Text = None
    main: Flag = None
    cpu_ns: Int = None
    waited_ns: Int = None
    cpus: Text = None


class RecordingInfo(Record, frozen=True):
    """What the profiler took to record one event, in a loop of trivial calls in a round's process.

    CPU time, profiled less not. ``event_before_ns`` of ``event_ns`` are spent before the begin is
    noted, ``event_inside_ns`` until the end is, the rest after it; ``range_ns`` is of one of the
    capture's own ranges. ``*_error_ns`` is half of the middle half of the repeats. None: not known.
    """

    event_ns: Real = None
    event_error_ns: Real = None
    event_before_ns: Real = None
    event_inside_ns: Real = None
    range_ns: Real = None
    range_error_ns: Real = None
    range_inside_ns: Real = None
    page_fault_ns: Real = None


class Sampling(Record, frozen=True):
    """A pass of a round in which a sampler looked on from outside, or why there was none."""

    sampler: Annotated[Text, fact("py-spy or perf", NEVER)] = None
    version: Annotated[Text, fact("of it", "it did not run")] = None
    rate_hz: Annotated[Int, fact("samples per second, as asked", "it did not run")] = None
    steps: Annotated[Int, fact("steps that it saw", "it did not run")] = None
    samples: Annotated[Int, fact("of threads that did not wait", "it did not run")] = None
    reason: Annotated[Text, fact("why it did not run", "it did")] = None


_NOT_OF_IT = "the framework has no such setting, or the run is an ingested profile"
_UNCOUNTED = "the CPU's counters cannot be read: counters_reason says why"


class Settings(Record, frozen=True):
    """How framework, process and machine were set while the steps were timed."""

    grad_mode: Annotated[Flag, fact("whether autograd recorded the step", _NOT_OF_IT)] = None
    anomaly_mode: Annotated[Flag, fact("whether gradients were searched for NaN", _NOT_OF_IT)] = (
        None
    )
    deterministic: Annotated[
        Flag, fact("whether only deterministic algorithms were allowed", _NOT_OF_IT)
    ] = None
    cudnn_deterministic: Annotated[
        Flag, fact("whether only deterministic algorithms of cuDNN were allowed", _NOT_OF_IT)
    ] = None
    cudnn_benchmark: Annotated[
        Flag, fact("whether cuDNN's algorithms were chosen by benchmark", _NOT_OF_IT)
    ] = None
    onednn: Annotated[Flag, fact("whether oneDNN's kernels were allowed", _NOT_OF_IT)] = None
    matmul_tf32: Annotated[Flag, fact("whether matmuls could use TF32", _NOT_OF_IT)] = None
    cudnn_tf32: Annotated[Flag, fact("whether cuDNN could use TF32", _NOT_OF_IT)] = None
    matmul_precision: Annotated[
        Text, fact("precision of float32 matmuls, by the framework's name", _NOT_OF_IT)
    ] = None
    blas: Annotated[Text, fact("BLAS library that Theano's operators called", _NOT_OF_IT)] = None
    intra_op_threads: Annotated[Int, fact("threads within an operator", _NOT_OF_IT)] = None
    inter_op_threads: Annotated[Int, fact("threads between operators", _NOT_OF_IT)] = None
    framework_denormals: Annotated[
        Text,
        fact(
            "what an operator of the framework did with denormals: flushed, kept, or both",
            "the run was not on a CPU, or is an ingested profile",
        ),
    ] = None
    flush_to_zero: Annotated[
        Flag, fact("whether denormal results became 0 in the step's thread", UNREAD)
    ] = None
    denormals_are_zero: Annotated[
        Flag, fact("whether denormal inputs counted as 0 in the step's thread", UNREAD)
    ] = None
    gc_enabled: Annotated[Flag, fact("whether Python's garbage collector was on")] = None
    python_traced: Annotated[Flag, fact("whether a tracer or profiler of Python was on")] = None
    allocator: Annotated[Text, fact("malloc library that was loaded", UNREAD)] = None
    nice: Annotated[Int, fact("the process's nice value", UNREAD)] = None
    transparent_huge_pages: Annotated[Text, fact("always, madvise or never", UNREAD)] = None
    cpu_quota: Annotated[
        Real,
        fact("CPUs whose time the cgroup may use", "there is no limit, or it cannot be read"),
    ] = None
    environment: Annotated[
        Variables, fact("environment variables that libraries of the step read, JSON")
    ] = None

    def __bool__(self) -> bool:
        return self != Settings()


class Counters(Record, frozen=True):
    """What the CPU counted of the process's own instructions in the timed steps."""

    instructions: Annotated[
        Int, fact("instructions of all threads in the counted iterations", _UNCOUNTED)
    ] = None
    cycles: Annotated[Int, fact("CPU cycles in which they ran, by perf_event_open", _UNCOUNTED)] = (
        None
    )
    cache_misses: Annotated[Int, fact("cache misses of the last level", _UNCOUNTED)] = None
    fp_assists: Annotated[
        Int,
        fact(
            "microcode assists of arithmetic, mostly for denormals",
            f"{_UNCOUNTED}, or not known for this CPU",
        ),
    ] = None
    reason: Annotated[
        Text,
        fact("why some counters were not read", "all counters were read", column="counters_reason"),
    ] = None


_OTHERS = f"the run is not your own code, or {OLDER}"

#: The columns of timings.parquet, one row per iteration without a profiler.
ITERATIONS = (
    Column("round", pa.int64(), "", "number of the worker process that ran it, from 0"),
    Column("iteration", pa.int64(), "", "number in the run, warm-up included"),
    Column("warmup", pa.bool_(), "", "whether it is warm-up, which statistics do not count"),
    Column(
        "turn",
        pa.int64(),
        "",
        "number of its turn in the round, from 0, if workers took turns on one "
        "CPU; turns of one number follow each other directly",
        "it is warm-up, or the run was captured alone",
    ),
    Column("after_profile", pa.bool_(), "", "whether it ran after the profile of its round", OLDER),
    Column("wall_ns", pa.int64(), "ns", "length by the host's clock, until the device finished"),
    Column(
        "device_ns",
        pa.int64(),
        "ns",
        "length by the device's events",
        "it ran on a CPU, or is your own code",
    ),
    Column(
        "cpu_ns",
        pa.int64(),
        "ns",
        "CPU time of all threads of the process, to a microsecond and about 1 µs "
        "too long; a thread on another CPU counts up to its last clock tick",
        OLDER,
    ),
    Column(
        "voluntary_switches",
        pa.int64(),
        "",
        "voluntary context switches: a thread of the process gave up its CPU to wait",
        OLDER,
    ),
    Column(
        "preemptions",
        pa.int64(),
        "",
        "involuntary context switches: a CPU was taken from a thread of the process",
        OLDER,
    ),
    Column(
        "minor_faults",
        pa.int64(),
        "",
        "page faults that read no disk",
        OLDER,
    ),
    Column("major_faults", pa.int64(), "", "page faults that read a disk", OLDER),
    Column("thread_cpu_ns", pa.int64(), "ns", "CPU time of the thread that ran the step", _OTHERS),
    Column(
        "waited_ns",
        pa.int64(),
        "ns",
        "time in which that thread was ready but had no CPU",
        _OTHERS,
    ),
    Column(
        "others_waited_ns",
        pa.int64(),
        "ns",
        "sum of the same for the other threads of the process",
        _OTHERS,
    ),
    Column(
        "children_waited_ns",
        pa.int64(),
        "ns",
        "sum of the same for processes that it started to load data (multiprocessing)",
        _OTHERS,
    ),
    Column(
        "loss", pa.float64(), "", "loss of this step", "the step has no loss, or is your own code"
    ),
)

#: The columns of samples.parquet.
SAMPLES = (
    Column("round", pa.int64(), "", "number of the sampled worker process, from 0"),
    Column("thread", pa.string(), "", "name of the thread, as the sampler reports it"),
    Column("part", pa.string(), "", "part of the breakdown; or waiting, compiled or unknown"),
    Column("rule", pa.string(), "", "the rule that decided the part"),
    Column(
        "line",
        pa.string(),
        "",
        "innermost Python function and line",
        "the stack has no Python frame",
    ),
    Column("count", pa.int64(), "", "number of samples with this stack"),
    Column("frames", pa.list_(pa.string()), "", "the stack from the step on, innermost frame last"),
)

"""run.json as typed records, and the columns of timings.parquet and samples.parquet.

Each field states its unit, its meaning and when it is null. docs/tables.md and the SQL table
``runs`` are made from these descriptions. A field is an SQL column of the same name, or of another
name if a table already has a column of that name. A field with several values (a list, versions by
package) is JSON text in SQL.
"""

from typing import Annotated, TypeAlias

import msgspec
import pyarrow as pa

from lstmprof.events.schema import Column

MADE_ELSEWHERE = "the run is an ingested profile, or a run of your own code for which it is unknown"
UNREAD = "the machine did not report it, or the run is an ingested profile"
NO_GPU = "no GPU was used, NVML did not report it, or the run is an ingested profile"
NOT_MEASURED = "it was not measured"
OLDER = "the machine did not report it, or an older lstmprof wrote the run"
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
    """Return the description of a field of run.json; ``column`` is its SQL name if different."""
    extra = {"null_when": null_when, "unit": unit, "column": column}
    return msgspec.Meta(description=meaning, extra=extra)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of run.json; unknown fields, which a later version may write, are ignored."""


#: ``WorkloadInfo.loss`` → its name for users.
_LOSS_WORDS = {"ce": "cross-entropy", "ctc": "CTC", "mse": "mean-squared-error"}


class WorkloadInfo(Record, frozen=True):
    """The network and the data of a run, with the fields of ``workloads.Workload``."""

    name: Annotated[Text, fact("name of the network", column="workload")] = None
    layers: Annotated[Int, fact("number of recurrent layers")] = None
    hidden: Annotated[Int, fact("number of hidden units per layer and direction")] = None
    bidirectional: Annotated[Flag, fact("whether the layers are bidirectional")] = None
    cell: Annotated[Text, fact("kind of cell: lstm, gru or rnn")] = None
    batch: Annotated[Int, fact("number of sequences in a batch")] = None
    time_steps: Annotated[Int, fact("number of time steps of the longest sequence")] = None
    features: Annotated[Int, fact("number of inputs per time step")] = None
    classes: Annotated[Int, fact("number of outputs of the output layer")] = None
    vocabulary: Annotated[Int, fact("number of distinct tokens", "the inputs are numbers")] = None
    head: Annotated[Flag, fact("whether there is an output layer")] = None
    loss: Annotated[
        Text, fact("loss: ce (cross-entropy), ctc, mse, or mean (of outputs)", column="loss_kind")
    ] = None
    each_step: Annotated[Flag, fact("whether the losses ce and mse use every time step")] = None
    labels: Annotated[Int, fact("number of labels per CTC target", "the loss is not CTC")] = None
    shortest: Annotated[
        Int,
        fact("number of time steps of the shortest sequence", "all sequences have the same length"),
    ] = None
    variable_length: Annotated[Flag, fact("whether the layers know the sequences' lengths")] = None
    data: Annotated[Text, fact("path of your token file", "the data is random")] = None
    optimizer: Annotated[Text, fact("optimizer: adam or sgd")] = None
    learning_rate: Annotated[Real, fact("learning rate of the optimizer")] = None

    def __bool__(self) -> bool:
        return self != WorkloadInfo()

    @property
    def words(self) -> int | None:
        """Return the number of tokens per batch, with padding; None if unknown or not tokens."""
        if not self.vocabulary or self.batch is None or self.time_steps is None:
            return None
        return self.batch * self.time_steps

    @property
    def sizes(self) -> str:
        """Return the known sizes of network and inputs, and the loss, as text for users."""
        layer = " bidirectional layer" if self.bidirectional else " layer"
        plural = "" if self.layers == 1 else "s"
        parts = (
            (self.layers, f"{self.layers}{layer}{plural} of {self.hidden} units"),
            (self.batch, f"batch {self.batch}"),
            (self.time_steps, f"{self.time_steps} time steps"),
            (self.features, f"{self.features} features"),
            (self.loss, f"{_LOSS_WORDS.get(self.loss or '', self.loss)} loss"),
        )
        return ", ".join(text for value, text in parts if value)


class Hardware(Record, frozen=True):
    """The machine that a capture ran on."""

    cpu_model: Annotated[Text, fact("CPU model of the host", UNREAD)] = None
    cores: Annotated[Int, fact("number of CPUs of the host", UNREAD)] = None
    memory_bytes: Annotated[Int, fact("memory of the host", UNREAD, "bytes")] = None
    system: Annotated[Text, fact("operating system", UNREAD)] = None
    cpu_governor: Annotated[Text, fact("CPU frequency governor", UNREAD)] = None
    gpu: Annotated[Text, fact("model of the GPU", NO_GPU)] = None
    gpu_memory_bytes: Annotated[Int, fact("memory of the GPU", NO_GPU, "bytes")] = None


class Peaks(Record, frozen=True):
    """The peak rates of a device, measured with the framework's own library."""

    gemm_flops_per_s: Annotated[Real, fact("peak rate of a matmul", NOT_MEASURED, "1/s")] = None
    gemm_size: Annotated[Int, fact("rows of the matmul's matrices", NOT_MEASURED)] = None
    copy_bytes_per_s: Annotated[Real, fact("peak rate of a copy", NOT_MEASURED, "bytes/s")] = None
    copy_bytes: Annotated[
        Int, fact("bytes that the copy reads and writes", NOT_MEASURED, "bytes")
    ] = None
    precision: Annotated[Text, fact("precision of the matmul", NOT_MEASURED)] = None
    reason: Annotated[Text, fact("why the peaks were not measured", "the peaks were measured")] = (
        None
    )


class ScriptLine(Record, frozen=True):
    """A line or function of the user's code, outside a framework, in which steps spend time.

    ``share`` is the share of the sampled time, and ``ns`` the time per sampled step. ``call`` is
    the function that the line calls. If ``call`` is None, the entry is about all of ``function``,
    which calls no framework. ``file`` is None for the garbage collector.
    """

    file: Text = None
    line: Int = None
    function: Text = None
    call: Text = None
    share: Real = None
    ns: Int = None


class Recompiled(Record, frozen=True):
    """A compiled function of a script that was compiled again, and the last change that caused it.

    ``times`` counts the compilations after the first one. ``changed`` is ``function`` (the script
    created the function anew), ``shape``, ``dtype``, ``value`` (of a Python object) or
    ``structure`` (number of arrays) of ``argument``, an argument. ``before`` and ``after`` are the
    texts of the shape, dtype or value.

    For torch.compile, ``argument`` may be any expression, and ``changed`` may also be ``size``,
    ``stride``, ``rank``, ``length``, ``type``, ``object`` or ``guard``: any other condition, with
    its text in ``before``. PyTorch often reports no ``after``. ``limit`` is the number of versions
    after which torch.compile gave up, and None if it did not.
    """

    function: Text = None
    times: Int = None
    changed: Text = None
    argument: Text = None
    before: Text = None
    after: Text = None
    limit: Int = None


class ThreadTime(Record, frozen=True):
    """The CPU time of one thread in the timed iterations of a round (``capture.worker.usage``).

    ``waited_ns`` is the time in which the thread was ready but had no CPU. ``main`` is True for the
    thread that calls the steps. ``cpus`` are the CPUs that the thread may use, such as ``0-1,4``. A
    field is None if unknown.
    """

    round: Int = None
    name: Text = None
    main: Flag = None
    cpu_ns: Int = None
    waited_ns: Int = None
    cpus: Text = None


class RecordingInfo(Record, frozen=True):
    """The CPU time that the profiler needs to record one event, measured with trivial calls.

    ``event_ns`` is the time per event with the profiler on, minus the time with the profiler off.
    ``event_before_ns`` of this time passes before the recorded start, ``event_inside_ns`` between
    recorded start and end, and the remaining time after the end. ``range_ns`` is the same for a
    range of the capture itself. ``*_error_ns`` is half of the interquartile range of the repeats. A
    field is None if unknown.
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
    """Facts about the steps of a round that a sampler observed, or the reason why it did not."""

    sampler: Annotated[Text, fact("py-spy or perf", NEVER)] = None
    version: Annotated[Text, fact("version of the sampler", "it did not run")] = None
    rate_hz: Annotated[Int, fact("requested samples per second", "it did not run")] = None
    steps: Annotated[Int, fact("steps that were sampled", "it did not run")] = None
    samples: Annotated[Int, fact("samples of threads that did not wait", "it did not run")] = None
    reason: Annotated[Text, fact("why the sampler did not run", "the sampler ran")] = None


_NOT_OF_IT = "the framework has no such setting, or the run is an ingested profile"
_UNCOUNTED = "the CPU's counters cannot be read (counters_reason says why)"


class Settings(Record, frozen=True):
    """The settings of the framework, process and machine while the steps were timed."""

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
        Text, fact("precision of float32 matmuls, as the framework names it", _NOT_OF_IT)
    ] = None
    blas: Annotated[Text, fact("BLAS library that Theano called", _NOT_OF_IT)] = None
    intra_op_threads: Annotated[Int, fact("number of threads within an op", _NOT_OF_IT)] = None
    inter_op_threads: Annotated[
        Int, fact("number of threads that run ops at the same time", _NOT_OF_IT)
    ] = None
    framework_denormals: Annotated[
        Text,
        fact(
            "what ops of the framework did with denormal numbers: flushed, kept, or both",
            "the run did not use a CPU, or it is an ingested profile",
        ),
    ] = None
    flush_to_zero: Annotated[
        Flag, fact("whether denormal results became 0 in the step's thread", UNREAD)
    ] = None
    denormals_are_zero: Annotated[
        Flag, fact("whether denormal inputs counted as 0 in the step's thread", UNREAD)
    ] = None
    gc_enabled: Annotated[Flag, fact("whether Python's garbage collector was on")] = None
    python_traced: Annotated[Flag, fact("whether a Python tracer or profiler was active")] = None
    allocator: Annotated[Text, fact("name of the malloc library", UNREAD)] = None
    nice: Annotated[Int, fact("the process's nice value", UNREAD)] = None
    transparent_huge_pages: Annotated[
        Text, fact("transparent huge pages: always, madvise or never", UNREAD)
    ] = None
    cpu_quota: Annotated[
        Real,
        fact("number of CPUs that the cgroup may use", "there is no limit, or it cannot be read"),
    ] = None
    environment: Annotated[
        Variables, fact("environment variables that the libraries of the step read, as JSON")
    ] = None

    def __bool__(self) -> bool:
        return self != Settings()


class Counters(Record, frozen=True):
    """The CPU's hardware counters for the process in the timed iterations."""

    instructions: Annotated[
        Int, fact("number of instructions of all threads in the timed iterations", _UNCOUNTED)
    ] = None
    cycles: Annotated[Int, fact("number of CPU cycles for these instructions", _UNCOUNTED)] = None
    cache_misses: Annotated[Int, fact("number of misses in the last-level cache", _UNCOUNTED)] = (
        None
    )
    fp_assists: Annotated[
        Int,
        fact(
            "number of microcode assists of arithmetic, mostly for denormal numbers",
            f"{_UNCOUNTED}, or the CPU has no known counter for it",
        ),
    ] = None
    reason: Annotated[
        Text,
        fact("why some counters were not read", "all counters were read", column="counters_reason"),
    ] = None


_OTHERS = f"the run is not of your own code, or {OLDER}"

#: The columns of timings.parquet, one row per iteration without a profiler.
ITERATIONS = (
    Column.integer("round", "number of the process that ran the iteration, from 0"),
    Column.integer("iteration", "number of the iteration in the run, counting warm-up"),
    Column.flag("warmup", "whether the iteration is warm-up, which statistics ignore"),
    Column.integer(
        "turn",
        "number of the turn, from 0 in each round, if the processes of several runs took turns; "
        "turns of different runs with the same number follow each other directly",
        "the iteration is warm-up, or the run took turns with no other run",
    ),
    Column.flag("after_profile", "whether the iteration ran after the profile of its round", OLDER),
    Column.integer(
        "wall_ns", "length by the host's clock, up to the end of the work on the device"
    ),
    Column.integer(
        "device_ns",
        "length by events on the device",
        "the run used a CPU, or is a run of your own code",
    ),
    Column.integer(
        "cpu_ns",
        "CPU time of all threads of the process. The value is about 1 µs too long, and lacks the "
        "time of other running threads since their last clock tick",
        OLDER,
    ),
    Column.integer(
        "voluntary_switches",
        "number of voluntary context switches: a thread of the process gave up its CPU to wait",
        OLDER,
    ),
    Column.integer(
        "preemptions",
        "number of involuntary context switches: a thread of the process lost its CPU",
        OLDER,
    ),
    Column.integer("minor_faults", "number of page faults without a disk read", OLDER),
    Column.integer("major_faults", "number of page faults with a disk read", OLDER),
    Column.integer("thread_cpu_ns", "CPU time of the thread that ran the step", _OTHERS),
    Column.integer(
        "waited_ns", "time in which the thread that ran the step was ready but had no CPU", _OTHERS
    ),
    Column.integer(
        "others_waited_ns",
        "sum of the times in which other threads of the process were ready but had no CPU",
        _OTHERS,
    ),
    Column.integer(
        "children_waited_ns",
        "sum of the times in which processes that load data (multiprocessing) were ready but had "
        "no CPU",
        _OTHERS,
    ),
    Column.real("loss", "loss of the step", "the step has no loss, or the run is of your own code"),
)

#: The columns of samples.parquet.
SAMPLES = (
    Column.integer("round", "number of the sampled process, from 0"),
    Column.text("thread", "name of the thread, as the sampler reports it"),
    Column.text(
        "part", "part of the ledger that the stack belongs to; or waiting, compiled or unknown"
    ),
    Column.text("rule", "name of the rule that decided the part"),
    Column.text("line", "innermost Python function and its line", "the stack has no Python frame"),
    Column.integer("count", "number of samples with this stack"),
    Column(
        "frames",
        pa.list_(pa.string()),
        "",
        "frames of the stack, from the step to the innermost frame",
    ),
)

"""The fields of run.json, and the columns of timings.parquet and samples.parquet.

A field states its meaning and when its value is null. The end of its name is the unit, such as ns
in ``event_ns``. docs/tables.md and the SQL table ``runs`` show these fields. If a field has several
values, SQL shows JSON text.
"""

from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa

from lstmprof.events import DeviceFacts
from lstmprof.events.annotate.calls import Coverage
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.events.schema import Column

MADE_ELSEWHERE = "the run does not record it"
UNREAD = "the run does not record it"
NO_GPU = "no GPU, or NVML does not report this value"
NOT_MEASURED = "it was not measured"
UNREPORTED = "the operating system does not report this value"
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


def fact(meaning: str, null_when: str = MADE_ELSEWHERE, column: str = "") -> msgspec.Meta:
    """Describe a field of run.json; ``column`` is the SQL name if the names differ."""
    return msgspec.Meta(description=meaning, extra={"null_when": null_when, "column": column})


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base class of the parts of run.json; it ignores unknown fields."""

    # msgspec ignores unknown fields, which a later version may write


#: Value of ``WorkloadInfo.loss`` → name of the loss for users.
_LOSS_WORDS = {"ce": "cross-entropy", "ctc": "CTC", "mse": "mean-squared-error"}


class WorkloadInfo(Record, frozen=True):
    """The network and the data of a run."""

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
    each_step: Annotated[
        Flag, fact("whether the loss uses every time step, not only the last one")
    ] = None
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
        """Return the number of tokens per batch, including padding."""
        if not self.vocabulary or self.batch is None or self.time_steps is None:
            return None
        return self.batch * self.time_steps

    @property
    def sizes(self) -> str:
        """Describe the network for users, such as ``1 layer of 320 units, batch 64``."""
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
    memory_bytes: Annotated[Int, fact("memory of the host", UNREAD)] = None
    system: Annotated[Text, fact("operating system", UNREAD)] = None
    cpu_governor: Annotated[Text, fact("CPU frequency governor", UNREAD)] = None
    gpu: Annotated[Text, fact("model of the GPU", NO_GPU)] = None
    gpu_memory_bytes: Annotated[Int, fact("memory of the GPU", NO_GPU)] = None


class Peaks(Record, frozen=True):
    """The peak rates of a device, measured with the framework's own library."""

    gemm_flops_per_s: Annotated[Real, fact("peak rate of a matmul", NOT_MEASURED)] = None
    gemm_size: Annotated[Int, fact("rows of the matmul's matrices", NOT_MEASURED)] = None
    copy_bytes_per_s: Annotated[Real, fact("peak rate of a copy", NOT_MEASURED)] = None
    copy_bytes: Annotated[Int, fact("bytes that the copy reads and writes", NOT_MEASURED)] = None
    precision: Annotated[Text, fact("precision of the matmul", NOT_MEASURED)] = None
    reason: Annotated[Text, fact("why the peaks were not measured", "the peaks were measured")] = (
        None
    )


class ScriptLine(Record, frozen=True):
    """A line or function of the user's code in which steps spend time."""

    file: Text = None  # None for the garbage collector
    line: Int = None
    function: Text = None
    call: Text = None  # function that the line calls; None if the line only waits
    share: Real = None
    ns: Int = None  # per sampled step
    waits_ns: Int = None  # part of ns that is blocked outside of the framework
    beside: Flag = None  # a framework calls it in another thread, as in tf.data


class ScriptTree(Record, frozen=True):
    """A recursive function of the user's code: each call makes several recursive calls."""

    file: Text = None
    line: Int = None
    function: Text = None
    ns: Int = None  # per sampled step, with the functions that it calls


class Recompiled(Record, frozen=True):
    """A compiled function that was compiled again, and the last change that caused it."""

    function: Text = None
    times: Int = None  # compilations after the first one
    changed: Text = None  # such as ``shape``, ``dtype``, ``value``; ``function``: created anew
    argument: Text = None  # for torch.compile, perhaps an expression
    before: Text = None  # text of the shape, dtype, value or (``guard``) failed condition
    after: Text = None  # often unknown for PyTorch
    limit: Int = None  # versions after which torch.compile gave up; None if it did not


class ThreadTime(Record, frozen=True):
    """The CPU time of one thread in the timed iterations of a round."""

    round: Int = None
    name: Text = None
    main: Flag = None  # calls the steps
    cpu_ns: Int = None
    waited_ns: Int = None  # ready, but without a CPU
    cpus: Text = None  # that it may use, such as 0-1,4


class RecordingInfo(Record, frozen=True):
    """The CPU time that the profiler needs to record one event."""

    event_ns: Real = None
    event_error_ns: Real = None  # half the sum of both interquartile ranges
    event_before_ns: Real = None  # before the event's recorded start
    event_inside_ns: Real = None  # between its recorded start and end
    range_ns: Real = None  # as event_ns, for an empty range of the capture
    range_error_ns: Real = None
    range_inside_ns: Real = None
    page_fault_ns: Real = None  # of one page fault


class Sampling(Record, frozen=True):
    """Observations of a sampler in a round, or the reason why it did not run."""

    sampler: Annotated[Text, fact("py-spy or perf", NEVER)] = None
    version: Annotated[Text, fact("version of the sampler", "it did not run")] = None
    rate_hz: Annotated[Int, fact("requested samples per second", "it did not run")] = None
    steps: Annotated[Int, fact("steps that were sampled", "it did not run")] = None
    samples: Annotated[Int, fact("samples of threads that did not wait", "it did not run")] = None
    reason: Annotated[Text, fact("why the sampler did not run", "the sampler ran")] = None


_NO_SUCH_SETTING = "the framework has no such setting"
_UNCOUNTED = "the CPU's counters cannot be read"


class Settings(Record, frozen=True):
    """The settings of the framework, process and machine while the steps were timed."""

    grad_mode: Annotated[Flag, fact("whether autograd recorded the step", _NO_SUCH_SETTING)] = None
    anomaly_mode: Annotated[
        Flag, fact("whether gradients were searched for NaN", _NO_SUCH_SETTING)
    ] = None
    deterministic: Annotated[
        Flag, fact("whether only deterministic algorithms were allowed", _NO_SUCH_SETTING)
    ] = None
    cudnn_deterministic: Annotated[
        Flag, fact("whether cuDNN must use deterministic algorithms", _NO_SUCH_SETTING)
    ] = None
    cudnn_benchmark: Annotated[
        Flag, fact("whether cuDNN chose its algorithms by benchmarks", _NO_SUCH_SETTING)
    ] = None
    onednn: Annotated[Flag, fact("whether oneDNN's kernels were allowed", _NO_SUCH_SETTING)] = None
    matmul_tf32: Annotated[Flag, fact("whether matmuls could use TF32", _NO_SUCH_SETTING)] = None
    cudnn_tf32: Annotated[Flag, fact("whether cuDNN could use TF32", _NO_SUCH_SETTING)] = None
    matmul_precision: Annotated[
        Text, fact("precision of float32 matmuls, as the framework names it", _NO_SUCH_SETTING)
    ] = None
    blas: Annotated[Text, fact("BLAS library that Theano called", _NO_SUCH_SETTING)] = None
    intra_op_threads: Annotated[Int, fact("number of threads within an op", _NO_SUCH_SETTING)] = (
        None
    )
    inter_op_threads: Annotated[
        Int, fact("number of threads that run ops at the same time", _NO_SUCH_SETTING)
    ] = None
    framework_denormals: Annotated[
        Text,
        fact(
            "what ops do with denormal numbers: flushed, kept or both",
            "the run did not use a CPU",
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
        Variables, fact("environment variables that the libraries of the step read")
    ] = None

    def __bool__(self) -> bool:
        return self != Settings()


class Counters(Record, frozen=True):
    """The CPU's hardware counters for the process in the timed iterations."""

    instructions: Annotated[
        Int, fact("number of instructions of all threads in the timed iterations", _UNCOUNTED)
    ] = None
    cycles: Annotated[
        Int, fact("number of CPU cycles of all threads in the timed iterations", _UNCOUNTED)
    ] = None
    cache_misses: Annotated[Int, fact("number of misses in the last-level cache", _UNCOUNTED)] = (
        None
    )
    fp_assists: Annotated[
        Int,
        fact(
            "number of microcode assists, mostly for denormal numbers",
            _UNCOUNTED,
        ),
    ] = None
    reason: Annotated[
        Text,
        fact("why some counters were not read", "all counters were read", column="counters_reason"),
    ] = None


_CAPTURED = "the run is a capture"
_BUILT_IN = "the implementation is built in"


class RunInfo(Record, frozen=True):
    """The content of run.json; a field is None if the run does not record it."""

    name: Annotated[str, fact("name of the run", NEVER, column="run")] = ""
    source: Annotated[
        Text,
        fact(
            "how the run was made: capture, own code (lstmprof run, lp.watch()) or ingest", FOREIGN
        ),
    ] = None
    schema_version: Annotated[Int, fact("schema version of the Parquet files", FOREIGN)] = None
    created: Annotated[Text, fact("time at which the run was written, ISO 8601", FOREIGN)] = None
    command: Annotated[Text, fact("command line that made the run", FOREIGN)] = None
    lstmprof_version: Annotated[Text, fact("version of lstmprof that wrote the run", FOREIGN)] = (
        None
    )
    implementation: Annotated[Text, fact("name of the implementation (lstmprof list)")] = None
    implementation_file: Annotated[
        Text, fact("your file, and its function that builds the network", _BUILT_IN)
    ] = None
    implementation_sha256: Annotated[Text, fact("SHA-256 of implementation_file", _BUILT_IN)] = None
    agrees_with_reference: Annotated[
        Flag,
        fact(
            "whether the results of your network agree with lstmprof's float64 reference; also "
            "false if the network's file has no load(), without which lstmprof checks nothing",
            _BUILT_IN,
        ),
    ] = None
    framework: Annotated[Text, fact("framework of the implementation")] = None
    label: Annotated[Text, fact("value of --label; an empty text if none was given")] = None
    workload: WorkloadInfo = WorkloadInfo()
    precision: Annotated[Text, fact("precision: fp32, tf32, amp-fp16 or amp-bf16")] = None
    tf32: Annotated[Flag, fact("whether TF32 was allowed")] = None
    mode: Annotated[Text, fact("mode: train or forward (no gradients)")] = None
    cuda_graph: Annotated[Flag, fact("whether the step was a CUDA graph")] = None
    xla: Annotated[Flag, fact("whether XLA compiled the step")] = None
    seed: Annotated[Int, fact("random seed of weights and data")] = None
    warmup: Annotated[
        Int,
        fact("number of warm-up iterations, which statistics ignore", column="warmup_iterations"),
    ] = None
    iterations: Annotated[
        Int,
        fact(
            "number of timed iterations after warm-up, in all rounds", column="counted_iterations"
        ),
    ] = None
    rounds: Annotated[Texts, fact("time at which each round started")] = None
    turn_with: Annotated[
        Texts,
        fact(
            "runs that took turns with this run while they were timed",
            "the run was not timed in turns with other runs",
        ),
    ] = None
    device: Annotated[Text, fact("device that ran the steps: cpu or cuda:N", column="ran_on")] = (
        None
    )
    device_name: Annotated[Text, fact("model of the device", UNREAD)] = None
    kernels_used: Annotated[
        Text, fact("library whose kernels ran the recurrent layers", UNREAD)
    ] = None
    peaks: Annotated[Peaks | None, fact("measured peak rates of the device", NOT_MEASURED)] = None
    backend: Annotated[
        Text,
        fact(
            "compiler, algorithm or device that the framework uses, such as PyTensor's compiler",
            "the framework has no such setting",
        ),
    ] = None
    threads: Annotated[Int, fact("number of CPU threads of the framework")] = None
    affinity: Annotated[Ints, fact("CPUs that the process was pinned to", UNREAD)] = None
    denormals_flushed: Annotated[
        Flag, fact("whether denormal numbers were flushed to zero", UNREAD)
    ] = None
    garbage_collector: Annotated[
        Text, fact("setting of Python's garbage collector, such as `frozen and off`")
    ] = None
    settings: Settings = Settings()
    versions: Annotated[Versions, fact("versions of Python and packages")] = None
    packages: Annotated[Versions, fact("every installed package with its version", UNREAD)] = None
    python_executable: Annotated[
        Text, fact("path of the Python interpreter that ran the steps")
    ] = None
    hardware: Hardware = Hardware()
    load_average_before: Annotated[
        Reals, fact("load average over 1, 5 and 15 minutes before the run", UNREAD)
    ] = None
    started_at: Annotated[Text, fact("start of the process, ISO 8601")] = None
    ended_at: Annotated[Text, fact("end of the process, ISO 8601")] = None
    compile_ns: Annotated[
        Int, fact("length of the first step of the process, including compilation")
    ] = None
    timing_wall_ns: Annotated[Int, fact("wall time of all timed iterations")] = None
    timing_cpu_ns: Annotated[Int, fact("CPU time of all timed iterations", UNREAD)] = None
    timing_page_faults: Annotated[
        Int, fact("number of page faults without a disk read in the timed iterations", UNREAD)
    ] = None
    timing_major_faults: Annotated[
        Int, fact("number of page faults with a disk read in the timed iterations", UNREAD)
    ] = None
    timing_preemptions: Annotated[
        Int, fact("involuntary context switches in the timed iterations", UNREAD)
    ] = None
    timing_voluntary_switches: Annotated[
        Int, fact("voluntary context switches in the timed iterations", UNREAD)
    ] = None
    timing_threads: Annotated[
        tuple[ThreadTime, ...] | None,
        fact(
            "for each round: the busiest threads, with their CPU time",
            UNREAD,
        ),
    ] = None
    profiled_rounds: Annotated[
        Ints,
        fact("number of the round of each profiled step", UNREAD),
    ] = None
    profiled_wall_ns: Annotated[Ints, fact("wall time of each profiled step")] = None
    profiled_cpu_ns: Annotated[Ints, fact("CPU time of each profiled step", UNREAD)] = None
    profiled_page_faults: Annotated[
        Ints, fact("page faults without a disk read in each profiled step", UNREAD)
    ] = None
    profiled_major_faults: Annotated[
        Ints, fact("page faults with a disk read in each profiled step", UNREAD)
    ] = None
    profiled_preemptions: Annotated[
        Ints, fact("involuntary context switches in each profiled step", UNREAD)
    ] = None
    profiled_voluntary_switches: Annotated[
        Ints, fact("voluntary context switches in each profiled step", UNREAD)
    ] = None
    counters: Counters = Counters()
    cpu_clock_mhz: Annotated[
        Real, fact("mean clock rate of the used CPUs at the end of the run", UNREAD)
    ] = None
    padding: Annotated[
        Text,
        fact(
            "side on which a Keras model's sequences were padded: front or behind",
            "there are no masked sequences",
        ),
    ] = None
    sampling: Annotated[
        tuple[Sampling, ...] | None,
        fact(
            "for each round: sampler, sampling rate, and number of sampled steps and samples",
            "--sampler was not given",
        ),
    ] = None
    script_lines: Annotated[
        tuple[ScriptLine, ...] | None,
        fact(
            "lines of your script that take 5 % or more of a step",
            "the steps were not sampled",
        ),
    ] = None
    script_tree: Annotated[
        ScriptTree | None,
        fact(
            "recursive function of your script that visits a tree, and the function's time per "
            "step",
            "there is no such function",
        ),
    ] = None
    recompiled: Annotated[
        tuple[Recompiled, ...] | None,
        fact(
            "functions that were compiled again, and what had changed",
            "lstmprof saw none",
        ),
    ] = None
    timing_cpu_energy_j: Annotated[
        Real,
        fact(
            "energy of the CPUs in the timed iterations of the first round (RAPL)",
            f"the run was timed in turns with other runs, or {UNREAD}",
        ),
    ] = None
    timing_gpu_energy_j: Annotated[
        Real,
        fact(
            "energy of the GPU in the timed iterations of the first round (NVML)",
            f"{NO_GPU}, or the iterations took less than 1 s",
        ),
    ] = None
    gpu_sm_clock_mhz: Annotated[
        Int,
        fact(
            "clock of the GPU's multiprocessors after the timed iterations",
            NO_GPU,
        ),
    ] = None
    gpu_memory_clock_mhz: Annotated[
        Int,
        fact("clock of the GPU's memory after the timed iterations", NO_GPU),
    ] = None
    gpu_temperature_c: Annotated[
        Int, fact("temperature of the GPU after the timed iterations", NO_GPU)
    ] = None
    gpu_throttle_reasons: Annotated[Texts, fact("reasons why the GPU was throttled", NO_GPU)] = None
    peak_memory_bytes: Annotated[
        Int, fact("largest memory of the process that ran the steps", UNREAD)
    ] = None
    loss_first: Annotated[Real, fact("loss of the first step")] = None
    loss_last: Annotated[Real, fact("loss of the last timed step")] = None
    loss_fell: Annotated[
        Flag, fact("whether the last loss is lower than the first", "the run did not train")
    ] = None
    profiler: Annotated[Text, fact("profiler that recorded the profile")] = None
    recording: Annotated[
        tuple[RecordingInfo, ...] | None,
        fact(
            "for each round (process of the run): CPU time in ns to record one event",
            NOT_MEASURED,
        ),
    ] = None
    shapes_cost: Annotated[
        Real,
        fact(
            "increase of the step's length by recording shapes (0.05: 5 %)",
            "the run is not of your own PyTorch code",
        ),
    ] = None
    nvtx: Annotated[Flag, fact("whether phases were also recorded as NVTX ranges", UNREAD)] = None
    source_paths: Annotated[
        Texts, fact("files of the profile from which lstmprof made the run", _CAPTURED)
    ] = None
    source_stamps: Annotated[
        Texts, fact("path, size and time of each file in source_paths", _CAPTURED)
    ] = None
    step_range: Annotated[Text, fact("value of --step-range", "--step-range was not given")] = None
    profile_format: Annotated[
        Text, fact("format of the profile, such as kineto or xplane", FOREIGN)
    ] = None
    profile_metadata: Annotated[dict[str, Any] | None, fact("metadata of the profile", FOREIGN)] = (
        None
    )
    base_ns: Annotated[
        Int, fact("time of start_ns 0, in ns since 1970", "the profile does not record it")
    ] = None
    device_names: Annotated[dict[str, str], fact("name of each device by its number", NEVER)] = (
        msgspec.field(default_factory=dict)
    )
    device_facts: Annotated[
        dict[str, DeviceFacts],
        fact("compute capability, number of multiprocessors and warp size of each device", NEVER),
    ] = msgspec.field(default_factory=dict)
    accelerators: Annotated[
        tuple[str, ...], fact("accelerators that the profile names", NEVER)
    ] = ()
    gpu_complaint: Annotated[
        Text,
        fact(
            "message in which the profiler reports that it could not record a GPU",
            "there is no such message",
        ),
    ] = None
    notes: Annotated[
        tuple[str, ...], fact("remarks that lstmprof made when it read the profile", NEVER)
    ] = ()
    recorded: Annotated[
        tuple[Recorded, ...] | None,
        fact(
            "number of events of each sort, for each rank",
            FOREIGN,
        ),
    ] = None
    links: Annotated[
        Coverage | None,
        fact(
            "number of events that lstmprof linked (kernel with launch, launch with op …)", FOREIGN
        ),
    ] = None

    @property
    def called(self) -> str:
        """Return the implementation and the label, such as ``torch-nn-lstm fast``."""
        return f"{self.implementation or ''} {self.label or ''}".strip()

    def thread_names(self, rank: int | None) -> dict[str, str]:
        """Return {thread id: name} of the host threads of a rank."""
        metadata = self.profile_metadata or {}
        ranks = metadata.get("ranks")
        rank_metadata = ranks.get(str(rank), metadata) if isinstance(ranks, dict) else metadata
        names_of = rank_metadata.get("threads") if isinstance(rank_metadata, dict) else None
        listed = names_of.items() if isinstance(names_of, dict) else ()
        return {tid: name for tid, name in listed if isinstance(name, str)}


_OTHERS = (
    "the implementation is built in, or the operating system does not report how long threads wait "
    "for a CPU"
)

#: The columns of timings.parquet, one row per iteration without a profiler.
ITERATIONS = (
    Column.integer("round", "number of the process that ran the iteration, from 0"),
    Column.integer("iteration", "number of the iteration in the run, counting warm-up"),
    Column.flag("warmup", "whether the iteration is warm-up, which statistics ignore"),
    Column.integer(
        "turn",
        "number of the turn in the round, from 0; lstmprof times several runs alternately, and one "
        "run per turn",
        "lstmprof timed no other run alternately with this run, or the iteration is warm-up "
        "outside of a turn",
    ),
    Column.flag(
        "after_profile",
        "whether the iteration ran after the profile of its round",
        "an older lstmprof wrote the run",
    ),
    Column.integer(
        "wall_ns",
        "length of the iteration by the host's clock, up to the end of the work on the device",
    ),
    Column.integer(
        "device_ns",
        "length of the iteration by events on the device",
        "the run is not a capture of PyTorch or cuDNN on a GPU",
    ),
    Column.integer(
        "cpu_ns",
        "CPU time of all threads of the process",
        UNREPORTED,
    ),
    Column.integer(
        "voluntary_switches",
        "number of voluntary context switches: a thread gave up its CPU to wait",
        UNREPORTED,
    ),
    Column.integer(
        "preemptions",
        "number of involuntary context switches: a thread lost its CPU",
        UNREPORTED,
    ),
    Column.integer("minor_faults", "number of page faults without a disk read", UNREPORTED),
    Column.integer("major_faults", "number of page faults with a disk read", UNREPORTED),
    Column.integer("thread_cpu_ns", "CPU time of the thread that ran the step", _OTHERS),
    Column.integer("waited_ns", "time that the step's thread waited for a CPU", _OTHERS),
    Column.integer(
        "others_waited_ns",
        "total time that all threads of the process except the step's thread waited for a CPU",
        _OTHERS,
    ),
    Column.integer(
        "children_waited_ns",
        "total time that data-loading processes waited for a CPU",
        _OTHERS,
    ),
    Column.real("loss", "loss of the step", "the step has no loss, or the run is not a capture"),
)

#: Columns of samples.parquet, such as the sampled thread and part of the step.
SAMPLES = (
    Column.integer("round", "number of the sampled process, from 0"),
    Column.text("thread", "name of the thread, as the sampler reports it"),
    Column.text(
        "part",
        "part of the step to which the call stack belongs, such as dispatch; the table ledger "
        "uses the same parts",
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

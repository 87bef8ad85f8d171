"""The parts of run.json that are records of their own."""

from typing import Annotated

from lstmprof.runs.fields import (
    NEVER,
    NO_GPU,
    NOT_MEASURED,
    UNREAD,
    Flag,
    Int,
    Real,
    Record,
    Text,
    fact,
)


class WorkloadInfo(Record, frozen=True):
    """The network and the data of a run; the fields are those of ``workloads.Workload``."""

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
    loss: Annotated[Text, fact("loss: ce, ctc, mse or mean", column="loss_kind")] = None
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
        """Return the tokens per batch, or None if the inputs are numbers or a size is unknown."""
        if not self.vocabulary or self.batch is None or self.time_steps is None:
            return None
        return self.batch * self.time_steps

    @property
    def sizes(self) -> str:
        """Return the sizes of the inputs in words."""
        return f"batch {self.batch}, {self.time_steps} time steps, {self.features} features"


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

    gemm_flops_per_s: Annotated[Real, fact("of a product", NOT_MEASURED, "1/s")] = None
    gemm_size: Annotated[Int, fact("rows of its matrices", NOT_MEASURED)] = None
    copy_bytes_per_s: Annotated[Real, fact("of a copy", NOT_MEASURED, "bytes/s")] = None
    copy_bytes: Annotated[Int, fact("bytes read and written", NOT_MEASURED, "bytes")] = None
    precision: Annotated[Text, fact("of the product", NOT_MEASURED)] = None
    reason: Annotated[Text, fact("why none was measured", "they were")] = None


class ThreadTime(Record, frozen=True):
    """The CPU time of one thread in the timed iterations of a round (``capture.worker.threads``).

    ``waited_ns`` is the time in which the thread was ready but had no CPU. ``main`` is True for the
    thread that calls the steps. ``cpus`` are the CPUs that it may use, such as ``0-1,4``. A field
    is None if unknown.
    """

    round: Int = None
    name: Text = None
    main: Flag = None
    cpu_ns: Int = None
    waited_ns: Int = None
    cpus: Text = None


class RecordingInfo(Record, frozen=True):
    """The CPU time that the profiler needs to record one event, measured with trivial calls.

    ``event_ns`` is the time per event with the profiler on, minus the time with it off.
    ``event_before_ns`` of it are spent before the start is recorded, ``event_inside_ns`` between
    start and end, and the rest after the end. ``range_ns`` is the same for a range of the capture
    itself. ``*_error_ns`` is half of the interquartile range of the repeats. A field is None if
    unknown.
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
    """A pass of a round with a sampler, or the reason why there was none."""

    sampler: Annotated[Text, fact("py-spy or perf", NEVER)] = None
    version: Annotated[Text, fact("of it", "it did not run")] = None
    rate_hz: Annotated[Int, fact("samples per second, as asked", "it did not run")] = None
    steps: Annotated[Int, fact("steps that it saw", "it did not run")] = None
    samples: Annotated[Int, fact("of threads that did not wait", "it did not run")] = None
    reason: Annotated[Text, fact("why it did not run", "it did")] = None

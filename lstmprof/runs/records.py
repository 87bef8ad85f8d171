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


class ScriptLine(Record, frozen=True):
    """A place in the user's script, outside a framework, and its share of the sampled steps.

    ``call``: the function that is called there; None for a function that calls no framework.
    The garbage collector has no file.
    """

    file: Text = None
    line: Int = None
    function: Text = None
    call: Text = None
    share: Real = None

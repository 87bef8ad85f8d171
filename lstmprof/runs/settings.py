"""What changes a run's speed and is no part of its code, as the worker found it.

Every setting is read in the step's thread once the steps are timed, not copied from what was asked
for: a library that is imported may set it back. ``Counters`` are what the CPU counted meanwhile.
"""

from typing import Annotated

from lstmprof.runs.fields import UNREAD, Flag, Int, Real, Record, Text, Variables, fact

_NOT_OF_IT = "the framework has no such setting, or the run is an ingested profile"
_UNCOUNTED = "the CPU's counters cannot be read (counters_reason says why)"


class Settings(Record, frozen=True):
    """The settings of framework, process and machine while the steps were timed."""

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
    """The CPU's counters for the process in the timed steps."""

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

"""What changes a run's speed and is no part of its code, as the worker found it.

Every setting is read in the step's thread once the steps are timed, not copied from what was asked
for: a library that is imported may set it back. ``Counters`` are what the CPU counted meanwhile.
"""

from typing import Annotated

from lstmprof.runs.fields import UNREAD, Flag, Int, Real, Record, Text, Variables, fact

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
    cudnn_deterministic: Annotated[Flag, fact("the same of cuDNN alone", _NOT_OF_IT)] = None
    cudnn_benchmark: Annotated[
        Flag, fact("whether cuDNN's algorithms were chosen by trying", _NOT_OF_IT)
    ] = None
    onednn: Annotated[Flag, fact("whether oneDNN's kernels were allowed", _NOT_OF_IT)] = None
    matmul_tf32: Annotated[Flag, fact("whether products could round to TF32", _NOT_OF_IT)] = None
    cudnn_tf32: Annotated[Flag, fact("whether cuDNN could round to TF32", _NOT_OF_IT)] = None
    matmul_precision: Annotated[
        Text, fact("of float32 products, by the framework's name", _NOT_OF_IT)
    ] = None
    blas: Annotated[Text, fact("whose products Theano's operators called", _NOT_OF_IT)] = None
    intra_op_threads: Annotated[Int, fact("threads within an operator", _NOT_OF_IT)] = None
    inter_op_threads: Annotated[Int, fact("threads between operators", _NOT_OF_IT)] = None
    framework_denormals: Annotated[
        Text,
        fact(
            "what an operator of the framework did with them: flushed, kept, or both in places",
            "it was not tried on a CPU, or the run is an ingested profile",
        ),
    ] = None
    flush_to_zero: Annotated[
        Flag, fact("whether a product that is a denormal became 0 in the step's thread", UNREAD)
    ] = None
    denormals_are_zero: Annotated[
        Flag, fact("whether a denormal factor counted as 0 in the step's thread", UNREAD)
    ] = None
    gc_enabled: Annotated[Flag, fact("whether Python's garbage collector was on")] = None
    python_traced: Annotated[Flag, fact("whether a tracer or profiler of Python was on")] = None
    allocator: Annotated[Text, fact("whose malloc was loaded", UNREAD)] = None
    nice: Annotated[Int, fact("the process's nice value", UNREAD)] = None
    transparent_huge_pages: Annotated[Text, fact("always, madvise or never", UNREAD)] = None
    cpu_quota: Annotated[
        Real,
        fact("CPUs whose time the cgroup may use", "it has no limit, or it cannot be read"),
    ] = None
    environment: Annotated[Variables, fact("variables that libraries of the step read, JSON")] = (
        None
    )

    def __bool__(self) -> bool:
        return self != Settings()


class Counters(Record, frozen=True):
    """What the CPU counted of the process's own instructions in the timed steps."""

    instructions: Annotated[Int, fact("all threads', in them", _UNCOUNTED)] = None
    cycles: Annotated[Int, fact("in which they ran, by perf_event_open", _UNCOUNTED)] = None
    cache_misses: Annotated[Int, fact("of the last level", _UNCOUNTED)] = None
    fp_assists: Annotated[
        Int,
        fact(
            "microcode helped arithmetic, with denormals mostly",
            f"{_UNCOUNTED}, or not known for this CPU",
        ),
    ] = None
    reason: Annotated[
        Text, fact("why some were not counted", "all were", column="counters_reason")
    ] = None

"""The columns of timings.parquet and samples.parquet."""

import pyarrow as pa

from lstmprof.events.schema import Column
from lstmprof.runs.fields import OLDER

_OTHERS = f"the run is no run of own code, or {OLDER}"

#: The columns of timings.parquet, one row per iteration without a profiler.
ITERATIONS = (
    Column("round", pa.int64(), "", "which worker process ran it, from 0"),
    Column("iteration", pa.int64(), "", "number in the run, warm-up included"),
    Column("warmup", pa.bool_(), "", "whether it is warm-up, which no statistic counts"),
    Column(
        "turn",
        pa.int64(),
        "",
        "number of its turn in the round, from 0, where workers took turns on one CPU: the turn of "
        "that number of another came right before it or after it",
        "it is warm-up of the process, or the run was captured alone",
    ),
    Column("after_profile", pa.bool_(), "", "whether its round was profiled before it", OLDER),
    Column("wall_ns", pa.int64(), "ns", "by the host's clock, until the device had ended"),
    Column(
        "device_ns", pa.int64(), "ns", "by the device's events", "it ran on a CPU, or as own code"
    ),
    Column(
        "cpu_ns",
        pa.int64(),
        "ns",
        "CPU time of all threads of the process, in microseconds and some 1 µs too long; of a "
        "thread that runs on another CPU until its last clock tick",
        OLDER,
    ),
    Column(
        "voluntary_switches",
        pa.int64(),
        "",
        "times that a thread of the process gave up its CPU, to wait",
        OLDER,
    ),
    Column(
        "preemptions",
        pa.int64(),
        "",
        "times that a CPU was taken from a thread of the process",
        OLDER,
    ),
    Column(
        "minor_faults",
        pa.int64(),
        "",
        "pages that the kernel provided without reading a disk",
        OLDER,
    ),
    Column("major_faults", pa.int64(), "", "pages that it read from a disk", OLDER),
    Column("thread_cpu_ns", pa.int64(), "ns", "CPU time of the thread that ran the step", _OTHERS),
    Column(
        "waited_ns",
        pa.int64(),
        "ns",
        "time in which that thread was ready and had no CPU",
        _OTHERS,
    ),
    Column(
        "others_waited_ns",
        pa.int64(),
        "ns",
        "the same of the process's other threads, sum",
        _OTHERS,
    ),
    Column(
        "children_waited_ns",
        pa.int64(),
        "ns",
        "the same of the processes that it had started to load data (multiprocessing), sum",
        _OTHERS,
    ),
    Column("loss", pa.float64(), "", "of this step", "the step has none, or is of own code"),
)

#: The columns of samples.parquet.
SAMPLES = (
    Column("round", pa.int64(), "", "which worker process was sampled, from 0"),
    Column("thread", pa.string(), "", "its name, as the sampler tells it"),
    Column("part", pa.string(), "", "of the ledger; waiting, compiled or unknown"),
    Column("rule", pa.string(), "", "the rule that says so"),
    Column("line", pa.string(), "", "innermost Python function and line", "no frame is Python's"),
    Column("count", pa.int64(), "", "samples in which the thread had this stack"),
    Column("frames", pa.list_(pa.string()), "", "the stack from the step on, the innermost last"),
)

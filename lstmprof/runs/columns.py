"""The columns of timings.parquet and samples.parquet."""

import pyarrow as pa

from lstmprof.events.schema import Column
from lstmprof.runs.fields import OLDER

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

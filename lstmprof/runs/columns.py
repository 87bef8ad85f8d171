"""The columns of timings.parquet and samples.parquet."""

import pyarrow as pa

from lstmprof.events.schema import Column
from lstmprof.runs.fields import OLDER

_OTHERS = f"the run is not of your own code, or {OLDER}"

#: The columns of timings.parquet, one row per iteration without a profiler.
ITERATIONS = (
    Column("round", pa.int64(), "", "number of the process that ran the iteration, from 0"),
    Column("iteration", pa.int64(), "", "number of the iteration in the run, counting warm-up"),
    Column("warmup", pa.bool_(), "", "whether the iteration is warm-up, which statistics ignore"),
    Column(
        "turn",
        pa.int64(),
        "",
        "number of the turn in the round, from 0, if the processes of several runs took turns; "
        "turns with the same number follow each other directly",
        "the iteration is warm-up, or the run was captured alone",
    ),
    Column(
        "after_profile",
        pa.bool_(),
        "",
        "whether the iteration ran after the profile of its round",
        OLDER,
    ),
    Column(
        "wall_ns", pa.int64(), "ns", "length by the host's clock, until the device has finished"
    ),
    Column(
        "device_ns",
        pa.int64(),
        "ns",
        "length by events on the device",
        "the run used a CPU, or is a run of your own code",
    ),
    Column(
        "cpu_ns",
        pa.int64(),
        "ns",
        "CPU time of all threads of the process, about 1 µs too long; a thread that still runs on "
        "another CPU counts up to its last clock tick",
        OLDER,
    ),
    Column(
        "voluntary_switches",
        pa.int64(),
        "",
        "number of voluntary context switches: a thread of the process gave up its CPU to wait",
        OLDER,
    ),
    Column(
        "preemptions",
        pa.int64(),
        "",
        "number of involuntary context switches: a thread of the process lost its CPU",
        OLDER,
    ),
    Column(
        "minor_faults",
        pa.int64(),
        "",
        "number of page faults without a disk read",
        OLDER,
    ),
    Column("major_faults", pa.int64(), "", "number of page faults with a disk read", OLDER),
    Column("thread_cpu_ns", pa.int64(), "ns", "CPU time of the thread that ran the step", _OTHERS),
    Column(
        "waited_ns",
        pa.int64(),
        "ns",
        "time in which the thread that ran the step was ready but had no CPU",
        _OTHERS,
    ),
    Column(
        "others_waited_ns",
        pa.int64(),
        "ns",
        "sum of the times in which other threads of the process were ready but had no CPU",
        _OTHERS,
    ),
    Column(
        "children_waited_ns",
        pa.int64(),
        "ns",
        "the same sum for the processes that load data (multiprocessing)",
        _OTHERS,
    ),
    Column(
        "loss",
        pa.float64(),
        "",
        "loss of the step",
        "the step has no loss, or the run is of your own code",
    ),
)

#: The columns of samples.parquet.
SAMPLES = (
    Column("round", pa.int64(), "", "number of the sampled process, from 0"),
    Column("thread", pa.string(), "", "name of the thread, as the sampler reports it"),
    Column(
        "part",
        pa.string(),
        "",
        "part of the ledger that the stack belongs to; or waiting, compiled or unknown",
    ),
    Column("rule", pa.string(), "", "name of the rule that decided the part"),
    Column(
        "line",
        pa.string(),
        "",
        "innermost Python function and its line",
        "the stack has no Python frame",
    ),
    Column("count", pa.int64(), "", "number of samples with this stack"),
    Column(
        "frames",
        pa.list_(pa.string()),
        "",
        "frames of the stack, from the step to the innermost frame",
    ),
)

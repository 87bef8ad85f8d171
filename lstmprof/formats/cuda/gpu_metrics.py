"""What Nsight Systems samples of GPUs (``--gpu-metrics-devices``): counters under its names.

One row a value, of a metric that is numbered within a ``typeId``, whose lowest byte is the GPU's
number in ``TARGET_INFO_GPU``. Values are as Nsight writes them, mostly whole percent: what the name
says in brackets is no unit of theirs for sure. Source:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#gpu-metrics, and its SQLite schema.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lstmprof.events.counters import READ, Collected, sorted_by_time
from lstmprof.formats import rows
from lstmprof.formats.cuda.tables import UNKNOWN, Ints, Tables

TABLE, _NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_COLUMNS = ("timestamp", "typeId", "metricId", "value")
_GPU_BITS = 0xFF
#: Number of a metric: type and metric.
_Metric = tuple[int, int]


def add_gpu_metrics(database: Tables, devices: Mapping[int, int], collected: Collected) -> int:
    """Add the values to ``collected``, times as they are written; how many were left out.

    ``devices`` are numbers by those of GPUs; of another GPU, or without a name or number, a value
    is left out.
    """
    if TABLE not in database.columns:
        return 0
    names, left_out = _names(database), 0
    for read in database.int_chunks(TABLE, *_COLUMNS):
        pairs, codes = np.unique(
            np.stack([read["typeId"], read["metricId"]]), axis=1, return_inverse=True
        )
        metrics: list[_Metric] = [(type_id, metric) for type_id, metric in pairs.T.tolist()]
        device = np.array([devices.get(of & _GPU_BITS, UNKNOWN) for of, _ in metrics], np.int64)
        named = np.array([metric in names for metric in metrics], np.bool_)
        codes, time_ns, value = codes.reshape(-1), read["timestamp"], read["value"]
        told = (named & (device != UNKNOWN))[codes] & (value != UNKNOWN)
        told &= (np.abs(time_ns) <= rows.MAX_NS) & (time_ns != UNKNOWN)
        left_out += int(len(told) - np.count_nonzero(told))
        if told.any():
            texts = pa.array([names.get(metric) for metric in metrics], pa.string())
            collected.add(
                _table(time_ns[told], device[codes[told]], texts, codes[told], value[told])
            )
    return left_out


def _names(database: Tables) -> dict[_Metric, str]:
    if not {"typeId", "metricId", "metricName"} <= database.columns.get(_NAMES, frozenset()):
        return {}
    read = database.ints(_NAMES, "typeId", "metricId")
    numbers = zip(read["typeId"].tolist(), read["metricId"].tolist(), strict=True)
    names = zip(numbers, database.texts(_NAMES, "metricName"), strict=True)
    return {number: rows.clean(name) for number, name in names if name}


def _table(time_ns: Ints, device: Ints, names: pa.Array, codes: Ints, value: Ints) -> pa.Table:
    count = len(time_ns)
    columns = {
        "time_ns": time_ns,
        "pid": pa.nulls(count, pa.int64()),
        "device": device,
        "name": names.take(pa.array(codes)).dictionary_encode(),
        "unit": pa.nulls(count, READ.field("unit").type),
        "value": value.astype(np.float64),
        "allocator": pa.nulls(count, READ.field("allocator").type),
    }
    return sorted_by_time(pa.table(columns, schema=READ))

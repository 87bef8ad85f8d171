"""The copy table: what was moved between and within host and devices, and what was set.

Reads categorised events. Direction and host memory are what the activity's name says, as CUPTI,
ROCTracer, Nsight Systems and XLA write it.
"""

from __future__ import annotations

import pyarrow as pa

from lstmprof.events.annotate.calls import DIRECTIONS, MEMORIES
from lstmprof.events.schema import DEVICE, PER_STEP, RANK, Column

COLUMNS = (
    RANK,
    DEVICE,
    Column("kind", pa.string(), "", "memcpy or memset"),
    Column(
        "direction",
        pa.string(),
        "",
        "one of " + ", ".join(DIRECTIONS),
        "a memset, or the name does not say",
    ),
    Column(
        "host_memory",
        pa.string(),
        "",
        "of the host's side: " + ", ".join(MEMORIES),
        "the name does not say",
    ),
    Column("count", pa.int64(), "", "copies or memsets"),
    PER_STEP,
    Column("bytes", pa.int64(), "bytes", "moved or set", "the size of one of them is unknown"),
    Column("total_ns", pa.int64(), "ns", "sum of their durations"),
    Column(
        "bytes_per_s",
        pa.float64(),
        "bytes/s",
        "bytes divided by total_ns",
        "bytes is unknown, or total_ns is 0",
    ),
)

SELECT = """
SELECT e.rank, device, kind, CASE WHEN kind = 'memcpy' THEN direction END AS direction, host_memory,
       count(*) AS count, per(count(step), any_value(steps)) AS per_step,
       if(count(bytes) = count(*), sum(bytes), NULL)::BIGINT AS moved, moved AS bytes,
       sum(dur_ns)::BIGINT AS total_ns, per(moved * 1e9, total_ns) AS bytes_per_s
FROM events e JOIN names USING (name) JOIN ranks r ON r.rank IS NOT DISTINCT FROM e.rank
WHERE kind IN ('memcpy', 'memset')
GROUP BY ALL
"""

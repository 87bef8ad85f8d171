"""The op table: what each framework op took on the host, and what it made a device do.

Reads linked events. On the host ``total`` is the time in which an op of this name was open: one
inside another of the same name is not added again. ``self`` is without the events directly inside
it, whatever they are. On a device ``self`` is the duration of the activities that the op itself
launched (their ``op_id``), ``total`` of those that it or any op beneath it launched, each once.
So the sum of all ops' device self time and of the activities without an op is that of all
activities; overlaps between streams are not taken out.
"""

from __future__ import annotations

import pyarrow as pa

from lstmprof.events.schema import PER_STEP, RANK, Column

_NO_ACTIVITIES = "the rank has no device activities"

COLUMNS = (
    RANK,
    Column("name", pa.string(), "", "of the op, as the profiler wrote it"),
    Column("count", pa.int64(), "", "times it was called"),
    PER_STEP,
    Column("host_total_ns", pa.int64(), "ns", "host time in it, what is inside included"),
    Column("host_self_ns", pa.int64(), "ns", "host time in it and in no event inside it"),
    Column(
        "device_total_ns",
        pa.int64(),
        "ns",
        "duration of the activities that it or an op beneath it launched",
        _NO_ACTIVITIES,
    ),
    Column(
        "device_self_ns",
        pa.int64(),
        "ns",
        "duration of the activities that it launched itself",
        _NO_ACTIVITIES,
    ),
    Column(
        "kernels_total",
        pa.int64(),
        "",
        "kernels that it or an op beneath it launched",
        _NO_ACTIVITIES,
    ),
    Column("kernels_self", pa.int64(), "", "kernels that it launched itself", _NO_ACTIVITIES),
)

SELECT = """
WITH RECURSIVE hosts AS MATERIALIZED (
    SELECT event_id, parent_id, rank, name, kind = 'op' AS is_op
    FROM events WHERE NOT activity(kind)
), around AS (  -- each op with itself and every event around it
    SELECT event_id AS op_id, event_id AS around_id, parent_id FROM hosts WHERE is_op
    UNION ALL
    SELECT op_id, event_id, h.parent_id FROM around a JOIN hosts h ON h.event_id = a.parent_id
), within AS (  -- each op with the names of the ops that are open then, and how often each is
    SELECT op_id, rank, name, count(*) AS times
    FROM around JOIN hosts ON event_id = around_id WHERE is_op GROUP BY ALL
), caused AS (
    SELECT op_id, sum(dur_ns) AS ns, count(*) FILTER (kind = 'kernel') AS kernels
    FROM events WHERE activity(kind) AND op_id IS NOT NULL GROUP BY ALL
), beneath AS (
    SELECT rank, name, sum(ns) AS ns, sum(kernels) AS kernels
    FROM within JOIN caused USING (op_id) GROUP BY ALL
), inside AS (  -- time in the events directly inside an event
    SELECT parent_id AS event_id, sum(dur_ns) AS ns
    FROM events WHERE parent_id IS NOT NULL GROUP BY ALL
), ops AS (
    SELECT o.rank, o.name, count(*) AS count, count(step) AS in_steps,
           coalesce(sum(dur_ns) FILTER (times = 1), 0) AS host_total_ns,
           sum(greatest(dur_ns - coalesce(i.ns, 0), 0)) AS host_self_ns,
           coalesce(sum(c.ns), 0) AS device_ns, coalesce(sum(c.kernels), 0) AS kernels
    FROM events o JOIN within w ON w.op_id = o.event_id AND w.name = o.name
         LEFT JOIN inside i USING (event_id) LEFT JOIN caused c ON c.op_id = o.event_id
    GROUP BY ALL
)
SELECT o.rank, o.name, count, per(in_steps, steps) AS per_step, host_total_ns, host_self_ns,
       if(on_device, coalesce(b.ns, 0), NULL) AS device_total_ns,
       if(on_device, device_ns, NULL) AS device_self_ns,
       if(on_device, coalesce(b.kernels, 0), NULL) AS kernels_total,
       if(on_device, o.kernels, NULL) AS kernels_self
FROM ops o JOIN ranks r ON r.rank IS NOT DISTINCT FROM o.rank
     LEFT JOIN beneath b ON b.name = o.name AND b.rank IS NOT DISTINCT FROM o.rank
"""

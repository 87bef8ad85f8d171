"""The tables of launches and of launch gaps: the cost of enqueuing work, and idle time before it.

Latency is the time from a launch call's return to the start of its first activity; queue depth is
the number of the device's activities, enqueued but not ended, when a call returns. The gap before
an activity is the time up to its start in which its device ran nothing. ``GAP_SELECT`` numbers
names before it sorts, because each sorted row would contain a copy of a long kernel name.
"""

from __future__ import annotations

from lstmprof.events.schema import ACTIVITY_KINDS, DEVICE, PER_STEP, RANK, Column

_UNLINKED = "no activity in the profile belongs to these calls"

COLUMNS = (
    RANK,
    Column.text("name", "name of the runtime or driver call"),
    Column.text(
        "kind",
        f"kind of work that the calls enqueued: {', '.join(ACTIVITY_KINDS)}, or mixed",
        _UNLINKED,
    ),
    Column.integer("count", "number of calls"),
    Column.integer("linked", "number of calls whose activity is in the profile"),
    Column.integer(
        "activities", "number of activities that the calls enqueued; a graph launch enqueues many"
    ),
    PER_STEP,
    Column.real(
        "per_time_step",
        "per_step divided by the workload's time steps",
        "the profile has no step markers, or the workload is unknown",
    ),
    Column.real(
        "per_second",
        "number of calls in steps, divided by the length of all steps",
        "the rank has no steps",
    ),
    Column.integer("call_total_ns", "total time in the calls"),
    Column.real("call_mean_ns", "mean time in a call"),
    Column.integer("call_p50_ns", "median time in a call"),
    Column.integer("call_p95_ns", "95th percentile of the time in a call"),
    Column.real(
        "latency_mean_ns",
        "mean launch latency: from the return of the call to the start of the activity",
        _UNLINKED,
    ),
    Column.integer("latency_p50_ns", "median launch latency", _UNLINKED),
    Column.integer("latency_p95_ns", "95th percentile of the launch latency", _UNLINKED),
    Column.integer(
        "latency_negative",
        "number of calls with a negative latency: the activity started before the call returned",
    ),
    Column.integer(
        "started_before_call",
        "number of calls whose activity started before the call itself: the clocks disagree",
    ),
    Column.real(
        "queue_mean",
        "mean number of enqueued activities that had not ended when a call returned",
        _UNLINKED,
    ),
    Column.integer(
        "queue_max",
        "largest number of enqueued activities that had not ended when a call returned",
        _UNLINKED,
    ),
)

SELECT = """
WITH enqueued AS (
    SELECT launch_id AS call_id, rank, device, kind, start_ns, start_ns + dur_ns AS end_ns
    FROM events WHERE activity(kind) AND launch_id IS NOT NULL
), firsts AS (  -- of each call the activity that started first, and how many it enqueued
    SELECT call_id, count(*) AS activities, min(start_ns) AS start_ns, rank,
           if(min(kind) = max(kind), min(kind), 'mixed') AS kind,
           min({start_ns: start_ns, device: device}).device AS device
    FROM enqueued GROUP BY call_id, rank
), calls AS (
    SELECT c.event_id AS call_id, c.rank, c.name, c.step, c.dur_ns, f.kind, f.device, f.activities,
           c.start_ns + c.dur_ns AS returned_ns, f.start_ns - returned_ns AS latency_ns
    FROM events c LEFT JOIN firsts f ON f.call_id = c.event_id
    WHERE c.kind = 'runtime'  -- as annotate.calls.launch_calls
        AND (f.call_id IS NOT NULL
             OR name IN (SELECT name FROM names WHERE is_launch)
                AND coalesce(
                    parent_id NOT IN (SELECT event_id FROM events WHERE kind = 'runtime'), true))
), changes AS (  -- of the queue of a device
    SELECT e.rank, e.device, returned_ns AS at_ns, 1 AS change, NULL AS call_id
    FROM enqueued e JOIN calls USING (call_id)
    UNION ALL
    SELECT e.rank, e.device, greatest(end_ns, returned_ns), -1, NULL
    FROM enqueued e JOIN calls USING (call_id)
    UNION ALL
    SELECT rank, device, returned_ns, 0, call_id FROM calls WHERE activities > 0
), depths AS (
    SELECT call_id, sum(change) OVER (PARTITION BY rank, device ORDER BY at_ns) AS depth
    FROM changes QUALIFY call_id IS NOT NULL
)
SELECT c.rank, name, kind, count(*) AS count, count(activities) AS linked,
       coalesce(sum(activities), 0) AS activities, per(count(step), any_value(steps)) AS per_step,
       per_step / time_steps() AS per_time_step,
       per(if(any_value(unmarked), count(*), count(step)) * 1e9, any_value(window_ns))
           AS per_second,
       sum(dur_ns)::BIGINT AS call_total_ns, per(call_total_ns, count(*)) AS call_mean_ns,
       quantile_disc(dur_ns, 0.5) AS call_p50_ns, quantile_disc(dur_ns, 0.95) AS call_p95_ns,
       per(sum(latency_ns)::BIGINT, linked) AS latency_mean_ns,
       quantile_disc(latency_ns, 0.5) AS latency_p50_ns,
       quantile_disc(latency_ns, 0.95) AS latency_p95_ns,
       count(*) FILTER (latency_ns < 0) AS latency_negative,
       count(*) FILTER (latency_ns < -dur_ns) AS started_before_call,
       per(sum(depth)::BIGINT, linked) AS queue_mean, max(depth)::BIGINT AS queue_max
FROM calls c LEFT JOIN depths USING (call_id) JOIN ranks r ON r.rank IS NOT DISTINCT FROM c.rank
GROUP BY ALL
"""


GAP_COLUMNS = (
    RANK,
    DEVICE,
    Column.text("name", "name of the kernel, copy or memset"),
    Column.text("category", "category of work, such as gemm"),
    Column.integer(
        "count",
        "number of times that the kernel or copy ran, without the first activity of each step",
    ),
    Column.integer("dur_p50_ns", "median duration, nearest rank"),
    Column.integer(
        "gap_p50_ns", "median idle time of the device before the kernel or copy ran, nearest rank"
    ),
    Column.integer("dur_total_ns", "sum of the durations"),
    Column.integer(
        "gap_total_ns", "sum of the idle times of the device before the kernel or copy ran"
    ),
)

GAP_SELECT = """
WITH called AS (
    SELECT name, row_number() OVER () AS called_id
    FROM (SELECT DISTINCT name FROM events WHERE activity(kind))
), work AS (
    SELECT e.*, w.number, w.end_ns AS closes_ns
    FROM (
        SELECT rank, device, called_id, category, event_id, dur_ns, start_ns,
               start_ns + dur_ns AS end_ns
        FROM events JOIN called USING (name) WHERE activity(kind) AND device IS NOT NULL
    ) e
    ASOF JOIN windows w ON e.rank IS NOT DISTINCT FROM w.rank AND e.start_ns >= w.start_ns
), waits AS (
    SELECT rank, device, called_id, category, dur_ns, max(end_ns) OVER before AS idle_from_ns,
           greatest(start_ns - idle_from_ns, 0) AS gap_ns
    FROM work WHERE start_ns < closes_ns
    WINDOW before AS (PARTITION BY number, device ORDER BY start_ns, end_ns, event_id
                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), summed AS (
    SELECT rank, device, called_id, category, count(*) AS count,
           quantile_disc(dur_ns, 0.5) AS dur_p50_ns, quantile_disc(gap_ns, 0.5) AS gap_p50_ns,
           sum(dur_ns)::BIGINT AS dur_total_ns, sum(gap_ns)::BIGINT AS gap_total_ns
    FROM waits WHERE idle_from_ns IS NOT NULL GROUP BY ALL
)
SELECT * EXCLUDE (called_id) FROM summed JOIN called USING (called_id)
"""

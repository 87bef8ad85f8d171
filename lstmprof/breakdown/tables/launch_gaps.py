"""The table of launch gaps: how long each kernel ran, and how long its device was idle before it.

Reads linked and categorised events. The gap before an activity is the time in which its device ran
nothing, up to its start; it is 0 if something still ran. The first activity of a window has no gap.
If the gap is longer than the kernel, the kernel does not limit the speed.

Names are numbered before the events are sorted, because kernel names are long and every row of a
window would contain its own copy.
"""

from __future__ import annotations

from lstmprof.events.schema import DEVICE, RANK, Column

COLUMNS = (
    RANK,
    DEVICE,
    Column.text("name", "name of the kernel, copy or memset"),
    Column.text("category", "category of work, such as gemm"),
    Column.integer("count", "number of runs, without the first activity of each step"),
    Column.integer("dur_p50_ns", "median duration, nearest rank"),
    Column.integer("gap_p50_ns", "median idle time of the device before the run, nearest rank"),
    Column.integer("dur_total_ns", "sum of the durations"),
    Column.integer("gap_total_ns", "sum of the idle times of the device before the runs"),
)

SELECT = """
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

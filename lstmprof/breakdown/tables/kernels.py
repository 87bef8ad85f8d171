"""The kernel table: what each kernel (on a CPU run: each computing op) took, by name.

Reads linked and categorised events. A kernel's time is its own duration; an op's is its self time,
without what is inside it; ops that only arrange work are left out: some of them wait for others.
All activities of the profile count; ``per_step`` counts those that a step issued. Percentiles
are the nearest rank, so each is the duration of a row of ``events``.
"""

from __future__ import annotations

import pyarrow as pa

from lstmprof.events.schema import DEVICE, PER_STEP, RANK, Column

COLUMNS = (
    RANK,
    DEVICE,
    Column("name", pa.string(), "", "of the kernel, copy or memset; on a host thread of the op"),
    Column("category", pa.string(), "", "what the time is for", "an op that only arranges work"),
    Column("family", pa.string(), "", "gemm, pointwise or persistent", "the category is not rnn"),
    Column("count", pa.int64(), "", "times it ran"),
    Column("total_ns", pa.int64(), "ns", "sum of durations; of ops, of self time"),
    Column("mean_ns", pa.float64(), "ns", "mean of them"),
    Column("p50_ns", pa.int64(), "ns", "median of them, nearest rank"),
    Column("p95_ns", pa.int64(), "ns", "95th percentile of them, nearest rank"),
    Column("max_ns", pa.int64(), "ns", "longest of them"),
    Column(
        "share",
        pa.float64(),
        "share",
        "total_ns divided by that of all rows of the rank and device",
        "that is 0",
    ),
    PER_STEP,
    Column(
        "rule",
        pa.string(),
        "",
        "the rule that decided the category of most of them",
        "the run was written before rules were: ingest it again",
    ),
)

SELECT = """
WITH inside AS (  -- time in the events directly inside an event of the host
    SELECT e.parent_id AS event_id, sum(e.dur_ns) AS ns
    FROM events e JOIN ranks r ON r.rank IS NOT DISTINCT FROM e.rank AND r.computes
    WHERE e.parent_id IS NOT NULL GROUP BY e.parent_id
), work AS (
    SELECT rank, device, name, category, family, rule, step, dur_ns AS ns
    FROM events WHERE activity(kind)
    UNION ALL
    SELECT e.rank, device, name, category, family, rule, step,
           greatest(dur_ns - coalesce(inside.ns, 0), 0)
    FROM events e JOIN ranks r ON r.rank IS NOT DISTINCT FROM e.rank AND r.computes
         LEFT JOIN inside USING (event_id)
    WHERE kind = 'op' AND category IS NOT NULL
), decided AS (
    SELECT rank, device, name, category, family, rule, count(*) AS times FROM work GROUP BY ALL
), deciding AS (  -- the rule of most; of several one of an op, for 'op' is the last by its text
    SELECT rank, device, name, category, family, first(rule ORDER BY times DESC, rule DESC) AS rule
    FROM decided GROUP BY ALL
), kernels AS (
    SELECT rank, device, name, category, family, count(*) AS count, sum(ns)::BIGINT AS total_ns,
           quantile_disc(ns, 0.5)::BIGINT AS p50_ns, quantile_disc(ns, 0.95)::BIGINT AS p95_ns,
           max(ns)::BIGINT AS max_ns, count(step) AS in_steps
    FROM work GROUP BY ALL
)
SELECT k.*, d.rule, per(total_ns, count) AS mean_ns, per(in_steps, steps) AS per_step,
       per(total_ns, sum(total_ns) OVER (PARTITION BY k.rank, k.device)::BIGINT) AS share
FROM kernels k
JOIN deciding d ON (k.rank, k.device, k.name, k.category, k.family)
    IS NOT DISTINCT FROM (d.rank, d.device, d.name, d.category, d.family)
JOIN ranks r ON r.rank IS NOT DISTINCT FROM k.rank
"""

"""The events table, in the middle of all: what it holds, and what is derived from it.

::

    schema ─ a reader fills it ─ annotate (links, fwd_bwd, categories, steps) ─▶ Parquet
"""

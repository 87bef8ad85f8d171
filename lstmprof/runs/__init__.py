"""Runs on disk: made, kept and found.

::

    a path, URL or pattern ─ sources ─ profile ─ annotate ─▶ run.json, Parquet ─▶ Run
"""

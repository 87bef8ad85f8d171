"""Runs on disk: how they are made, stored and opened.

::

    words ─ sources ─▶ tasks ─ ingest (or cached) ─▶ profile ─ annotate ─▶ run.json, Parquet ─▶ Run
                         └─ jobs: in processes, or on a cluster

``metadata`` describes run.json. ``run`` reads and writes the tables of a run. ``directory`` makes
folders in which a run appears completely or not at all; ``remote`` does the same at URLs. ``cache``
finds the runs at paths and URLs, and reads raw profiles that are not runs yet.
"""

"""Runs on disk: how they are made, stored and opened.

::

    words ─ sources ─▶ tasks ─ ingest (or kept) ─▶ profile ─ annotate ─▶ run.json, Parquet ─▶ Run
                         └─ jobs: in processes, or on a cluster

``metadata`` is run.json as a record. ``run`` is a run with its tables. ``directory`` is the folder
in which a run appears whole or not at all, ``remote`` the same at a URL. ``cache`` opens paths and
URLs of runs and profiles.
"""

"""Runs on disk: made, kept and found.

::

    words ─ sources ─▶ tasks ─ ingest (or kept) ─▶ profile ─ annotate ─▶ run.json, Parquet ─▶ Run
                         └─ jobs: in processes, or on a cluster

``metadata`` is run.json as a record, ``run`` the run with its tables, ``directory`` the folder in
which it appears whole or not at all, ``remote`` the same at a URL; ``cache`` opens whatever words
mean, runs and profiles alike.
"""

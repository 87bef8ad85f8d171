"""Make, store and open runs: folders with run.json and Parquet tables.

::

    ingest, jobs         make a run, or many runs, from raw profiles
    run, metadata        read and write the tables and run.json
    directory, remote    put complete runs into a folder, or at a URL
    cache                opens runs and raw profiles
"""

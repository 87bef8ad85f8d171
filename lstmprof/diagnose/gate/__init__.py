"""Check whether new runs are slower than base runs: pass, fail or inconclusive.

::

    base runs, new runs ── pairs ─┐
    'slower > 3 %' ────── limits ─┴─ verdict ─▶ pass · fail · inconclusive

A limit is exceeded if the whole 95 % interval of the ratio (``certainty.pair``) lies above it. It
is kept if the whole interval lies below. Otherwise the result is inconclusive.
"""

"""Check whether new runs are slower than base runs: pass, fail or inconclusive.

::

    base runs, new runs ── pairs ─┐
    'slower > 3 %' ────── limits ─┴─ verdict ─▶ pass · fail · inconclusive

A limit is exceeded if the whole 95 % interval of the measured value (``certainty.pair``) is above
the limit, and kept if the whole interval is below the limit. Otherwise the result is inconclusive.
"""

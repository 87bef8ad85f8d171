"""Whether what is new is slower than what was before: pass, fail, or that it cannot be told.

::

    two sides of runs ─ pairs ─┐
    'slower > 3 %' ─── limits ─┴─ verdict ─▶ pass · fail · inconclusive

A limit is broken if the whole interval of the ratio (``certainty.pair``) lies above it, and kept if
all of it lies below.
"""

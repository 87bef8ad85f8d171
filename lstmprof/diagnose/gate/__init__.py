"""Whether what is new is slower than what was before: pass, fail, or that it cannot be told.

::

    two sides of runs ─ pairs ─ ratio ─┐
    'slower > 3 %' ─────────── limits ─┴─ verdict ─▶ pass · fail · inconclusive

A limit is broken where all that the ratio may be lies above it, and kept where all of it lies
below; how far the ratio may be off is what a diagnosis goes by (the noise and the doubts of
``diagnose.certainty``).
"""

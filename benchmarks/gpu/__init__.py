"""One session on a machine with a GPU: ``make gpu``, which is ``python -m benchmarks.gpu``.

::

    wishes ─▶ session ─▶ capture_one (one process per capture) ─▶ raw captures ─▶ runs ─▶ summary

A capture needs only NumPy and a framework. Converting a raw capture to a run needs the packages
that read profiles; ``wheels`` provides them on a machine without internet. Usage: docs/gpu.md.
"""

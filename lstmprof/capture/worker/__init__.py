"""The child's side of a capture: standard library, NumPy, framework; Python 3.7's syntax.

::

    __main__ ─ host, cpus ─ timing ─ profiling, ranges ─ meters, peaks ─ metadata ─▶ result.json

The loop of a framework is a module of ``loops``.
"""

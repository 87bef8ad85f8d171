"""The child's side of a capture: standard library, NumPy, framework; Python 3.7's syntax.

::

    __main__ ─ host ─ loops ─ timing ─ profiling ─ meters, peaks ─ metadata ─▶ result.json

A framework's loop is a module of ``loops``, its profiler one of ``profilers``.
"""

"""The worker: the child process that times and profiles one implementation.

It needs only the standard library, NumPy and the framework, in Python 3.7 syntax. Its modules, in
the order in which they are used:

::

    __main__ ─ host ─ loops ─ timing ─ profiling ─ meters, peaks ─ metadata ─▶ result.json

``loops`` has one module per framework, ``profilers`` one per profiler.
"""

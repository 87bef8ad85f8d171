"""The worker: the child process of a capture. Standard library, NumPy, framework; Python 3.7
syntax.

::

    __main__ ─ host ─ loops ─ timing ─ profiling ─ meters, peaks ─ metadata ─▶ result.json

``loops`` has one module per framework, ``profilers`` one per profiler.
"""

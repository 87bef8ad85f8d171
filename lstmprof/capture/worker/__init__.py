"""The worker: the child process that times and profiles one implementation.

The worker needs only Python 3.7, NumPy and the framework. Modules in the order of use:

::

    __main__ ─ machine ─ loops ─ timing ─ profiling ─ metadata ─▶ result.json

``loops`` has one module per framework, ``profilers`` has one module per profiler.
"""

"""The worker: the child process that times and profiles one implementation.

It needs only the standard library, NumPy and the framework, in Python 3.7 syntax. Its modules, in
the order in which they are used:

::

    __main__ ─ machine ─ loops ─ timing ─ profiling ─ metadata ─▶ result.json

``machine`` reads and measures the machine. ``loops`` has one module per framework, ``profilers``
one per profiler.
"""

"""One session on a machine with a GPU: ``make gpu``, which is ``python -m benchmarks.gpu``.

::

    wishes ─▶ session ─▶ capture_one (a process each) ─▶ raw captures ─▶ runs ─▶ summary

A capture needs NumPy and a framework alone; making it a run needs what reads profiles, which
``wheels`` carries along. docs/gpu.md says how to use it.
"""

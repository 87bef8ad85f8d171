"""Measure one implementation in its own process: time it without a profiler, then profile it.

::

    request ─ harness ─▶ worker ─▶ result.json ─ harness ─ captured_run ─▶ a run on disk

This file imports nothing, because the worker process imports it.
"""

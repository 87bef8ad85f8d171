"""Measure one implementation in a process of its own: time it undisturbed, then profile it.

Modules in the order in which they run, from a request to a run on disk:

::

    request ─ harness ─▶ worker ─▶ result.json ─ harness ─ captured_run ─▶ a run on disk

``worker`` runs in the child process. This file imports nothing, because the worker imports it.
"""

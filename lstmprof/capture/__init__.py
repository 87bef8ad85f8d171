"""Capture: run one implementation in its own process, time it undisturbed, then profile it.

::

    request ─ plan ─ rounds ─ supervisor ─▶ worker ─▶ result.json ─ rounds ─▶ a run on disk

``worker`` runs in the child process. This file imports nothing, because the worker imports it.
"""

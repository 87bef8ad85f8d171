"""One implementation, run in a process of its own: timed undisturbed, then profiled.

::

    request ─ plan ─ rounds ─ supervisor ─▶ worker ─▶ result.json ─ rounds ─▶ a run on disk

``worker`` is the child's side. This file imports nothing, because the worker imports it.
"""

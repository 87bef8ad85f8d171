"""Measure an implementation in a worker process: first the step times, then a profile.

::

    request ─ harness ─▶ worker ─▶ result.json ─ harness ─ captured_run ─▶ a run on disk
"""

# import nothing here, because the worker process imports this file

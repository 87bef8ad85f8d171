"""The clean step: the time of a step without disturbances and without the profiler.

::

    slots ─▶ slot_times ─┐
    recording, timings ──┴▶ clean_step ─▶ now_and_then (rare events that it leaves out)
    script_waits             waits that the script itself causes
"""

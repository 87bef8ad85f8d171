"""The clean step: the time of a step without profiler overhead and disturbances.

::

    slots ─▶ slot_times ─┐
    recording, timings ──┴▶ clean_step ─▶ now_and_then (rare events, which the clean step may hide)
    script_waits             waits that the script itself causes
"""

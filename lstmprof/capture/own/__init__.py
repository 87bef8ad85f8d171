"""A user's own steps, timed and profiled in the user's own process by ``lp.profile``.

::

    session ─ passes ─▶ result.json ─ captured_run (in a child process) ─▶ a run on disk

``session`` is what the user holds, ``passes`` what is done around which step. What runs while a
training lasts needs the standard library, NumPy and the framework, no more; ``captured_run`` reads
the profile in a process of its own once all is measured. This file imports nothing.
"""

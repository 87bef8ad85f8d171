"""``lp.profile``: time and profile steps of a training in the user's own process.

::

    session ─ passes ─▶ result.json ─ captured_run (in a child process) ─▶ a run on disk

``session`` is the object that users call. ``passes`` decides which steps are timed or profiled.
Code in the user's process needs only the standard library, NumPy and the framework.
"""

# import nothing here, because the user's process imports this file

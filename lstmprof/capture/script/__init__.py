"""``lstmprof run``: run a user's script unchanged, find its steps and measure them.

::

    launch ─▶ main ─ watching ┬ finders ─ steps ─▶ a session of ``capture.own``
                              └ program            └ ranges, in profiled steps

``launch`` runs in the parent process. Everything else runs in the script's process, with Python
3.7, the standard library, NumPy and the script's own framework. This file imports nothing.
"""

"""A user's script, run as it is in a process of its own, its steps found and measured.

::

    launch ─▶ main ─ watching ┬ finders ─ steps ─▶ a session of ``capture.own``
                              └ program            └ ranges, in profiled steps

``launch`` is the parent's side. All else runs in the script's process: Python 3.7,
the standard library, NumPy and the script's own framework. This file imports nothing.
"""

"""``lstmprof run``: run a user's script unchanged, find its steps and measure them.

::

    launch ─▶ main ─ watching ┬ finders ─ steps ─▶ a session of ``capture.own``
                              └ program            └ ranges, in profiled steps

``launch`` starts the script's process. The other modules run in the script's process, with Python
3.7, the standard library, NumPy and the script's own framework.
"""

# import nothing here, because the script's process imports this file

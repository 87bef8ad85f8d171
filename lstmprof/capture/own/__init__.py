"""``lp.profile``: time and profile a user's own steps in the user's process.

::

    session ─ passes ─▶ result.json ─ captured_run (in a child process) ─▶ a run on disk

``session`` is the object that users call; ``passes`` decides what happens around each step. Code
that runs during a training needs only the standard library, NumPy and the framework.
``captured_run`` reads the profile in another process after the measurement. This file imports
nothing.
"""

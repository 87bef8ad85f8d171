"""Plan captures, run each capture in rounds, and supervise the worker processes.

::

    plan ─▶ rounds ─▶ supervisor ─▶ a worker
               └─ kept_rounds    the finished rounds of an interrupted capture
"""

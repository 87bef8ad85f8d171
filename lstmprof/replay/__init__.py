"""The step without a cause, replayed (Daydream).

::

    graph ─ dependencies ─ change ─ simulate ─▶ the step's length without it
"""

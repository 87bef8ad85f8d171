"""The page that people pass around: charts, tables and sentences in one file that needs nothing.

::

    rows.Report ─▶ charts (one a file) ─▶ figures ─▶ page ─▶ one HTML file
                                                  └▶ files ─▶ PNG, SVG or JSON of each chart

The rows come from ``reporting``; nothing is computed here but what a drawing needs.
"""

from __future__ import annotations

#: The charts in reading order; one module of ``charts`` each, imported on use.
CHARTS = (
    "times",
    "ledger",
    "waterfall",
    "launch_gaps",
    "casts",
    "sweep",
    "roofline",
    "stability",
)

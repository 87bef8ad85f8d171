"""Export a run, or a part of it, as a file of another tool.

::

    events, attribution ─────▶ perfetto     *.pftrace  ui.perfetto.dev, trace_processor
    events ──────────────────▶ call_stacks  *.json     www.speedscope.app
    events, the Kineto file ─▶ trace_cut    *.json     a part of the Kineto file
"""

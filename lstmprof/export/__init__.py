"""Export a run, or a part of it, as a file of another tool.

::

    events, attribution ─▶ perfetto/   *.pftrace   ui.perfetto.dev, trace_processor
    events, stacks ──────▶ speedscope  *.json      www.speedscope.app
    events, windows ─▶ kept ─▶ kineto  *.json      the same trace, cut
"""

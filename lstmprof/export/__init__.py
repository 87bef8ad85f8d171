"""A run, or a part of it, as a file of another tool.

::

    events, attribution ─▶ perfetto/       *.pftrace   ui.perfetto.dev, trace_processor
    events, windows ─▶ kept ─▶ kineto      *.json      the same trace, cut
"""

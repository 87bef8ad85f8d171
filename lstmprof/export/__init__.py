"""A run as a file of another tool.

::

    events, attribution ─▶ perfetto/       *.pftrace   ui.perfetto.dev, trace_processor
"""

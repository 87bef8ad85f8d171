"""Export a run, or some steps of a run, as a file that another tool opens.

::

    module        source                     file
    perfetto      events, breakdown          *.pftrace, for ui.perfetto.dev and trace_processor
    call_stacks   events, breakdown          *.json, for www.speedscope.app
    trace_cut     events, the Kineto file    *.json, a shorter Kineto file
"""

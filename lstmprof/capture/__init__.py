"""One implementation, run in a process of its own: timed undisturbed, then profiled.

``supervisor`` is the parent's side: ``capture(request, scratch, progress)``. ``worker*`` is the
child's side: the standard library, NumPy and the framework only, in Python 3.7's syntax, since it
may run in another interpreter. This file imports nothing, because the worker imports it.
"""

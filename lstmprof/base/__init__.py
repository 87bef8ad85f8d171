"""Shared by all stages: errors, files, terminal, processes, and the text of numbers and names.

``errors`` are the errors that a user can fix. ``scratch`` makes files that appear whole or not at
all. ``streams`` wraps standard output and standard error. ``process`` tunes the interpreter for a
short command, and ``pool`` starts worker processes. ``numbers`` formats numbers as text, and
``names`` lists the names that users can give. This file imports nothing, because capture workers
import ``errors`` and ``scratch``.
"""

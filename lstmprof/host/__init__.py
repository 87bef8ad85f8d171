"""Access to the computer: the process, scratch files, and the terminal.

``process`` tunes the interpreter for a short command. ``scratch`` makes files that appear whole or
not at all. ``streams`` wraps standard output and standard error. This file imports nothing, because
capture workers import ``scratch``.
"""

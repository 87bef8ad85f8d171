"""What a command needs of its computer: its process, scratch files, and the terminal.

``process`` tunes the interpreter for a short command, ``scratch`` makes files that appear whole or
not at all, ``streams`` is the one border to standard output and standard error. This file imports
nothing, because capture workers import ``scratch``.
"""

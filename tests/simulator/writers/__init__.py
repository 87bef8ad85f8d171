"""Simulated programs as the files that profilers write: a module a profiler, a function a layout.

Each takes a ``Recording`` and returns the file's bytes, the same on every machine.
"""
